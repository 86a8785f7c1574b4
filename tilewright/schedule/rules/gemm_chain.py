"""Two products with row reductions between them (attention): everything computed at a tile of rows of the second.

``out[m, n] = f(sum over t of g(sum over d of Q[m, d] * K[t, d])[m, t] * V[t, n])`` where ``g`` reduces along t, as a
softmax does. A tile of rows makes its own rows of the first product in a local buffer that stays in cache, reduces them
and multiplies them with V, so that the matrix between the products never goes to memory (the idea of FlashAttention,
Dao et al., 2022, with whole rows instead of blocks of t). Both products use the register tiles of
:mod:`tilewright.schedule.rules.tiling.register_tiles`; their packed operands are computed in the loop over batch
elements, or before, at the root. Decision: ``<pack>.at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.core.arith.expr import product
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import PARTIALS, SPREAD, VECTORS, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged, vectorize_inner
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_reduction,
    is_spatial,
    loops_of,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.reductions.row_reduction import feeders_of, vectorize_reduction
from tilewright.schedule.rules.tiling.tile_axes import TileAxes, tile_axes
from tilewright.schedule.rules.tiling.write_tile import operand_stages, write_out, write_reduction
from tilewright.schedule.rules.transpose import transpose_squares
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers, find_block, find_buffer, find_loop
from tilewright.tensor_ir.ir import loads


@dataclass(frozen=True, slots=True)
class Chain:
    """Names of blocks: the products, the stage that finishes the first, the row stages after it, packed operands."""

    first: str
    finish: str
    between: tuple[str, ...]
    second: str
    packs: tuple[str, ...]


def find_chain(s: Schedule, consumer: str) -> Chain | None:
    """The chain that ends in ``consumer``, or None."""
    feeders = feeders_of(s, consumer)
    products = [f for f in feeders if is_multiply_add(find_block(s.func, f))]
    if len(products) != 2 or not is_spatial(find_block(s.func, consumer)):
        return None
    first, second = products
    finish = [b.name for b in consumers(s.func, find_block(s.func, first).buffer)]
    if len(finish) != 1 or [b.name for b in consumers(s.func, find_block(s.func, second).buffer)] != [consumer]:
        return None
    packs = tuple(_packs(s, first, second))
    between = tuple(f for f in feeders if f not in {first, second, finish[0], *packs})
    if finish[0] not in feeders or not any(is_reduction(find_block(s.func, b)) for b in between):
        return None
    return Chain(first, finish[0], between, second, packs)


def _packs(s: Schedule, first: str, second: str) -> list[str]:
    """The operands' stages that do not come from the first product, each once."""
    reached = {find_block(s.func, first).buffer}
    for b in all_blocks(s.func):
        if any(x.buffer in reached for x in loads(b.value)):
            reached.add(b.buffer)
    stages = dict.fromkeys((*operand_stages(s, first), *operand_stages(s, second)))
    return [b for b in stages if find_block(s.func, b).buffer not in reached]


def _matches(s: Schedule, block: str, target: Target) -> list[tuple[Chain, TileAxes, int]]:
    """The chain that ends in ``block``, the axes of its tiles and the width of a panel."""
    chain = find_chain(s, block) if is_spatial(find_block(s.func, block)) else None
    axes = None if chain is None else tile_axes(s, chain.second, block)
    if chain is None or axes is None or axes.panel is None or len(axes.rows) != 1:
        return []
    return [(chain, axes, axes.panel)]


def _apply(s: Schedule, block: str, match: tuple[Chain, TileAxes, int], target: Target) -> None:
    """Compute the chain tile by tile."""
    (chain, axes, width), consumer = match, block
    total = total_nanoseconds(s.func, (chain.first, *chain.between, chain.second), target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in (chain.first, chain.second, consumer)))
    (row,) = axes.rows
    extent = find_loop(s.func, row).extent.value()
    limit = target.tile_rows(max(1, width // lanes))
    s.reorder(*axes.batch, row, axes.columns)
    tile, row = s.split(row, (None, limit if extent is None else max(1, min(limit, extent))))
    panel, column = s.split(axes.columns, (None, width))
    around = [*axes.batch, tile]
    s.reorder(*around, panel, row, column)
    s.compute_at(chain.second, panel, whole=True)
    for name in reversed((chain.finish, *chain.between)):
        s.compute_at(name, tile)
    _finish_first(s, chain, around, lanes)
    for name in chain.between:
        if is_reduction(find_block(s.func, name)):
            vectorize_reduction(s, name, target)
        else:
            vectorize_inner(s, name, len(around) + 1, target)
    write_reduction(s, chain.second, lanes, {*around, panel})
    write_out(s, consumer, [row, column], lanes)
    parallelize(s, consumer, axes.batch or (tile,), total, target)
    _place_packs(s, chain.packs, consumer, tile, target)
    if extent is None:
        s.attempt(lambda a: a.peel(tile))
    else:
        peel_if_ragged(s, consumer, tile)


def _place_packs(s: Schedule, packs: Sequence[str], consumer: str, tile: str, target: Target) -> None:
    """Pack the operands of a batch element in the loop over them, just before the thread that reads them does.

    Not where they are too large together to stay in the second-level cache until then, and to be local buffers.
    """
    outer = [x.var for x in loops_of(s.func, consumer)]
    around = outer[: outer.index(tile)]
    sizes = [_bytes_of_one(s, b) for b in packs]
    if not around or sum(x for x in sizes if x is not None) > target.resident_bytes:
        return
    for name in packs:
        inside = partial(_pack_inside, block=name, loop=around[-1], above=len(around), target=target)
        if s.copy().attempt(inside) and s.sample_compute_location(name, around[-1:], around[-1]) != ROOT:
            inside(s)


def _bytes_of_one(s: Schedule, block: str) -> int | None:
    """Bytes of the packed operand of one batch element, None if symbolic."""
    buffer = find_buffer(s.func, find_block(s.func, block).buffer)
    count = product(buffer.shape[-3:]).value()
    return None if count is None else count * buffer.dtype.itemsize


def _pack_inside(s: Schedule, block: str, loop: str, above: int, target: Target) -> None:
    s.compute_at(block, loop)
    own = loops_of(s.func, block)[above:]
    if own:
        s.attempt(lambda a: a.peel(own[0].var))  # over panels, of which the last may not be full
    if not s.attempt(lambda a: transpose_squares(a, block, target, above)):
        vectorize_inner(s, block, above, target)


def _finish_first(s: Schedule, chain: Chain, around: list[str], lanes: int) -> None:
    """Register tiles for the first product, finished in the local rows of its consumer."""
    axes = tile_axes(s, chain.first, chain.finish)
    own = [x.var for x in loops_of(s.func, chain.finish) if x.var not in around]
    if axes is None or axes.panel is None or own[-1:] != [axes.columns]:
        raise ScheduleError(f"{chain.first}: no tile of {chain.finish}")
    panel, column = s.split(axes.columns, (None, axes.panel))
    s.reorder(panel, *own[:-1], column)
    s.compute_at(chain.first, panel, whole=True)
    write_reduction(s, chain.first, lanes, {*around, panel})
    write_out(s, chain.finish, [*own[:-1], column], lanes)


GEMM_CHAIN = ScheduleRule("gemm_chain", _matches, _apply, ("squares", *PARTIALS, *VECTORS, *WRITE, *SPREAD))
