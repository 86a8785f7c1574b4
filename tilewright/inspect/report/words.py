"""Numbers as people write them."""

from __future__ import annotations

from tilewright.autotune.records.record import Machine
from tilewright.inspect.report.rows import Row

DASH = "\u2013"
"""For what is not known."""
TIMES = "\u00d7"
THIN = "\u2009"
"""A narrow space, between thousands."""


def count(n: int) -> str:
    """``12 345``, with narrow spaces."""
    return f"{n:,}".replace(",", THIN)


def counted(n: int, what: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


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


def microseconds(row: Row | None) -> str:
    """``49 048.1``; a dash for what is not known."""
    return DASH if row is None or row.seconds is None else f"{row.seconds * 1e6:,.1f}".replace(",", THIN)


def choice(value: object) -> str:
    """What a schedule decided, numbers with a cross between them; a dash where it has no such decision."""
    if value is None:
        return DASH
    return f" {TIMES} ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def machine(m: Machine) -> str:
    """``znver3, 2 threads``."""
    return f"{m[1]}, {counted(m[2], 'thread')}"
