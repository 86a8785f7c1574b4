"""How the rules ask: only where there is a choice, and with candidates that follow from the sizes at hand."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.schedule.schedule import Schedule

_MOST = 10


def choose_number(s: Schedule, label: str, candidates: Iterable[int], default: int) -> int:
    """Ask for one of ``candidates`` and ``default``, in increasing order; no question if there is just one."""
    options = tuple(sorted({*candidates, default}))
    return default if len(options) == 1 else int(s.sample_categorical(label, options, default))


def divisors(extent: int | None) -> list[int]:
    """The divisors of a constant extent, 1 and itself included; none of a symbolic one."""
    if extent is None or extent < 1:
        return []
    return [d for d in range(1, extent + 1) if extent % d == 0] if extent <= 4096 else [1, extent]


def spread_out(values: Iterable[int], most: int = _MOST) -> list[int]:
    """At most ``most`` of the values, evenly spread over their order, the ends included."""
    ordered = sorted(set(values))
    if len(ordered) <= most:
        return ordered
    return [ordered[n * (len(ordered) - 1) // (most - 1)] for n in range(most)]
