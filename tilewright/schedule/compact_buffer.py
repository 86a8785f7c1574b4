"""Regions of buffers inside a loop: new loops over them, and buffers shrunk to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import Ranges, extremes, is_nonneg, simplify, upper_bound
from tilewright.core.arith.expr import ZERO, IntExpr, as_var, const, product, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Load
from tilewright.tensor_ir.loads import map_block_loads
from tilewright.tensor_ir.names import fresh_in

LOCAL_BYTES = 256 * 1024
"""The largest region of known size that becomes a local buffer: it lives on a thread's stack, or in registers."""


@dataclass(frozen=True, slots=True)
class Region:
    """The part of one dimension that an iteration needs: ``low .. low + extent - 1``, inside the dimension.

    ``size``: a constant that the extent never exceeds, or None.
    """

    low: IntExpr
    extent: IntExpr
    size: int | None


def clipped(low: IntExpr, high: IntExpr, extent: IntExpr, ranges: Ranges) -> Region:
    """The region ``low .. high``, cut to ``0 .. extent - 1`` where it is not proved inside."""
    length = simplify(high - low + 1, ranges)
    size = upper_bound(length, ranges)
    inside_low, inside_high = _is_never_negative(low, ranges), _is_never_negative(extent - 1 - high, ranges)
    if not inside_low:
        low = simplify(maximum(0, low), ranges)
    if not inside_high:
        high = simplify(minimum(high, extent - 1), ranges)
    if not (inside_low and inside_high):
        length = simplify(high - low + 1, ranges)
        bounds_known = [s for s in (size, upper_bound(length, ranges), extent.value()) if s is not None]
        size = min(bounds_known) if bounds_known else None
    if not is_nonneg(length, ranges):
        length = simplify(maximum(0, length), ranges)
    return Region(low, length, size)


def _is_never_negative(e: IntExpr, ranges: Ranges) -> bool:
    """True if ``e >= 0`` is proved, or its symbolic minimum over the loops is."""
    if is_nonneg(e, ranges):
        return True
    ends = extremes(e, ranges)
    return ends is not None and is_nonneg(ends[0], {})


def local_buffer(buffer: Buffer, regions: Sequence[Region | None], outer: Ranges) -> Buffer | None:
    """The buffer shrunk to the regions of an iteration of the loops ``outer``.

    None where it is too large for a local one, has a size that the function's dims do not bound, or is whole again.
    """
    shape: list[IntExpr] = []
    for r, d in zip(regions, buffer.shape, strict=True):
        size = d if r is None else _most(r, outer)
        if size is None:
            return None
        shape.append(size)
    size = product(shape)
    known = size.value()
    if size == product(buffer.shape) if known is None else known * buffer.dtype.itemsize > LOCAL_BYTES:
        return None
    return dataclasses.replace(buffer, shape=tuple(shape), scope="local")


def _most(r: Region, outer: Ranges) -> IntExpr | None:
    """A size that holds every region: a constant, or an expression without the variables of ``outer``."""
    if r.size is not None:
        return const(max(r.size, 1))
    ends = extremes(r.extent, outer)
    return None if ends is None or ends[1].free_vars() & outer.keys() else simplify(ends[1], {})


def offset_axes(
    buffer: str, regions: Sequence[Region | None], extents: Sequence[IntExpr], taken: set[str], ranges: Ranges
) -> dict[int, Axis]:
    """An axis for the start of each region that is neither at 0 nor a single point, by dimension."""
    return {
        d: Axis(fresh_in(taken, f"{buffer}_o{d}_"), _room_for(r.low, extents[d], ranges))
        for d, r in enumerate(regions)
        if r is not None and r.low != 0 and r.extent != 1
    }


def _room_for(low: IntExpr, extent: IntExpr, ranges: Ranges) -> IntExpr:
    """``extent``, or more where a region without elements may start behind the last one."""
    if is_nonneg(extent - 1 - low, ranges):
        return extent
    ends = extremes(low, ranges)
    return extent if ends is None else simplify(maximum(extent, ends[1] + 1), {})


def bound_axes(
    block: Block,
    axes: Sequence[str | None],
    regions: Sequence[Region | None],
    kept: Mapping[str, IntExpr],
    taken: set[str],
) -> tuple[Block, list[tuple[str, IntExpr]]]:
    """The block with bindings for the regions, and its new loops with their extents."""
    nest: list[tuple[str, IntExpr]] = []
    bindings: list[IntExpr] = []
    for a in block.axes:
        region = next((r for x, r in zip(axes, regions, strict=True) if x == a.name), None)
        if region is None and a.kind == "spatial":
            bindings.append(kept[a.name])
            continue
        low, extent = (ZERO, a.extent) if region is None else (region.low, region.extent)
        if extent == 1 and a.kind != "reduce":  # a step of a reduction keeps its loop, for decompose_reduction
            bindings.append(low)
            continue
        old = as_var(kept[a.name])
        name = fresh_in(taken, old if old is not None else a.name.rstrip("_") or a.name)
        nest.append((name, extent))
        bindings.append(low + var(name))
    return dataclasses.replace(block, bindings=tuple(bindings)), nest


def rebase(block: Block, buffer: str, regions: Sequence[Region | None], offsets: Mapping[int, Axis]) -> Block:
    """``block`` with indices of ``buffer`` counted from the regions' starts, which become axes of the block."""

    def shift(indices: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        out: list[IntExpr] = []
        for d, i in enumerate(indices):
            r = regions[d]
            single = r is not None and r.extent == 1
            out.append(ZERO if single else i - var(offsets[d].name) if d in offsets else i)
        return tuple(out)

    def load(x: Load) -> Load:
        return dataclasses.replace(x, indices=shift(x.indices)) if x.buffer == buffer else x

    block = map_block_loads(block, load)
    if block.buffer == buffer:
        block = dataclasses.replace(block, indices=shift(block.indices))
    lows = [r.low for d in offsets if (r := regions[d]) is not None]
    return dataclasses.replace(block, axes=(*block.axes, *offsets.values()), bindings=(*block.bindings, *lows))
