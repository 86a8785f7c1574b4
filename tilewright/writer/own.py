"""Operators of our own, and attributes of our own, in ONNX's terms."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.writer.forms import Form

OWN: Mapping[str, Form] = {}
