"""Products in matrix tiles: whole sums of a block of results in one call of a tensor intrinsic.

The formulas put operands and sums into such blocks (:mod:`tilewright.lowering.geometry.tile_sums`). The nest is that of
:mod:`.register_tiles`, with the block for the register tile and the intrinsic for the loops inside::

    for ic in m / mc:                   # blocks of row tiles; threads share this loop
        A's blocks of these rows        # put together where they are read from a near cache
        for jr in n / nr:               # panels
            for ir in mc / mr:          # row tiles
                acc[mr, nr] = sum       # the intrinsic
                C[...] = f(acc[i, j])   # a row after the other, in vectors

Where there are few row tiles the threads share the panels, and all of A is put together first.

Decisions besides those of :mod:`.cache_blocking` and :mod:`tilewright.schedule.rules.parallelism`: ``<stage>.at``, the
loop at which A's blocks are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import vectorize_inner
from tilewright.schedule.rules.facts import (
    all_blocks,
    buffer_bytes,
    is_reduction,
    is_spatial,
    loops_of,
    nanoseconds,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.tiling.cache_blocking import order_of_loops
from tilewright.schedule.rules.tiling.register_tiles import copied
from tilewright.schedule.rules.tiling.tile_axes import tile_axes
from tilewright.schedule.rules.tiling.tile_size import TileLoops
from tilewright.schedule.rules.tiling.write_tile import operand_stages, write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_buffer
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct
from tilewright.tensor_ir.ir import Func, Load, Op

_BLOCKS = 4
"""Blocks of rows for each thread, at least."""

_BLOCK_RANK = 4
"""Dimensions of A in blocks: the blocks, their steps, and rows and words of a step."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A sum of products, the intrinsic that computes a block of it, and the buffers of A's blocks and B's panels."""

    reduction: str
    by: TileProduct
    left: str
    right: str


def _matches(s: Schedule, block: str, target: Target) -> Iterator[_Product]:
    """The products for matrix tiles that ``block`` finishes, or itself."""
    found = find_block(s.func, block)
    candidates = reduction_feeders(s, block) if is_spatial(found) else [block] if is_reduction(found) else []
    for name in candidates:
        product = _product(s.func, name)
        if product is not None and has_matrix_tiles(target, product.by.product):
            yield product


def blocks_for_tiles(func: Func) -> frozenset[str]:
    """The stages that put an operand into blocks, which stay stages of their own."""
    products = (_product(func, b.name) for b in all_blocks(func) if is_reduction(b))
    left = {p.left for p in products if p is not None}
    return frozenset(b.name for b in all_blocks(func) if b.buffer in left)


def _product(func: Func, reduction: str) -> _Product | None:
    block = find_block(func, reduction)
    step = block.value.args[1] if isinstance(block.value, Op) and len(block.value.args) == 2 else None
    if not isinstance(step, Op) or len(step.args) != 2 or not all(isinstance(x, Load) for x in step.args):
        return None
    left, right = step.args
    assert isinstance(left, Load)
    assert isinstance(right, Load)
    blocks, sums = find_buffer(func, left.buffer), find_buffer(func, block.buffer)
    if len(blocks.shape) != _BLOCK_RANK or not sums.shape:
        return None
    height, side, width = (d.value() for d in (*blocks.shape[-2:], sums.shape[-1]))
    if side != SIDE or height is None or width is None:
        return None
    wanted = TileProduct(step.name, str(sums.dtype), height // SIDE, width // SIDE)
    known = TILE_PRODUCTS.get(wanted.name) == wanted
    return _Product(reduction, wanted, left.buffer, right.buffer) if known else None


def _apply(s: Schedule, block: str, match: _Product, target: Target) -> None:
    reduction, by = match.reduction, match.by
    consumer = block
    if reduction == block:
        consumer = copied(s, reduction)
        s.fuse(*s.loops(consumer)[-2:])
    total = nanoseconds(s.func, reduction, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    stages = operand_stages(s, reduction)
    tile = _split(s, reduction, consumer, by)
    tiles = next(x.extent.value() for x in loops_of(s.func, consumer) if x.var == tile.row_loops[0])
    own, block_size = _own_order(s, match, tiles, target)
    even = tiles is not None and tiles % block_size == 0
    order = order_of_loops(s, reduction, tile, own, block_size, shared=False, whole=even)
    lead = order.loops
    s.reorder(*lead, *tile.inner)
    s.compute_at(reduction, lead[-1], whole=True)
    s.tensorize(next(x for x in s.loops(reduction) if x not in lead), by.name)
    write_out(s, consumer, tile.inner[1:], lanes)
    _place(s, stages, lead, order.rows, target)
    parallelize(s, consumer, lead, None if total is None else total * share_of_tiles(target, by.product), target)


def _split(s: Schedule, reduction: str, consumer: str, by: TileProduct) -> TileLoops:
    """The consumer's loops over blocks, and those in a block."""
    height, width = SIDE * by.rows, SIDE * by.columns
    axes = tile_axes(s, reduction, consumer)
    if axes is None or axes.panel != width or not axes.rows:
        raise ScheduleError(f"{reduction}: no block of {consumer}")
    s.reorder(*axes.batch, *axes.rows, axes.columns)
    row = s.fuse(*axes.rows) if len(axes.rows) > 1 else axes.rows[0]
    over_rows, inside = s.split(row, (None, height))
    over_columns, column = s.split(axes.columns, (None, width))
    return TileLoops(axes.batch, (over_rows,), (over_columns,), (inside, column))


def _own_order(s: Schedule, match: _Product, tiles: int | None, target: Target) -> tuple[str, int]:
    """The order of the loops, and how many of ``tiles``, the row tiles, are in a block; each thread has a few blocks.

    Where B stays in the second-level cache, as many as have a local buffer: one for all of A would go to memory and
    back. Where it does not, as many as stay there with a panel, which comes from farther away once for all of them.
    """
    size, panels = (buffer_bytes(find_buffer(s.func, b)) for b in (match.left, match.right))
    if tiles is None or size is None or panels is None:
        return "rows", 1
    room = LOCAL_BYTES if panels <= target.resident_bytes else target.resident_bytes
    if tiles < 2 * target.threads:
        return "columns", 1
    own = 1
    while tiles >= 2 * own * _BLOCKS * target.threads and 2 * own * size <= tiles * room:
        own *= 2
    return "rows", own


def _place(s: Schedule, stages: Sequence[str], lead: Sequence[str], rows: Sequence[str], target: Target) -> None:
    """Make A's blocks at the loop over blocks of rows, if that is outermost; else before all."""
    steps = {x.var: x.extent.value() for n in s.blocks() for x in loops_of(s.func, n)}
    first = next((x for x in lead if steps[x] != 1), lead[0])
    for stage in stages:
        where = s.sample_compute_location(stage, lead, first if first in rows else ROOT)
        if where != ROOT:
            s.compute_at(stage, where)
            vectorize_inner(s, stage, lead.index(where) + 1, target)


MATRIX_TILES = ScheduleRule(
    "matrix_tiles", _matches, _apply, ("order", "inner", "row_block", "column_block", "at", *SPREAD)
)
