"""Two products in matrix tiles with row reductions between them (attention), computed at a block of rows.

The nest is that of :mod:`tilewright.schedule.rules.gemm_chain`, with blocks for the tiles of rows::

    for b in batch:                          # heads; threads share this loop
        keys and values as panels of words
        for mo in blocks of rows:
            the block of the first operand
            acc1[32, keys] = sums            # the intrinsic, a panel after the other
            ... rows of the softmax, in vectors, and the block of weights
            for jr in panels:
                acc2[32, nr] = sums          # the intrinsic
                C[...] = f(acc2)

Decision: ``<pack>.at``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import PARTIALS, SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import vectorize_inner
from tilewright.schedule.rules.facts import is_reduction, is_spatial, loops_of, total_nanoseconds, widest_itemsize
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.reductions.row_reduction import feeders_of, vectorize_reduction
from tilewright.schedule.rules.tiling.matrix_tiles import TiledProduct, tiled_product
from tilewright.schedule.rules.tiling.tile_axes import tile_axes
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block
from tilewright.tensor_ir.intrinsics import SIDE


@dataclass(frozen=True, slots=True)
class TileChain:
    """The products, blocks that put their operands into panels, and all others that feed the last, the first product
    among them, producers first."""

    first: TiledProduct
    second: TiledProduct
    packs: tuple[str, ...]
    between: tuple[str, ...]


def _matches(s: Schedule, block: str, target: Target) -> Iterator[TileChain]:
    """The chain that ends in ``block``."""
    if not is_spatial(find_block(s.func, block)):
        return
    feeders = feeders_of(s, block)
    products = [p for f in feeders if is_reduction(find_block(s.func, f)) and (p := tiled_product(s.func, f))]
    if len(products) != 2 or not all(has_matrix_tiles(target, p.by.product) for p in products):
        return
    first, second = products
    users = consumers(s.func, find_block(s.func, second.reduction).buffer)
    rights = {first.right, second.right}
    packs = tuple(f for f in feeders if find_block(s.func, f).buffer in rights)
    own = {second.reduction, *packs}
    if [b.name for b in users] == [block] and len(packs) == len(rights):
        yield TileChain(first, second, packs, tuple(f for f in feeders if f not in own))


def _apply(s: Schedule, consumer: str, chain: TileChain, target: Target) -> None:
    first, second = chain.first.reduction, chain.second.reduction
    by = chain.second.by
    total = total_nanoseconds(s.func, (*chain.between, second), target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in (first, second, consumer)))
    axes = tile_axes(s, second, consumer)
    if axes is None or axes.panel != SIDE * by.columns or len(axes.rows) != 1:
        raise ScheduleError(f"{second}: no block of {consumer}")
    s.reorder(*axes.batch, *axes.rows, axes.columns)
    tile, row = s.split(axes.rows[0], (None, SIDE * by.rows))
    panel, column = s.split(axes.columns, (None, SIDE * by.columns))
    around = [*axes.batch, tile]
    s.reorder(*around, panel, row, column)
    s.compute_at(second, panel, whole=True)
    _tensorize(s, chain.second, {*around, panel})
    for name in reversed(chain.between):
        s.compute_at(name, tile, whole=name == first)
    _tensorize(s, chain.first, set(around))
    for name in chain.between:
        if name == first:
            continue
        if is_reduction(find_block(s.func, name)):
            vectorize_reduction(s, name, target)
        else:
            blocks = find_block(s.func, name).buffer in (chain.first.left, chain.second.left)
            vectorize_inner(s, name, len(around) + (0 if blocks else 1), target)  # a row of the softmax after the other
    write_out(s, consumer, [column], lanes)
    took = None if total is None else total * share_of_tiles(target, by.product)
    parallelize(s, consumer, axes.batch or (tile,), took, target)
    _place_packs(s, chain.packs, consumer, tile, target)


def _place_packs(s: Schedule, packs: Sequence[str], consumer: str, tile: str, target: Target) -> None:
    """Pack the keys and values of a batch element in the loop over them, just before the thread that reads them."""
    outer = [x.var for x in loops_of(s.func, consumer)]
    around = outer[: outer.index(tile)]
    for name in packs if around else ():
        if s.sample_compute_location(name, around[-1:], around[-1]) != ROOT:
            s.compute_at(name, around[-1])
            vectorize_inner(s, name, len(around), target)


def _tensorize(s: Schedule, product: TiledProduct, around: set[str]) -> None:
    """Run the sums of a block by the intrinsic, a panel after the other."""
    rows = _loop_of(s, product.reduction, -3, around)
    panels = _loop_of(s, product.reduction, -2, around)
    if panels is not None and rows is not None:
        s.reorder(panels, rows)
    if rows is None:
        raise ScheduleError(f"{product.reduction}: no rows of a block")
    s.tensorize(rows, product.by.name)


def _loop_of(s: Schedule, reduction: str, dimension: int, around: set[str]) -> str | None:
    """The loop inside ``around`` over a dimension of the sums, if it has one."""
    block = find_block(s.func, reduction)
    bound = block.indices[dimension].substitute(block_environment(block)).free_vars()
    return next((x.var for x in loops_of(s.func, reduction) if x.var in bound and x.var not in around), None)


TILE_CHAIN = ScheduleRule("tile_chain", _matches, _apply, ("at", *PARTIALS, *SPREAD))
