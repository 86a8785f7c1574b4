"""Builds of the tests, and of processes that they start, check their functions by the verifier of the tensor IR."""

from __future__ import annotations

import os

os.environ.setdefault("TILEWRIGHT_VERIFY", "1")
