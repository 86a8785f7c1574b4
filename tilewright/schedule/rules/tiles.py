"""Register tiles: a reduction whose results stay in registers while it runs, and are finished on the way out.

Covers matrix products, convolutions, depthwise convolutions, pooling and reductions over outer axes. The consumer (the
epilogue, or a copy made by ``cache_write``) is tiled ``rows x vectors``, the reduction moves into the tile as a local
buffer, its own loops go outside the tile's, rows and vectors are written out. Source of the form: Goto and van de
Geijn (2008), and Van Zee's BLIS, for the order of loops.

Decisions: ``<acc>.rows`` (rows of the tile), ``<acc>.order`` (which operand stays in cache), ``<acc>.unroll`` (steps of
the innermost reduction loop written out), ``<stage>.at`` (where the padded or packed operand is computed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import FloorDiv, IntExpr, Mod, as_var
from tilewright.core.target import Target
from tilewright.schedule.primitives.sample_compute_location import ROOT
from tilewright.schedule.rules.ahead import fetch_ahead
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_spatial,
    loops_of,
    nanoseconds,
    reduce_loops,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import is_worth_spreading, parallelize
from tilewright.schedule.rules.spatial import peel_if_ragged, vectorize_inner
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_buffer
from tilewright.tensor_ir.ir import Block, loads

_UNROLLS = (1, 2, 4)
_ORDERS = ("columns", "rows")
_LATENCY, _PANEL_READ = 4, 0.3
_TALL = 8
_UNKNOWN = 64


@dataclass(frozen=True, slots=True)
class TileAxes:
    """Loops of the consumer by role. ``rows`` and ``batch`` outermost first; ``columns`` becomes vectors.

    ``panel``: columns that one packed panel holds (the accumulator's last extent), None if it is not packed.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: str
    panel: int | None


def tile_axes(s: Schedule, reduction: str, consumer: str) -> TileAxes | None:
    """How the consumer's loops map onto the accumulator's axes; None if they do not map one to one."""
    acc = find_block(s.func, reduction)
    user = find_block(s.func, consumer)
    env = block_environment(user)
    reads = {x.indices for x in loads(user.value) if x.buffer == acc.buffer}
    if len(reads) != 1:
        return None
    index = [i.substitute(env) for i in next(iter(reads))]
    names = [x.var for x in loops_of(s.func, consumer)]
    width = find_buffer(s.func, acc.buffer).shape[-1] if index else None
    free = [i.free_vars() & set(names) for i in index]
    packed = (
        len(index) >= 2 and len(free[-1]) == 1 and free[-2] <= free[-1]
        and is_multiply_add(acc) and width is not None and _is_panel(index[-2], index[-1], width)
    )  # fmt: skip
    if packed and width is not None:
        (columns,) = free[-1]
        panel, rest = width.value(), free[:-2]
    else:
        plain = as_var(index[-1]) if index else None
        if plain is None:
            return None
        columns, panel, rest = plain, None, free[:-1]
    if any(columns in f for f in rest):
        return None
    rows = tuple(n for n in names if rest and n in rest[-1])
    return TileAxes(tuple(n for n in names if n not in (*rows, columns)), rows, columns, panel)


def _is_panel(outer: IntExpr, inner: IntExpr, width: IntExpr) -> bool:
    """True if the last two indices are ``c // width`` and ``c % width`` of one expression."""
    joined = outer * width + inner
    return width.is_const and not joined.is_const and not any(isinstance(a, (FloorDiv, Mod)) for a in joined.atoms())


def try_tile(s: Schedule, reduction: str, consumer: str, target: Target) -> Schedule | None:
    """The schedule with the tile applied to a copy, or None if a step is refused."""
    axes = tile_axes(s, reduction, consumer)
    if axes is None:
        return None
    attempt = s.copy()
    try:
        schedule_tile(attempt, reduction, consumer, axes, target)
    except ScheduleError:
        return None
    return attempt


def schedule_tile(s: Schedule, reduction: str, consumer: str, axes: TileAxes, target: Target) -> None:
    """Tile ``consumer`` and compute ``reduction`` inside its tile."""
    total = nanoseconds(s.func, reduction)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    stages = operand_stages(s, reduction)
    tile = _split(s, reduction, consumer, axes, lanes, target)
    lead = _outer_order(s, reduction, tile, axes, target)
    s.reorder(*lead, *tile.inner)
    s.compute_at(reduction, lead[-1])
    write_reduction(s, reduction, lanes, set(lead))
    write_out(s, consumer, [x.var for x in loops_of(s.func, consumer) if x.var not in lead], lanes)
    _place_stages(s, stages, lead, target)
    ragged = [x for x in tile.row_loops if _is_ragged(s, consumer, x)]
    _spread(s, consumer, lead, ragged, total, target)
    if axes.panel is not None:
        fetch_ahead(s, reduction, target)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The consumer's loops after splitting: all walk over tiles but ``inner``, the tile itself."""

    batch: tuple[str, ...]
    row_loops: tuple[str, ...]
    columns: str
    inner: tuple[str, ...]


def _split(s: Schedule, reduction: str, consumer: str, axes: TileAxes, lanes: int, target: Target) -> _Tile:
    """Split columns into panels and rows into tile heights; a short row takes a second row axis into the tile."""
    s.reorder(*axes.batch, *axes.rows, axes.columns)
    batch, row = list(axes.batch), axes.rows[-1] if axes.rows else None
    if len(axes.rows) > 1:
        row = s.fuse(*axes.rows)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    width = axes.panel or (lanes if (extents[axes.columns] or 2 * lanes) < 2 * lanes else 2 * lanes)
    limit = target.tile_rows(max(1, width // lanes))
    columns, column = s.split(axes.columns, (None, width))
    if row is None:
        return _Tile(tuple(batch), (), columns, (column,))
    height = _decide_height(s, reduction, extents[row], limit)
    over, inside = s.split(row, (None, height))
    last = batch[-1] if batch else None
    if last is not None and height == extents[row] and 2 * height <= limit:
        second = _tile_height(extents[last], limit // height)
        if second > 1:
            outer, second_inside = s.split(last, (None, second))
            return _Tile((*batch[:-1],), (outer, over), columns, (second_inside, inside, column))
    return _Tile(tuple(batch), (over,), columns, (inside, column))


def _decide_height(s: Schedule, reduction: str, extent: int | None, limit: int) -> int:
    """Rows of the tile. A symbolic extent was rounded up to whole tiles of the limit: no choice there."""
    if extent is None:
        return limit
    own = _tile_height(extent, limit)
    candidates = range(1, max(own, min(extent, limit + 2)) + 1)
    return int(s.sample_categorical(f"{reduction}.rows", tuple(candidates), own))


def _tile_height(extent: int | None, limit: int) -> int:
    """The height with the fewest cycles for all rows: a divisor or equal parts if short, else tall tiles and a rest.

    A step of a tile takes a cycle a row, at least the ``_LATENCY`` of a multiply-add, and ``_PANEL_READ`` cycles more
    because the panel is read once a tile.
    """
    if extent is None:
        return limit
    if extent <= limit:
        return max(1, extent)
    parts = -(-extent // limit)
    divisors = [h for h in range(max(1, (2 * limit) // 3), limit + 1) if extent % h == 0]
    even = divisors[-1] if divisors else -(-extent // parts)

    def cycles(height: int) -> float:
        tiles = [height] * (extent // height) + [extent % height] * (extent % height > 0)
        return sum(max(_LATENCY, h) + _PANEL_READ for h in tiles)

    return limit if extent >= _TALL * limit and cycles(limit) < cycles(even) else even


def _outer_order(s: Schedule, reduction: str, tile: _Tile, axes: TileAxes, target: Target) -> list[str]:
    """The loops around the tile: columns outside rows where the panel should stay in cache, else inside.

    By default the order with less traffic of the operands that do not fit in half of the second-level cache.
    """
    batch, rows, columns = tile.batch, tile.row_loops, tile.columns
    if axes.panel is None or not rows:
        return [*batch, *rows, columns]
    block = find_block(s.func, reduction)
    operands = list(dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer != block.buffer))
    own = "columns"
    if len(operands) == 2:
        source, weight = (_bytes(s, b) for b in operands)
        loops = {x.var: x.extent.value() or 8 for b in all_blocks(s.func) for x in loops_of(s.func, b.name)}
        cache = target.l2_bytes // 2
        columns_first = weight + source * (loops[columns] if source > cache else 1)
        rows_first = source + weight * (loops[rows[-1]] if weight > cache else 1)
        own = "columns" if columns_first <= rows_first else "rows"
    shared = any(b in batch for b in _loops_indexing(s, reduction, operands[-1:]))
    order = str(s.sample_categorical(f"{reduction}.order", _ORDERS, own))
    if shared:  # a product a batch element: its panels are not reused outside it
        return [*batch, columns, *rows] if order == "columns" else [*batch, *rows, columns]
    return [columns, *batch, *rows] if order == "columns" else [*batch, *rows, columns]


def _loops_indexing(s: Schedule, reduction: str, operands: Sequence[str]) -> set[str]:
    """Names of the consumer-level loops over which an operand's packed panels vary, matched through shared axes."""
    block = find_block(s.func, reduction)
    used = {v for x in loads(block.value) if x.buffer in operands for i in x.indices for v in i.free_vars()}
    out: set[str] = set()
    for user in consumers(s.func, block.buffer):
        env = block_environment(user)
        for x in loads(user.value):
            if x.buffer == block.buffer:
                for axis, index in zip(block.axes, x.indices, strict=False):
                    if axis.name in used:
                        out |= index.substitute(env).free_vars()
    return out


def _bytes(s: Schedule, buffer: str) -> int:
    """Size of a buffer; its symbolic dims together count as ``_UNKNOWN`` (a batch of 1, or a short sequence)."""
    b = find_buffer(s.func, buffer)
    sizes = [d.value() for d in b.shape]
    known = prod(x for x in sizes if x is not None)
    return b.dtype.itemsize * known * (_UNKNOWN if None in sizes else 1)


def write_reduction(s: Schedule, reduction: str, lanes: int, around: set[str]) -> None:
    """Inside the tile: reduction loops outermost, then rows written out, then vectors; the initial values before."""
    steps = reduce_loops(s.func, reduction)
    tile = [x.var for x in loops_of(s.func, reduction) if x.var not in steps and x.var not in around]
    s.reorder(*steps, *tile)
    init = s.decompose_reduction(reduction, steps[0])
    extent = {x.var: x.extent.value() for x in loops_of(s.func, reduction)}[steps[-1]]
    options = tuple(u for u in _UNROLLS if u == 1 or (extent is not None and extent % u == 0))
    if len(options) > 1 and (factor := int(s.sample_categorical(f"{reduction}.unroll", options, 1))) > 1:
        s.unroll(s.split(steps[-1], (None, factor))[1])
    write_out(s, reduction, tile, lanes)
    write_out(s, init, [x.var for x in loops_of(s.func, init) if x.var not in around], lanes)


def write_out(s: Schedule, block: str, loops: Sequence[str], lanes: int) -> None:
    """Vector lanes from the innermost loop, everything else unrolled."""
    if not loops:
        return
    *outer, last = loops
    extent = next(x.extent.value() for x in loops_of(s.func, block) if x.var == last)
    if extent is None or extent > lanes:
        middle, last = s.split(last, (None, lanes))
        outer.append(middle)
    if extent != 1:
        s.vectorize(last)
    for name in outer:
        s.unroll(name)


def operand_stages(s: Schedule, reduction: str) -> list[str]:
    """Stages at the root that only the reduction reads: the padded or packed operand."""
    block = find_block(s.func, reduction)
    stages = {b.buffer: b for b in all_blocks(s.func) if is_spatial(b)}
    found: list[Block] = [stages[x.buffer] for x in loads(block.value) if x.buffer in stages]
    return [b.name for b in found if [u.name for u in consumers(s.func, b.buffer)] == [reduction]]


def _place_stages(s: Schedule, stages: Sequence[str], lead: Sequence[str], target: Target) -> None:
    """Compute an operand's stage at one of the loops around the tile instead of at the root, if so decided."""
    for stage in dict.fromkeys(stages):
        options = tuple(lead[:-1])
        if not options:
            continue
        where = s.sample_compute_location(stage, options)
        if where != ROOT:
            s.compute_at(stage, where)
            vectorize_inner(s, stage, lead.index(where) + 1, target)


def _is_ragged(s: Schedule, block: str, loop: str) -> bool:
    """True if some loop inside ``loop`` has a shorter extent in its last iteration, and that extent is a constant."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    return loops[loop].extent.is_const and any(loop in x.extent.free_vars() for x in loops.values())


def _spread(s: Schedule, block: str, lead: list[str], ragged: list[str], total: float | None, target: Target) -> None:
    """Threads over the loops outside the tile; partial tiles peeled off so that whole ones run without tests."""
    free = [x for x in lead if x not in ragged]
    if not ragged or not is_worth_spreading(total, target) or _count(s, block, free) >= 8 * target.threads:
        if is_worth_spreading(total, target) and lead != [*free, *ragged]:
            s.reorder(*free, *ragged)
        parallelize(s, block, free, total, target)
        for name in ragged:
            peel_if_ragged(s, block, name)
        return
    s.reorder(*ragged, *free)
    before = {b.name for b in all_blocks(s.func)}
    s.peel(ragged[0])
    buffer = find_block(s.func, block).buffer
    tails = [b.name for b in all_blocks(s.func) if b.name not in before and b.buffer == buffer]
    for name in (block, *tails):
        loops = [x.var for x in loops_of(s.func, name)][: len(lead)]
        if lead[0] not in ragged:
            loops = [*loops[len(ragged) :], *loops[: len(ragged)]]
            s.reorder(*loops)
        parallelize(s, name, loops, total, target)


def _count(s: Schedule, block: str, loops: Sequence[str]) -> int:
    """Iterations of ``loops`` together; very many if one is symbolic."""
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    total = 1
    for name in loops:
        extent = extents[name]
        if extent is None:
            return 1 << 30
        total *= extent
    return total
