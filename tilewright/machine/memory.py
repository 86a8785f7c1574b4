"""Sizes of memory's parts that all our CPUs share: arrays lie by them, so they are the same in every build."""

from __future__ import annotations

LINE_BYTES = 64
"""Bytes of a cache line."""

PAGE_BYTES = 4096
"""Bytes of a page: hardware prefetchers follow a run to its end, not beyond."""

HUGE_PAGE_BYTES = 2 << 20
"""Bytes of a huge page."""
