"""Forms that operators have in older opsets."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.writer.forms import Downgrade

OLDER: Mapping[str, tuple[Downgrade, ...]] = {}
