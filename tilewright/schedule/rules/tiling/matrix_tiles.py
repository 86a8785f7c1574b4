"""Products in matrix tiles: whole sums of a block of results in one call of a tensor intrinsic.

The formulas put operands and sums into such blocks (:mod:`tilewright.lowering.geometry.tile_sums`). The nest is that of
:mod:`.register_tiles`, with the block for the register tile and the intrinsic for the loops inside::

    for ic in m / mc:                   # blocks of row tiles; threads share this loop
        A's blocks of these rows        # put together where they are read from a near cache
        for jr in n / nr:               # panels
            for ir in mc / mr:          # row tiles
                acc[mr, nr] = sum       # the intrinsic
                C[...] = f(acc[i, j])   # a row after the other, in vectors

Where there are few row tiles the threads share the panels, and all of A is put together first. Row tiles that read the
same panel take some steps of their sums in turns (:mod:`.steps_in_turns`), where a panel is too long for the
first-level cache. As many have their sums together where these stay in that cache, so that what finishes the first ones
may run while the next ones are computed (hint ``trails``).

Decisions besides those of :mod:`.cache_blocking`, :mod:`.steps_in_turns` and
:mod:`tilewright.schedule.rules.parallelism`: ``<stage>.at``, the loop at which A's blocks are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import product
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import schedule_elementwise, vectorize_inner
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
from tilewright.schedule.rules.prefetch import fetch_panels
from tilewright.schedule.rules.tiling.cache_blocking import order_of_loops, read_panels_once
from tilewright.schedule.rules.tiling.register_tiles import copied
from tilewright.schedule.rules.tiling.shifted_tiles import shifted_product, tile_factors
from tilewright.schedule.rules.tiling.steps_in_turns import (
    choose_steps,
    choose_streamed,
    passing,
    stream,
    sum_in_turns,
    tiles_in_turns,
)
from tilewright.schedule.rules.tiling.tile_axes import tile_axes
from tilewright.schedule.rules.tiling.tile_size import TileLoops
from tilewright.schedule.rules.tiling.write_tile import operand_stages, write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer, find_loop
from tilewright.tensor_ir.hints import TRAILED_BLOCKS
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, Form, TileProduct
from tilewright.tensor_ir.ir import Buffer, Func, loads

_BLOCKS = 4
"""Blocks of rows, or panels, for each thread, at least."""
_FEW_BLOCKS = 2
"""The same where each block reads all panels from far away."""

_BLOCK_RANK = 4
"""Dimensions of A in blocks, at least: the blocks, their steps, and rows and words of a step."""

_AGAIN = 1.25
"""Times that blocks have what a stage makes, from which on it is made once: they have it again for each tap, and not
only for rows past the end."""


@dataclass(frozen=True, slots=True)
class TiledProduct:
    """A sum of products, the intrinsic that computes a block of it, and the buffers of A's blocks and B's panels."""

    reduction: str
    by: TileProduct
    left: str
    right: str


def _matches(s: Schedule, block: str, target: Target) -> Iterator[TiledProduct]:
    """The products for matrix tiles that ``block`` finishes, or itself."""
    found = find_block(s.func, block)
    candidates = reduction_feeders(s, block) if is_spatial(found) else [block] if is_reduction(found) else []
    for name in candidates:
        product = tiled_product(s.func, name)
        if product is not None and has_matrix_tiles(target, product.by.product):
            yield product


def blocks_for_tiles(func: Func) -> frozenset[str]:
    """The stages that put an operand into blocks or an image into words, which stay stages of their own, and those that
    make what a block has several times."""
    reductions = [b.name for b in all_blocks(func) if is_reduction(b)]
    left = {p.left for name in reductions if (p := tiled_product(func, name)) is not None}
    image = {i.image for name in reductions if (i := shifted_product(func, name)) is not None}
    made = {b.buffer: b for b in all_blocks(func) if is_spatial(b)}
    source = {x.buffer for name in left if name in made for x in loads(made[name].value)}
    most = max((buffer_bytes(find_buffer(func, n)) or 0 for n in left), default=0)
    kept = {n for n in source if n in made and _is_kept(find_buffer(func, n), most)}
    return frozenset(made[n].name for n in (*left, *image, *kept) if n in made)


def _is_kept(source: Buffer, most: int) -> bool:
    """True for what blocks of ``most`` bytes have several times, and for rounded numbers: words of them are loaded as
    they lie."""
    return source.dtype.is_narrow_float or _AGAIN * (buffer_bytes(source) or most) <= most


def tiled_product(func: Func, reduction: str, form: Form = "") -> TiledProduct | None:
    """What ``reduction`` computes, if it has this form; with the ``form`` of an intrinsic, one of these."""
    block = find_block(func, reduction)
    factors = tile_factors(block)
    if factors is None:
        return None
    name, split, left, right = factors
    blocks, sums = find_buffer(func, left.buffer), find_buffer(func, block.buffer)
    if len(blocks.shape) < _BLOCK_RANK or not sums.shape:
        return None
    height, side, width = (d.value() for d in (*blocks.shape[-2:], sums.shape[-1]))
    if side != SIDE or height is None or width is None:
        return None
    wanted = TileProduct(name, str(sums.dtype), height // SIDE, width // SIDE, "split" if split else form)
    known = TILE_PRODUCTS.get(wanted.name) == wanted
    return TiledProduct(reduction, wanted, left.buffer, right.buffer) if known else None


def _apply(s: Schedule, block: str, match: TiledProduct, target: Target) -> None:
    finish_there_or_copy(s, block, match.reduction, lambda a, consumer: _finish(a, consumer, match, target), target)


def finish_there_or_copy(
    s: Schedule, block: str, reduction: str, finish: Callable[[Schedule, str], None], target: Target
) -> None:
    """Let ``finish`` compute the sums where ``block`` reads them; where it cannot, or that is the reduction itself, in
    a copy of them, whose panels and columns are one row."""
    if block != reduction and s.attempt(lambda a: finish(a, block)):
        return
    copy = copied(s, reduction)
    s.fuse(*s.loops(copy)[-2:])
    finish(s, copy)
    if block != reduction:
        schedule_elementwise(s, block, target)


def _finish(s: Schedule, consumer: str, match: TiledProduct, target: Target) -> None:
    """Compute the sums where ``consumer`` reads them."""
    reduction, by = match.reduction, match.by
    total = nanoseconds(s.func, reduction, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    stages = operand_stages(s, reduction)
    tile = split_blocks(s, reduction, consumer, by)
    tiles = find_loop(s.func, tile.row_loops[0]).extent.value()
    own, block_size = _own_order(s, match, tiles, target)
    even = tiles is not None and tiles % block_size == 0
    order = order_of_loops(s, reduction, tile, own, block_size, shared=False, whole=even)
    lead = order.loops
    s.reorder(*lead, *tile.inner)
    count = find_loop(s.func, lead[-1]).extent.value()
    inside = tiles_in_turns(count, by, target) if even and lead[-1] in order.rows and lead[-2:-1] else 1
    streamed = choose_streamed(s, reduction, passing(s, reduction, by, order, target))
    depth = choose_steps(s, reduction, by, target, streamed == "rows") if inside > 1 else None
    grouped = depth is not None or inside >= TRAILED_BLOCKS
    if grouped:
        lead = [*lead[:-1], *(s.split(lead[-1], (None, inside))[:1] if inside != count else ())]
    s.compute_at(reduction, lead[-1], whole=True, multiple=SIDE * by.rows)
    block_loop = next(x for x in s.loops(reduction) if x not in lead)
    if grouped:
        over, block_loop = s.split(block_loop, (None, SIDE * by.rows))
        if depth is not None:
            sum_in_turns(s, reduction, over, depth)
    fetch_panels(s, reduction, block_loop, match.right, order.loops[0] in tile.columns, target)
    stream(s, block_loop, streamed, match.left, match.right)
    s.tensorize(block_loop, by.name)
    write_out(s, consumer, tile.inner[1:], lanes)
    _place(s, stages, match, lead, order.rows, target)
    parallelize(s, consumer, lead, None if total is None else total * share_of_tiles(target, by.product), target)


def split_blocks(s: Schedule, reduction: str, consumer: str, by: TileProduct) -> TileLoops:
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


def _own_order(s: Schedule, match: TiledProduct, tiles: int | None, target: Target) -> tuple[str, int]:
    """The order of the loops, and how many of ``tiles``, the row tiles, are in a block; each thread has a few blocks.

    Where B stays in the first-level cache beside a row tile, that one is made there and read at once. Where B stays in
    the second-level cache, as many as have a local buffer: one for all of A would go to memory and back. Where B does
    not but all of A does, B is read once, a panel after the other; so it is where each thread would read more of both
    otherwise. Where neither does, as many as stay there with a panel, which comes from farther away once for all of
    them. Rows of which only a call tells the number are taken to stay there.
    """
    left, right = (find_buffer(s.func, b) for b in (match.left, match.right))
    size, panels = buffer_bytes(left), buffer_bytes(right)
    cache, threads = target.resident_bytes, target.threads
    if tiles is None or size is None or panels is None:
        return "columns" if panels is not None and panels > cache else "rows", 1
    many = (right.shape[0].value() or 1) >= _BLOCKS * threads
    if tiles < 2 * threads or (many and read_panels_once(size, panels, target)):
        return "columns", 1
    if panels + size // tiles <= target.l1_bytes:
        return "rows", 1
    room, blocks = (LOCAL_BYTES, _BLOCKS) if panels <= cache else (cache // 2, _FEW_BLOCKS)
    own = 1
    while tiles >= 2 * own * blocks * target.threads and 2 * own * size <= tiles * room:
        own *= 2
    return "rows", own


def _place(
    s: Schedule, stages: Sequence[str], match: TiledProduct, lead: Sequence[str], rows: Sequence[str], target: Target
) -> None:
    """Make A's blocks at the loop over blocks of rows, if that is outermost; else before all. So are blocks of an open
    number of rows that have each element once: threads share the panels of a few rows, too."""
    blocks = find_buffer(s.func, match.left).shape
    taps = blocks[1 : -4 if match.by.is_split else -3]
    is_open = blocks[0].value() is None and all(d == 1 for d in taps)
    steps = {x.var: x.extent.value() for n in s.blocks() for x in loops_of(s.func, n)}
    first = next((x for x in lead if steps[x] != 1), lead[0])
    for stage in stages:
        where = s.sample_compute_location(stage, lead, first if first in rows and not is_open else ROOT)
        if where != ROOT:
            s.compute_at(stage, where)
            above = lead.index(where) + 1
            if find_block(s.func, stage).buffer == match.left:
                _row_by_row(s, stage, above, target)
            vectorize_inner(s, stage, above, target)


def _row_by_row(s: Schedule, stage: str, above: int, target: Target) -> None:
    """Make the loop over rows of a block one of the outer: what finds a row's pixel is done once for some steps of it,
    of which each is a vector. Steps of a row lie those of a block apart: all of them are taken if the first-level cache
    holds these."""
    block, loops = find_block(s.func, stage), loops_of(s.func, stage)[above:]
    made = find_buffer(s.func, block.buffer)
    step = made.dtype.itemsize * int(product(made.shape[-2:]))
    bound = [i.substitute(block_environment(block)).free_vars() for i in block.indices]
    blocks, rows, words = ([x.var for x in loops if x.var in bound[d]] for d in (0, -2, -1))
    steps = [x for x in loops if x.var not in (*blocks, *rows, *words)]
    few = all(x.extent.is_const for x in steps) and step * int(product(x.extent for x in steps)) <= target.l1_bytes
    before = [] if few else [x.var for x in steps[:-1]]
    s.reorder(*blocks, *before, *rows, *(x.var for x in steps[len(before) :]), *words)


MATRIX_TILES = ScheduleRule(
    "matrix_tiles",
    _matches,
    _apply,
    ("order", "inner", "row_block", "column_block", "at", "ahead", "depth", "stream", *SPREAD),
)
