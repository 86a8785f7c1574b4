"""Points in the ranges of variables at which an expression is tried: one negative value refutes ``e >= 0``.

Most of what a build asks about symbolic sizes is false (whether the last, partial tile is a whole one), and one point
shows it where a search for a proof tries every way to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias
from zlib import crc32

from tilewright.core.arith.expr import IntExpr
from tilewright.core.memo import by_value

RangeItems: TypeAlias = tuple[tuple[str, tuple[IntExpr, IntExpr]], ...]

_SIZES = ((97, 64), (1009, 512), (1, 5))
"""Least value and spread of the dimension symbols, one sample each."""


class Point(dict[str, int]):
    """Values of variables. A dimension symbol has one that its name decides, at least ``least``."""

    def __init__(self, least: int, spread: int) -> None:
        super().__init__()
        self._least, self._spread = least, spread

    def __missing__(self, name: str) -> int:
        self[name] = value = self._least + crc32(name.encode()) % self._spread
        return value


class Samples:
    """Corners of ranges at a few sizes, each found when it is first asked for; none in which a loop has no step."""

    def __init__(self, ranges: RangeItems) -> None:
        ends = [x for _, pair in ranges for x in pair]
        count = len(ranges)
        corners = (1,) * count, (0,) * count, tuple(k % 2 for k in range(count))
        self._ranges = ranges
        self._corners = tuple(dict.fromkeys(corners)) if all(x.is_plain for x in ends) else ()
        self._names = frozenset(name for name, _ in ranges)
        self._has_symbols = not frozenset().union(*[x.free_vars() for x in ends]) <= self._names
        self._points: dict[int, Point | None] = {}

    def __iter__(self) -> Iterator[Point]:
        return self._first(len(_SIZES) * len(self._corners))

    def for_values_of(self, e: IntExpr) -> Iterator[Point]:
        """The points at which ``e`` may have different values: sizes matter where a symbol occurs."""
        sizes = len(_SIZES) if self._has_symbols or not e.free_vars() <= self._names else 1
        return self._first(sizes * len(self._corners))

    def _first(self, count: int) -> Iterator[Point]:
        for k in range(count):
            if k not in self._points:
                size, corner = divmod(k, len(self._corners))
                self._points[k] = _corner(self._ranges, self._corners[corner], Point(*_SIZES[size]))
            point = self._points[k]
            if point is not None:
                yield point


def is_refuted(e: IntExpr, ranges: RangeItems) -> bool:
    """True if ``e`` is negative at one of the sample points."""
    return e.is_plain and any(_is_negative(e, p) for p in sample_points(ranges).for_values_of(e))


@by_value(1 << 10)
def sample_points(ranges: RangeItems) -> Samples:
    """The points in ``ranges`` at which expressions are tried."""
    return Samples(ranges)


def _corner(ranges: RangeItems, ends: tuple[int, ...], point: Point) -> Point | None:
    """The point with each variable at the low (0) or high (1) end of its range; None if a range is empty."""
    for (name, (low, high)), end in zip(ranges, ends, strict=True):
        try:
            lo = low.evaluate(point) if low.terms else low.const
            hi = high.evaluate(point) if high.terms else high.const
        except ZeroDivisionError:
            return None
        if hi < lo:
            return None
        point[name] = hi if end else lo
    return point


def _is_negative(e: IntExpr, point: Mapping[str, int]) -> bool:
    try:
        return e.evaluate(point) < 0
    except ZeroDivisionError:
        return False
