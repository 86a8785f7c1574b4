"""Bytes and reuse of a loop nest, for features: footprints per loop level, traffic per cache level, reuse distances.

An access is reused by a loop that does not move it; the reuse is worth something if what one iteration of that loop
touches (the reuse distance) fits in a cache. Levels count from the outside: level ``j`` is everything inside loops
``j, j+1, ...``; level ``len(loops)`` is one point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.autotune.cost_model.feature_indices import Strides
from tilewright.machine.memory import LINE_BYTES


@dataclass(slots=True)
class Access:
    """A load or store: where it goes, and its strides over loops, by dimension and in elements."""

    buffer: str
    is_store: bool
    itemsize: int
    shape: tuple[int, ...]
    local: bool
    dims: list[Strides]
    strides: Strides

    def stride(self, loop: str) -> float:
        return self.strides.get(loop, 0.0)


@dataclass(slots=True)
class Level:
    """A loop around the accesses: its name and how many iterations one thread runs of it."""

    var: str
    extent: float


@dataclass(slots=True)
class Traffic:
    """What the accesses of one block touch.

    ``footprints[access][level]``: bytes, in whole cache lines; ``working_set[level]``: their sum.
    """

    footprints: list[list[float]]
    working_set: list[float]


def measure_footprints(accesses: Sequence[Access], loops: Sequence[Level]) -> Traffic:
    """Footprints of every access at every level."""
    count = len(loops)
    working_set = [0.0] * (count + 1)
    footprints: list[list[float]] = []
    known: dict[tuple[str, int], list[float]] = {}  # accesses that move alike share their strides
    for a in accesses:
        key = (a.buffer, id(a.dims))
        row = known.get(key) or known.setdefault(key, _footprint(a, loops, count))
        footprints.append(row)
        for level in range(count + 1):
            working_set[level] += row[level]
    return Traffic(footprints, working_set)


def _footprint(a: Access, loops: Sequence[Level], count: int) -> list[float]:
    itemsize, shape = a.itemsize, a.shape
    spans = [1.0] * len(shape)
    points = 1.0
    row = [0.0] * (count + 1)
    row[count] = current = _bytes(spans, shape, points, itemsize)
    for j in range(count - 1, -1, -1):
        loop = loops[j]
        if loop.var in a.strides and loop.extent != 1.0:
            steps = loop.extent - 1.0
            points *= loop.extent
            for d, strides in enumerate(a.dims):
                s = strides.get(loop.var)
                if s is not None and s != 0.0:
                    grown = spans[d] + abs(s) * steps if s == s else spans[d] * loop.extent
                    spans[d] = min(grown, float(shape[d])) if shape[d] > 0 else 0.0
            current = _bytes(spans, shape, points, itemsize)
        row[j] = current
    return row


def _bytes(spans: list[float], shape: tuple[int, ...], points: float, itemsize: int) -> float:
    if not shape:
        return float(LINE_BYTES)
    total = 1.0
    for s in spans:
        total *= s
    last = spans[-1]
    if last >= shape[-1]:
        return float(max(LINE_BYTES, min(total, points) * itemsize))
    line = -(-last * itemsize // LINE_BYTES) * LINE_BYTES
    return float(max(LINE_BYTES, min(total / last * line, points * LINE_BYTES))) if last else 0.0


def traffic_beyond(traffic: Traffic, loops: Sequence[Level], cache_bytes: float) -> list[float]:
    """Bytes that each access fetches from beyond a cache of this size while one thread runs the nest.

    The innermost loop whose iterations together do not fit still finds in the cache what its last iteration left there,
    so each of its runs fetches its footprint once; the loops around it repeat that.
    """
    level = len(loops)
    while level > 0 and traffic.working_set[level - 1] <= cache_bytes:
        level -= 1
    level = max(0, level - 1)
    repeats = 1.0
    for loop in loops[:level]:
        repeats *= loop.extent
    return [row[level] * repeats for row in traffic.footprints]


@dataclass(slots=True)
class Reuse:
    """The innermost loop that reuses an access: how often, and what is touched between two uses."""

    count: float
    distance_bytes: float
    distance_points: float


def nearest_reuse(a: Access, traffic: Traffic, loops: Sequence[Level], body: int) -> Reuse:
    """Reuse by the loops outside the body (``loops[:body]``); count 1 if there is none."""
    points = 1.0
    for loop in loops[body:]:
        points *= loop.extent
    for j in range(body - 1, -1, -1):
        if loops[j].extent > 1.0 and loops[j].var not in a.strides:
            return Reuse(loops[j].extent, traffic.working_set[j + 1], points)
        points *= loops[j].extent
    return Reuse(1.0, traffic.working_set[0], points)
