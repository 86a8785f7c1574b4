"""Products in matrix tiles whose sums are scaled group by group: weights of few bits, a scale for each block of them.

The formulas are those of :func:`tilewright.lowering.geometry.tile_sums.grouped_sums`. A row tile goes through the
groups of a panel; the sums of one leave the tiles, and are scaled and added up in vectors::

    for ic in m / mc:                       # blocks of row tiles, whose A stays in the second-level cache
        for jr in n / nr:                   # threads share these loops
            panel[g, k, nr] = weight        # as the tiles take it, for this panel; or a group at a time
            for ir in mc / mr:
                for g in groups:
                    group[mr, nr] = sum     # the intrinsic
                    acc[mr, nr] += group * scale[g, nr]
                C[...] = f(acc[i, j])       # a row after the other, in vectors

Decisions, of ``<acc>`` the sum over groups: ``.row_block`` (mc, in tiles), ``<stage>.at`` (the loop at which A's blocks
and B's panels are made), and those of :mod:`tilewright.schedule.rules.parallelism`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import vectorize_inner
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_reduction,
    is_spatial,
    nanoseconds,
    reduce_loops,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.tiling.matrix_tiles import finish_there_or_copy, split_blocks, tiled_product
from tilewright.schedule.rules.tiling.shifted_tiles import loaded_factors
from tilewright.schedule.rules.tiling.tile_size import TileLoops
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_buffer, find_loop
from tilewright.tensor_ir.intrinsics import SIDE, TileProduct
from tilewright.tensor_ir.ir import Func, loads

_BLOCK_RANK = 6
"""Dimensions of A in blocks: the blocks, groups, parts and steps, rows and words of a step."""

_PART_BYTES, _WORD_BYTES = 2, 4
"""Of a part of an element of A, which is made once, and of a word of them."""


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """``reduction`` adds up scaled sums, ``sums`` is the product that makes them, by an intrinsic, from the buffers of
    A's blocks and B's panels."""

    reduction: str
    sums: str
    by: TileProduct
    left: str
    right: str


def grouped_product(func: Func, reduction: str) -> GroupedProduct | None:
    """What ``reduction`` computes, if it has this form."""
    block = find_block(func, reduction)
    if not is_multiply_add(block):
        return None
    factors = loaded_factors(block)
    if factors is None:
        return None
    sums = factors[1].buffer
    of_group = next((b.name for b in all_blocks(func) if b.buffer == sums and is_reduction(b)), None)
    found = None if of_group is None else tiled_product(func, of_group, "parts")
    if found is None or len(find_buffer(func, found.left).shape) != _BLOCK_RANK:
        return None
    return GroupedProduct(reduction, found.reduction, found.by, found.left, found.right)


def _matches(s: Schedule, block: str, target: Target) -> Iterator[GroupedProduct]:
    """The products of this form that ``block`` finishes, or itself."""
    found = find_block(s.func, block)
    candidates = reduction_feeders(s, block) if is_spatial(found) else [block] if is_reduction(found) else []
    for name in candidates:
        product = grouped_product(s.func, name)
        if product is not None and has_matrix_tiles(target, product.by.product):
            yield product


def stages_for_groups(func: Func) -> frozenset[str]:
    """The stages that make A's blocks and B's panels, which stay stages of their own, and what blocks are made of."""
    found = [g for b in all_blocks(func) if is_reduction(b) and (g := grouped_product(func, b.name)) is not None]
    made = {b.buffer: b for b in all_blocks(func) if is_spatial(b)}
    own = {made[n].name for g in found for n in (g.left, g.right) if n in made}
    parts = {x.buffer for g in found if g.left in made for x in loads(made[g.left].value)} & made.keys()
    return frozenset(own | {made[n].name for n in parts if find_buffer(func, n).dtype.itemsize == _PART_BYTES})


def _apply(s: Schedule, block: str, match: GroupedProduct, target: Target) -> None:
    finish_there_or_copy(s, block, match.reduction, lambda a, consumer: _finish(a, consumer, match, target), target)


def _finish(s: Schedule, consumer: str, match: GroupedProduct, target: Target) -> None:
    """Compute the sums where ``consumer`` reads them."""
    acc, by = match.reduction, match.by
    total = nanoseconds(s.func, match.sums, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, acc), widest_itemsize(s.func, consumer)))
    tile = split_blocks(s, acc, consumer, by)
    lead, columns = _order(s, match, tile, target)
    s.reorder(*lead, *tile.inner)
    s.compute_at(acc, lead[-1], whole=True, multiple=SIDE * by.rows)
    (over,) = reduce_loops(s.func, acc)
    inside = [x for x in s.loops(acc) if x not in lead and x != over]
    s.reorder(over, *inside)
    init = s.decompose_reduction(acc, over)
    s.compute_at(match.sums, over, whole=True, multiple=SIDE * by.rows)
    s.tensorize(next(x for x in s.loops(match.sums) if x not in lead and x != over), by.name)
    write_out(s, acc, s.loops(acc)[-1:], lanes)
    write_out(s, init, s.loops(init)[-1:], lanes)
    write_out(s, consumer, tile.inner[1:], lanes)
    for name, own in ((match.left, ROOT), (match.right, over if columns == lead[-1] else columns)):
        _place(s, name, [*lead, *([over] if name == match.right else ())], own, target)
    parallelize(s, consumer, lead, None if total is None else total * share_of_tiles(target, by.product), target)


def _order(s: Schedule, match: GroupedProduct, tile: TileLoops, target: Target) -> tuple[list[str], str]:
    """The loops around a block, outermost first, and that over columns.

    As many row tiles make a block as have all of A in the second-level cache, a power of two; all of them, if these do.
    A panel is made once for each block. One of a single tile makes a group of it at a time; so do panels that have no
    local buffer."""
    (rows,), (columns,) = tile.row_loops, tile.columns
    tiles = find_loop(s.func, rows).extent.value()
    _, groups, parts, steps, height, _ = (upper_bound(d, {}) or 1 for d in find_buffer(s.func, match.left).shape)
    step = _WORD_BYTES * groups * steps * SIDE
    panel, block = step * SIDE * match.by.columns, step * height * parts
    sizes = [n for n in (1, 2, 4, 8, 16) if tiles is None or n < tiles] + ([] if tiles is None else [tiles])
    if panel > LOCAL_BYTES:
        sizes = [1]
    fitting = [n for n in sizes if n * block <= (target.filling_bytes if n == tiles else target.resident_bytes)]
    size = choose_number(s, f"{match.reduction}.row_block", sizes, max(fitting, default=1))
    if size == tiles and tiles > 1:
        return [*tile.batch, columns, rows], columns
    if size == 1:
        return [*tile.batch, rows, columns], columns
    over, inside = s.split(rows, (None, size))
    return [*tile.batch, over, columns, inside], columns


def _place(s: Schedule, made: str, lead: list[str], own: str, target: Target) -> None:
    """Make the buffer ``made`` at a loop of ``lead``, or before all."""
    for stage in [b.name for b in all_blocks(s.func) if b.buffer == made]:
        where = s.sample_compute_location(stage, lead, own)
        if where != ROOT:
            s.compute_at(stage, where)
            vectorize_inner(s, stage, lead.index(where) + 1, target)


GROUPED_TILES = ScheduleRule("grouped_tiles", _matches, _apply, ("row_block", "at", *SPREAD))
