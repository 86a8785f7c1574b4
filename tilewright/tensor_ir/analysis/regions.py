"""Regions: the box of a buffer that a statement reads or writes while its loops run.

A region is one ``(min, extent)`` for each dimension, in terms of what surrounds the statement. It covers every access,
and is exact for the usual affine indices; a dimension that cannot be bounded (a gather) counts in full.

``clip=True`` gives what is touched really, so extents at ragged edges depend on outer loops. ``clip=False`` takes
every ragged loop at its constant full length and may reach beyond the buffer: the extents of a tile that is always
big enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from tilewright.core.intbounds import Ranges, extremes, interval, loop_range, simplify, spread
from tilewright.core.intexpr import IntExpr, const, maximum, minimum
from tilewright.tensor_ir.analysis.access import bound_indices
from tilewright.tensor_ir.analysis.scopes import block_environment, loads_of
from tilewright.tensor_ir.ir import Block, Buffer, Loop, Stmt, Store, stmt_children, walk_index

Region: TypeAlias = tuple[tuple[IntExpr, IntExpr], ...]
_Access: TypeAlias = tuple[tuple[IntExpr, ...], dict[str, tuple[IntExpr, IntExpr]]]


def read_region(
    stmt: Stmt, buffer: Buffer, outer: Ranges, clip: bool = True, inner: Collection[str] | None = None
) -> Region | None:
    """What ``stmt`` reads of ``buffer`` while the loops in it run; None if it does not read it.

    ``outer``: ranges of the loops around ``stmt``. ``inner``: names of the loops in ``stmt`` that run (default: all);
    the others stay symbolic.
    """
    return _region(
        stmt, buffer, outer, clip, inner, lambda s: [x.indices for x in loads_of(s) if x.buffer == buffer.name]
    )


def written_region(
    stmt: Stmt, buffer: Buffer, outer: Ranges, clip: bool = True, inner: Collection[str] | None = None
) -> Region | None:
    """What ``stmt`` writes of ``buffer`` while the loops in it run; None if it does not write it."""
    return _region(stmt, buffer, outer, clip, inner, lambda s: _stored(s, buffer))


def accessed_region(
    stmt: Stmt, buffer: Buffer, outer: Ranges, clip: bool = True, inner: Collection[str] | None = None
) -> Region | None:
    """What ``stmt`` reads or writes of ``buffer`` while the loops in it run; None if it does neither."""

    def both(s: Stmt) -> list[tuple[IntExpr, ...]]:
        return [*_stored(s, buffer), *(x.indices for x in loads_of(s) if x.buffer == buffer.name)]

    return _region(stmt, buffer, outer, clip, inner, both)


def _stored(s: Stmt, buffer: Buffer) -> list[tuple[IntExpr, ...]]:
    return [s.indices] if isinstance(s, (Block, Store)) and s.buffer == buffer.name else []


def _region(
    stmt: Stmt,
    buffer: Buffer,
    outer: Ranges,
    clip: bool,
    inner: Collection[str] | None,
    indices_of: Callable[[Stmt], list[tuple[IntExpr, ...]]],
) -> Region | None:
    accesses = list(_accesses(stmt, dict(outer), {}, clip, inner, indices_of))
    if not accesses:
        return None
    ends: list[tuple[IntExpr, IntExpr]] = []
    for d, extent in enumerate(buffer.shape):
        lows: list[IntExpr] = []
        highs: list[IntExpr] = []
        for indices, running in accesses:
            low, high = _dimension_ends(indices[d], running, outer, extent)
            lows.append(low)
            highs.append(high)
        low, high = minimum(*lows), maximum(*highs)
        if clip:
            low, high = maximum(low, 0), minimum(high, extent - 1)
        low = simplify(low, outer)
        ends.append((low, simplify(spread(simplify(high, outer) - low + 1), outer)))
    return tuple(ends)


def _dimension_ends(
    index: IntExpr, running: dict[str, tuple[IntExpr, IntExpr]], outer: Ranges, extent: IntExpr
) -> tuple[IntExpr, IntExpr]:
    reads_memory = next(walk_index(index), None) is not None
    ends = None if reads_memory else extremes(index, running, outer)
    return (const(0), extent - 1) if ends is None else ends


def _accesses(
    s: Stmt,
    around: dict[str, tuple[IntExpr, IntExpr]],
    running: dict[str, tuple[IntExpr, IntExpr]],
    clip: bool,
    inner: Collection[str] | None,
    indices_of: Callable[[Stmt], list[tuple[IntExpr, ...]]],
) -> Iterator[_Access]:
    """Each access as indices over loop variables, with the ranges of the loops that run."""
    found = indices_of(s)
    if found:
        environment = block_environment(s) if isinstance(s, Block) else {}
        for indices in found:
            yield bound_indices(indices, environment, around), running
    if isinstance(s, Loop):
        extent = s.extent
        if not clip and not extent.is_const and (top := interval(extent, around)[1]) is not None:
            extent = const(top)
        bounds = loop_range(extent)
        around = {**around, s.var: bounds}
        if inner is None or s.var in inner:
            running = {**running, s.var: bounds}
    for c in stmt_children(s):
        yield from _accesses(c, around, running, clip, inner, indices_of)
