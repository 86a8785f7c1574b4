"""Numbers as people write them."""

from __future__ import annotations

DASH = "\u2013"
"""For what is not known."""
TIMES = "\u00d7"
THIN = "\u2009"
"""A narrow space, between thousands."""


def count(n: int) -> str:
    """``12 345``, with narrow spaces."""
    return f"{n:,}".replace(",", THIN)


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def short_time(seconds: float) -> str:
    """``12.3 µs``, ``4.56 ms``, ``1.20 s``."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


def ratio(value: float | None) -> str:
    """How many times as fast; a dash for what is not known."""
    return DASH if value is None else f"{value:.2f}{TIMES}"
