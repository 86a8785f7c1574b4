"""Register tiles: a reduction whose results stay in registers while it runs, and are finished on the way out.

Covers matrix products, convolutions, depthwise convolutions, pooling and reductions over outer axes. The consumer (the
epilogue, or a copy made by ``cache_write``) is tiled ``rows x vectors``, the reduction moves into the tile as a local
buffer, its own loops go outside the tile's, rows and vectors are written out. Source of the form: Goto and van de
Geijn (2008), and Van Zee's BLIS, for the order of loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import IntExpr, as_var
from tilewright.core.target import Target
from tilewright.schedule.rules.facts import (
    block_accesses,
    is_multiply_add,
    loops_of,
    reduce_loops,
    widest_itemsize,
    work,
)
from tilewright.schedule.rules.parallelism import is_worth_spreading, parallelize
from tilewright.schedule.rules.spatial import peel_if_ragged
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer
from tilewright.tensor_ir.ir import loads

_UNROLL_TAPS = 9


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
    shape = find_buffer(s.func, acc.buffer).shape
    free = [i.free_vars() & set(names) for i in index]
    used: set[str] = set()
    packed = len(index) >= 2 and len(free[-1]) == 1 and free[-2] <= free[-1] and is_multiply_add(acc) and _is_panel(
        index[-2], index[-1], shape[-1]
    )
    if packed:
        (columns,) = free[-1]
        panel = shape[-1].value()
        rest = free[:-2]
    else:
        plain = as_var(index[-1]) if index else None
        if plain is None:
            return None
        columns, panel, rest = plain, None, free[:-1]
    rows: tuple[str, ...] = ()
    if rest:
        rows = tuple(n for n in names if n in rest[-1] and n != columns)
        used = {columns, *rows}
    batch = tuple(n for n in names if n not in used and n != columns)
    if any(columns in f for f in rest):
        return None
    return TileAxes(batch, rows, columns, panel)


def _is_panel(outer: IntExpr, inner: IntExpr, width: IntExpr) -> bool:
    """True if the last two indices are ``c // width`` and ``c % width`` of one expression."""
    return width.value() is not None and (outer * width + inner).terms != () and not any(
        type(a).__name__ in ("FloorDiv", "Mod") for a in (outer * width + inner).atoms()
    )


def schedule_tile(s: Schedule, reduction: str, consumer: str, axes: TileAxes, target: Target) -> None:
    """Tile ``consumer`` and compute ``reduction`` inside its tile."""
    total = work(s.func, reduction)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    rows = axes.rows
    order = [*axes.batch, *rows, axes.columns]
    s.reorder(*order)
    row = s.fuse(*rows) if len(rows) > 1 and _fusable_rows(s, consumer, rows) else (rows[-1] if rows else None)
    batch = [*axes.batch, *(r for r in rows if len(rows) > 1 and r in {x.var for x in loops_of(s.func, consumer)})]
    batch = [b for b in batch if b != row]
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    width = axes.panel or _plain_width(extents[axes.columns], lanes)
    vectors = max(1, width // lanes)
    height = _tile_height(extents[row], target.tile_rows(vectors)) if row is not None else 1
    outer_cols, cols = s.split(axes.columns, (None, width))
    inner: list[str] = [cols]
    second: str | None = None
    tiles: list[str] = []
    if row is not None:
        outer_row, row_in = s.split(row, (None, height))
        inner.insert(0, row_in)
        tiles = [outer_row]
        limit = target.tile_rows(vectors)
        extent = extents[row]
        if extent is not None and 2 * extent <= limit and batch and height == extent:
            last = batch[-1]
            factor = _tile_height(extents.get(last), limit // extent)
            if factor > 1 and last in extents:
                outer_second, second = s.split(last, (None, factor))
                batch[-1] = outer_second
                inner.insert(0, second)
    lead = _outer_order(s, reduction, batch, tiles, outer_cols, axes, target)
    s.reorder(*lead, *inner)
    s.compute_at(reduction, lead[-1])
    _inner_reduction(s, reduction, lanes, set(lead))
    _inner_consumer(s, consumer, lead, lanes)
    ragged = [x for x in (*tiles, *([] if second is None else [batch[-1]])) if _is_ragged(s, consumer, x)]
    _spread(s, consumer, lead, ragged, total, target)


def _is_ragged(s: Schedule, block: str, loop: str) -> bool:
    """True if some loop inside ``loop`` has a shorter extent in its last iteration, and that extent is a constant."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    return loops[loop].extent.is_const and any(loop in x.extent.free_vars() for x in loops.values())


def _spread(s: Schedule, block: str, lead: list[str], ragged: list[str], total: int | None, target: Target) -> None:
    """Threads over the loops outside the tile; partial tiles peeled off so that whole ones run without tests."""
    free = [x for x in lead if x not in ragged]
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    count: int | None = 1
    for name in free:
        count = None if count is None or extents[name] is None else count * extents[name]  # type: ignore[operator]
    if not ragged or count is None or count >= 8 * target.threads or not is_worth_spreading(total, target):
        s.reorder(*free, *ragged) if lead != [*free, *ragged] and is_worth_spreading(total, target) else None
        parallelize(s, block, free, total, target)
        for name in ragged:
            peel_if_ragged(s, block, name)
        return
    s.reorder(*ragged, *free)
    before = set(s.blocks())
    s.peel(ragged[0])
    copies = [b for b in s.blocks() if b not in before and find_block(s.func, b).buffer == find_block(s.func, block).buffer]
    for name in (block, *copies):
        depth = len(ragged) + len(free)
        loops = [x.var for x in loops_of(s.func, name)][:depth]
        tile, others = loops[: len(ragged)], loops[len(ragged) :]
        if lead[0] not in ragged:
            s.reorder(*others, *tile)
            loops = [*others, *tile]
        parallelize(s, name, loops, total, target)


def _fusable_rows(s: Schedule, consumer: str, rows: tuple[str, ...]) -> bool:
    names = [x.var for x in loops_of(s.func, consumer)]
    at = names.index(rows[0])
    return tuple(names[at : at + len(rows)]) == rows


def _plain_width(extent: int | None, lanes: int) -> int:
    """Columns of a tile without packing: up to two vectors."""
    if extent is None or extent >= 2 * lanes:
        return 2 * lanes
    return lanes


def _tile_height(extent: int | None, limit: int) -> int:
    """Rows of the tile: a divisor of the extent near the limit, else equal parts."""
    if extent is None:
        return limit
    if extent <= limit:
        return max(1, extent)
    for h in range(limit, max(1, (2 * limit) // 3) - 1, -1):
        if extent % h == 0:
            return h
    parts = -(-extent // limit)
    return -(-extent // parts)


def _outer_order(
    s: Schedule, reduction: str, batch: list[str], tiles: list[str], columns: str, axes: TileAxes, target: Target
) -> list[str]:
    """The order of the loops around the tile: columns outside rows where the panel should stay in cache, else inside.

    The choice minimises the traffic of the larger operand that does not fit in the second-level cache.
    """
    if axes.panel is None:
        return [*batch, columns, *tiles] if not tiles else [*batch, *tiles, columns]
    sizes = {x.buffer: x for x in block_accesses(s.func, reduction)}
    block = find_block(s.func, reduction)
    loaded = [x.buffer for x in loads(block.value) if x.buffer != block.buffer]
    if len(loaded) < 2:
        return [*batch, columns, *tiles]
    item = sizes[loaded[1]].dtype.itemsize if loaded[1] in sizes else 4
    weight = _size(s, loaded[1]) * item
    source = _size(s, loaded[0]) * item
    column_tiles = _extent(s, axes, columns)
    row_tiles = max(1, _extent(s, axes, tiles[0]) if tiles else 1)
    cache = target.l2_bytes // 2
    columns_outside = weight + source * (column_tiles if source > cache else 1)
    rows_outside = source + weight * (row_tiles if weight > cache else 1)
    packed_batch = len(batch) > 0 and not _is_conv_like(block)
    if packed_batch:
        return [*batch, columns, *tiles]
    if columns_outside <= rows_outside or not tiles:
        return [columns, *batch, *tiles]
    return [*batch, *tiles, columns]


def _is_conv_like(block: object) -> bool:
    return sum(1 for a in block.axes if a.kind == "reduce") > 1  # type: ignore[attr-defined]


def _size(s: Schedule, buffer: str) -> int:
    total = 1
    for d in find_buffer(s.func, buffer).shape:
        total *= v if (v := d.value()) is not None else 64
    return total


def _extent(s: Schedule, axes: TileAxes, loop: str) -> int:
    from_func = {x.var: x.extent.value() for b in s.blocks() for x in loops_of(s.func, b)}
    return from_func.get(loop) or 8


def _rectangular(s: Schedule, consumer: str, lead: list[str]) -> list[str]:
    """The leading loops that may be fused: their extents do not depend on each other."""
    loops = {x.var: x for x in loops_of(s.func, consumer)}
    out: list[str] = []
    for name in lead:
        if loops[name].extent.free_vars() & set(out):
            break
        out.append(name)
    return out


def _inner_reduction(s: Schedule, reduction: str, lanes: int, around: set[str]) -> None:
    """Inside the tile: reduction loops outermost, then rows written out, then vectors; the initial values before."""
    steps = reduce_loops(s.func, reduction)
    tile = [x.var for x in loops_of(s.func, reduction) if x.var not in steps and x.var not in around]
    s.reorder(*steps, *tile)
    init = s.decompose_reduction(reduction, steps[0])
    taps = 1
    loops = {x.var: x.extent.value() for x in loops_of(s.func, reduction)}
    for name in reversed(steps):
        extent = loops[name]
        if extent is None or taps * extent > _UNROLL_TAPS or is_multiply_add(find_block(s.func, reduction)) and (
            len(tile) > 1 and name == steps[-1] and extent > 4
        ):
            break
        taps *= extent
    _write_out(s, reduction, tile, lanes)
    fresh = [x.var for x in loops_of(s.func, init) if x.var not in around]
    _write_out(s, init, fresh, lanes)


def _write_out(s: Schedule, block: str, loops: list[str], lanes: int) -> None:
    """Vector lanes from the innermost loop, everything else unrolled."""
    extents = {x.var: x.extent for x in loops_of(s.func, block)}
    names = list(loops)
    if not names:
        return
    last = names.pop()
    extent = extents[last].value()
    if extent is not None and extent > lanes and extent % lanes == 0:
        middle, last = s.split(last, (None, lanes))
        names.append(middle)
    elif extent is None or extent > lanes:
        middle, last = s.split(last, (None, lanes))
        names.append(middle)
    if extent != 1:
        s.vectorize(last)
    for name in names:
        s.unroll(name)


def _inner_consumer(s: Schedule, consumer: str, lead: list[str], lanes: int) -> None:
    inner = [x.var for x in loops_of(s.func, consumer) if x.var not in lead]
    _write_out(s, consumer, inner, lanes)


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
