"""Points in the ranges of variables at which an expression is tried: one negative value refutes ``e >= 0``.

Most of what a build asks about symbolic sizes is false (whether the last, partial tile is a whole one), and one point
shows it where a search for a proof tries every way to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from zlib import crc32

from tilewright.core.intexpr import IntExpr
from tilewright.core.memo import by_value

RangeItems: TypeAlias = tuple[tuple[str, tuple[IntExpr, IntExpr]], ...]

_SIZES = ((97, 64), (1009, 512), (1, 5))
"""Least value and spread of the dimension symbols, a sample each."""


class Point(dict[str, int]):
    """Values of variables. A dimension symbol has one that its name decides, at least ``least``."""

    def __init__(self, least: int, spread: int) -> None:
        super().__init__()
        self._least, self._spread = least, spread

    def __missing__(self, name: str) -> int:
        self[name] = value = self._least + crc32(name.encode()) % self._spread
        return value


def is_refuted(e: IntExpr, ranges: RangeItems) -> bool:
    """True if ``e`` is negative at one of the sample points."""
    return e.is_plain and any(_is_negative(e, p) for p in sample_points(ranges))


@by_value(1 << 10)
def sample_points(ranges: RangeItems) -> tuple[Mapping[str, int], ...]:
    """Corners of the ranges at a few sizes; none in which a loop has no step."""
    if not all(x.is_plain for _, ends in ranges for x in ends):
        return ()
    corners = (tuple(1 for _ in ranges), tuple(0 for _ in ranges), tuple(k % 2 for k in range(len(ranges))))
    found = (_corner(ranges, ends, Point(*size)) for size in _SIZES for ends in corners)
    return tuple(p for p in found if p is not None)


def _corner(ranges: RangeItems, ends: tuple[int, ...], point: Point) -> Point | None:
    """The point with each variable at the low (0) or high (1) end of its range; None if a range is empty."""
    for (name, (low, high)), end in zip(ranges, ends, strict=True):
        try:
            lo, hi = low.evaluate(point), high.evaluate(point)
        except ZeroDivisionError:
            return None
        if hi < lo:
            return None
        point[name] = (lo, hi)[end]
    return point


def _is_negative(e: IntExpr, point: Mapping[str, int]) -> bool:
    try:
        return e.evaluate(point) < 0
    except ZeroDivisionError:
        return False
