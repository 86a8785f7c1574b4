"""Register tiles: a reduction whose results stay in registers while it runs, and are finished on the way out.

Covers matrix products, convolutions, depthwise convolutions, pooling and reductions over outer axes. The consumer (the
epilogue, or a copy made by ``cache_write``) is tiled ``rows x vectors``, the reduction moves into the tile as a local
buffer, its own loops go outside the tile's, rows and vectors are written out. Around the tiles there may be blocks of
tiles, whose operands stay in a cache, and the reduction may go in blocks too, with the results of a block of tiles in
memory in between (:mod:`.k_blocking`). Source of the form: Goto and van de Geijn (2008), and Van Zee's BLIS, for the
order of loops.

Decisions, of ``<acc>`` the reduction: ``.vectors`` and ``.rows`` (the tile), ``.order`` (which operand stays in
cache), ``.row_block``, ``.column_block`` and ``.inner`` (blocks of tiles and the order in them), ``.depth`` (steps of a
block of the reduction), ``.steps`` (whether the last reduction loop goes outside the others: taps inside channels),
``.unroll`` (steps of the innermost one written out), ``.lanes`` (vector width), ``.epilogue`` (finished at the tile,
or in a pass of its own), ``<stage>.at`` (where the padded or packed operand is computed), and those of
:mod:`tilewright.schedule.rules.parallelism`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from tilewright.core.arith.bounds import simplify
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod, as_var
from tilewright.core.errors import ScheduleError
from tilewright.machine.costs import Costs
from tilewright.machine.target import Target
from tilewright.schedule.primitives.sampling.sample_compute_location import INLINE, ROOT
from tilewright.schedule.rules.elementwise import (
    choose_lanes,
    peel_if_ragged,
    schedule_elementwise,
    vectorize_inner,
    vectorize_loop,
)
from tilewright.schedule.rules.facts import (
    all_blocks,
    expr_cost,
    expr_size,
    is_multiply_add,
    is_packed_operand,
    is_reduction,
    is_row_like,
    is_spatial,
    loops_of,
    nanoseconds,
    reduce_loops,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import is_worth_spreading, parallelize
from tilewright.schedule.rules.prefetch import fetch_ahead, large_inputs
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.rules.tiling.cache_blocking import TileLoops, choose_vectors, order_of_loops, split_columns
from tilewright.schedule.rules.tiling.k_blocking import partial_results
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_buffer, loop_ranges
from tilewright.tensor_ir.ir import Block, loads

_UNROLLS = (1, 2, 3, 4, 8)
_TALL = 8
_UNKNOWN = 64
_BLOCKS = 4
"""Blocks of rows for each thread, at least: the threads' chunks."""
_WRITTEN_OUT = 1024
"""Nodes of the formula in all results of a tile together, at most: what is written out is paid for when it is built."""
_PARTS = 2
"""Parts of an operand that is too large for the cache; the panels come from memory once for each."""


@dataclass(frozen=True, slots=True)
class TileAxes:
    """Loops of the consumer by role. ``rows`` and ``batch`` outermost first; ``columns`` becomes vectors.

    ``panel``: columns that one packed panel holds (the accumulator's last extent), None if it is not packed.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: str
    panel: int | None


def register_tiles_rule(s: Schedule, block: str, target: Target) -> bool:
    """A register tile for the reduction that ``block`` finishes, or that it is itself."""
    found = find_block(s.func, block)
    if is_spatial(found):
        feeders = [f for f in reduction_feeders(s, block) if not is_row_like(s, f)]
        return any(s.attempt(partial(_tile_for, reduction=f, consumer=block, target=target)) for f in feeders)
    if not is_reduction(found) or any(a.kind == "ordered" for a in found.axes) or is_row_like(s, block):
        return False
    if not s.copy().attempt(lambda a: _copied(a, block)):
        return True  # a result that has no copy stays as it was declared
    return s.attempt(lambda a: _tile_for_copy(a, block, target))


def _tile_for(s: Schedule, reduction: str, consumer: str, target: Target) -> None:
    """Finish the tile in ``consumer``; or in a copy, and ``consumer`` is a pass of its own."""
    axes = tile_axes(s, reduction, consumer)
    if axes is None and (group := split_groups(s, reduction, consumer)) is not None:
        axes = tile_axes(s, reduction, consumer, group=group)
    if axes is None:
        raise ScheduleError(f"{reduction}: no tile of {consumer}")
    epilogue = axes.panel is not None and expr_cost(find_block(s.func, consumer).value) > 0
    if epilogue and s.sample_categorical(f"{reduction}.epilogue", ("tile", "pass"), "tile") == "pass":
        _tile_for_copy(s, reduction, target, join_panels=True)
        schedule_elementwise(s, consumer, target)
    else:
        schedule_tile(s, reduction, consumer, axes, target)


def _tile_for_copy(s: Schedule, reduction: str, target: Target, join_panels: bool = False) -> None:
    """Tile a reduction whose result is stored as it is: a copy writes it from registers to memory.

    ``join_panels``: panels and their columns are one row of the result.
    """
    copy = _copied(s, reduction)
    if join_panels and _is_packed(find_block(s.func, reduction)):
        s.fuse(*s.loops(copy)[-2:])
    axes = tile_axes(s, reduction, copy)
    if axes is None:
        raise ScheduleError(f"{reduction}: no tile of its copy")
    schedule_tile(s, reduction, copy, axes, target)
    if find_buffer(s.func, find_block(s.func, reduction).buffer).scope != "local":
        raise ScheduleError(f"{reduction}: a tile of its copy has no constant size")


def _copied(s: Schedule, reduction: str) -> str:
    """Let ``reduction`` write a buffer of its own, and copy that. A symbolic one is local once it is that of a tile."""
    known = all(d.is_const for d in find_buffer(s.func, find_block(s.func, reduction).buffer).shape)
    return s.cache_write(reduction, "local" if known else "global")


def _is_packed(reduction: Block) -> bool:
    """True for a product with an operand in panels."""
    operands = {x.buffer for x in loads(reduction.value)} - {reduction.buffer}
    return is_multiply_add(reduction) and any(is_packed_operand(b, reduction) for b in operands)


def tile_axes(
    s: Schedule, reduction: str, consumer: str, around: Sequence[str] = (), group: str | None = None
) -> TileAxes | None:
    """How the consumer's loops inside ``around`` map onto the accumulator's axes; None if not one to one.

    Loops over which the consumer reduces count as batch, and so does ``group``, each step of which has its own panels.
    """
    acc = find_block(s.func, reduction)
    user = find_block(s.func, consumer)
    env = block_environment(user)
    reads = {x.indices for x in loads(user.value) if x.buffer == acc.buffer}
    if len(reads) != 1:
        return None
    steps = set(reduce_loops(s.func, consumer))
    ranges = loop_ranges(loops_of(s.func, consumer))
    bound = [simplify(i.substitute(env), ranges) for i in next(iter(reads))]
    kept = [d for d, i in enumerate(bound) if not i.free_vars() & steps]
    index = [bound[d] for d in kept]
    names = [x.var for x in loops_of(s.func, consumer) if x.var not in around]
    width = find_buffer(s.func, acc.buffer).shape[kept[-1]] if index else None
    free = [i.free_vars() & set(names) for i in index]
    packed = (
        len(index) >= 2 and len(free[-1]) == 1 and free[-2] - {group} <= free[-1]
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
    if any(columns in f or group in f for f in rest):
        return None
    rows = tuple(n for n in names if rest and n in rest[-1])
    return TileAxes(tuple(n for n in names if n not in (*rows, columns)), rows, columns, panel)


def split_groups(s: Schedule, reduction: str, consumer: str) -> str | None:
    """Split the consumer's loop over columns where each group of columns has panels of its own: the loop over groups.

    None if there are no such groups.
    """
    acc = find_block(s.func, reduction)
    user = find_block(s.func, consumer)
    env = block_environment(user)
    places = [x.indices[-1].substitute(env) for x in loads(user.value) if x.buffer == acc.buffer and x.indices]
    for loop in loops_of(s.func, consumer):
        size = max((n for i in places for n in _remainders(i, loop.var)), default=1)
        if size > 1 and (loop.extent % size).value() == 0:
            return s.split(loop.var, (None, size))[0]
    return None


def _remainders(index: IntExpr, loop: str) -> list[int]:
    """The constants by which ``index`` takes remainders of ``loop``."""
    out: list[int] = []
    for a in index.atoms():
        if isinstance(a, (FloorDiv, Mod)):
            value, by = a.args[0], a.args[1].value()
            out += [by] if isinstance(a, Mod) and by is not None and as_var(value) == loop else _remainders(value, loop)
    return out


def _is_panel(outer: IntExpr, inner: IntExpr, width: IntExpr) -> bool:
    """True if the last two indices are ``c // width`` and ``c % width`` of one expression."""
    joined = outer * width + inner
    return width.is_const and not joined.is_const and not any(isinstance(a, (FloorDiv, Mod)) for a in joined.atoms())


def schedule_tile(s: Schedule, reduction: str, consumer: str, axes: TileAxes, target: Target) -> None:
    """Tile ``consumer`` and compute ``reduction`` inside its tile.

    The last tile of a symbolic number of rows is computed whole where weights come from memory, for which its last rows
    have to wait anyway; else with a test a row, which a compiler may take out of the loops, so that one row is fast.
    """
    total = nanoseconds(s.func, reduction, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    stages = operand_stages(s, reduction)
    tile = _split(s, reduction, consumer, axes, lanes, target)
    own, shared = _own_order(s, reduction, tile, axes, target)
    ragged = [x for x in tile.row_loops if _is_ragged(s, consumer, x)]
    block = 1 if shared else _own_block(s, reduction, consumer, tile, axes, target)
    order = order_of_loops(s, reduction, tile, own, block, shared, whole=not ragged)
    ragged = [x for x in order.rows if _is_ragged(s, consumer, x)]
    if not {*order.rows} <= {*tile.batch, *tile.row_loops}:
        ragged = ragged[:1]  # the blocks; what is partial in the last one stays in it
    lanes = choose_lanes(s, reduction, lanes, target)
    s.reorder(*order.loops, *tile.inner)
    own_results = None if ragged or axes.panel is None or not order.outer else partial_results(s, reduction)
    lead = order.loops if own_results is None else list(order.outer)
    symbolic = any(not x.extent.is_const for x in loops_of(s.func, consumer))
    s.compute_at(reduction, lead[-1], whole=symbolic and bool(large_inputs(s, reduction, target)))
    if own_results is None:
        write_reduction(s, reduction, lanes, set(lead))
        write_out(s, consumer, [x for x in s.loops(consumer) if x not in lead], lanes)
        _place_stages(s, stages, lead[:-1], target)
    else:
        write_out(s, consumer, tile.inner, lanes)
        _tile_partial(s, own_results, reduction, lead, lanes, target)
        _place_stages(s, stages, lead, target)
    _spread(s, consumer, lead, ragged, total, target)
    if axes.panel is not None:
        fetch_ahead(s, reduction, target)


def _tile_partial(
    s: Schedule, block: str, reduction: str, around: Sequence[str], lanes: int, target: Target
) -> None:
    """Tile ``block``, the results of a few steps; ``reduction`` adds them to a block of tiles in memory."""
    (over,) = reduce_loops(s.func, reduction)
    spatial = [x for x in s.loops(reduction) if x not in around and x != over]
    s.reorder(over, *spatial)
    init = s.decompose_reduction(reduction, over)
    vectorize_loop(s, init, s.loops(init)[-1], target)
    found = find_block(s.func, reduction)
    panels = [i.substitute(block_environment(found)).free_vars() & set(spatial) for i in found.indices[-2:]]
    if all(panels) and len(spatial) > 1 and _is_packed(find_block(s.func, block)):
        s.fuse(*spatial[-2:])
    axes = tile_axes(s, block, reduction, around)
    if axes is None:
        raise ScheduleError(f"{block}: no tile of {reduction}")
    tile = _split(s, block, reduction, axes, lanes, target)
    lead = [over, *(x for x in tile.batch if x != over), *_either(s, block, tile)]
    s.reorder(*lead, *tile.inner)
    s.compute_at(block, lead[-1])
    write_reduction(s, block, lanes, {*around, *lead})
    write_out(s, reduction, tile.inner, lanes)


def _either(s: Schedule, reduction: str, tile: TileLoops) -> tuple[str, ...]:
    """Columns outside rows, or rows outside columns."""
    first = s.sample_categorical(f"{reduction}.order", ("columns", "rows"), "columns") if tile.row_loops else "columns"
    return (*tile.columns, *tile.row_loops) if first == "columns" else (*tile.row_loops, *tile.columns)


def _split(s: Schedule, reduction: str, consumer: str, axes: TileAxes, lanes: int, target: Target) -> TileLoops:
    """Split columns into panels and rows into tile heights; a short row takes a second row axis into the tile."""
    if axes.batch or axes.rows:
        s.reorder(*axes.batch, *axes.rows, axes.columns)
    batch, row = list(axes.batch), axes.rows[-1] if axes.rows else None
    if len(axes.rows) > 1:
        row = s.fuse(*axes.rows)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    extent = extents[axes.columns]
    most = max(1, _WRITTEN_OUT // expr_size(find_block(s.func, reduction).value))
    own = axes.panel or (lanes if most == 1 or (extent or 2 * lanes) < 2 * lanes else 2 * lanes)
    fixed = extent is None or (row is not None and extents[row] is None)
    width = own if fixed else choose_vectors(s, reduction, own, extent or 0, lanes, axes.panel is not None, target)
    vectors = max(1, width // lanes)
    limit = min(target.tile_rows(vectors), max(1, most // vectors))
    columns, column = split_columns(s, axes.columns, own if axes.panel else width, width)
    if row is None:
        return TileLoops(tuple(batch), (), columns, column)
    height = decide_height(s, reduction, extents[row], limit, target)
    over, inside = s.split(row, (None, height))
    last = batch[-1] if batch else None
    if last is not None and height == extents[row] and 2 * height <= limit:
        second = _tile_height(extents[last], limit // height, target.costs)
        if second > 1:
            outer, second_inside = s.split(last, (None, second))
            return TileLoops((*batch[:-1],), (outer, over), columns, (second_inside, inside, *column))
    return TileLoops(tuple(batch), (over,), columns, (inside, *column))


def decide_height(s: Schedule, reduction: str, extent: int | None, limit: int, target: Target) -> int:
    """Rows of the tile. A symbolic extent was rounded up to whole tiles of the limit: no choice there."""
    if extent is None:
        return limit
    own = _tile_height(extent, limit, target.costs)
    candidates = range(1, max(own, min(extent, limit + 2)) + 1)
    return int(s.sample_categorical(f"{reduction}.rows", tuple(candidates), own))


def _tile_height(extent: int | None, limit: int, costs: Costs) -> int:
    """The height with the fewest cycles for all rows: a divisor or about equal parts if short, else tall and a rest.

    A step of a tile takes a cycle a row, but not less than a multiply-add does, and a part of one more because the
    panel is read once a tile.
    """
    if extent is None:
        return limit
    if extent <= limit:
        return max(1, extent)
    least, more = costs.step_cycles, costs.panel_read_cycles

    def cycles(height: int) -> float:
        whole, rest = divmod(extent, height)
        last = max(least, rest) + more if rest else 0
        return whole * (max(least, height) + more) + last

    heights = range(limit, max(1, (2 * limit) // 3) - 1, -1)
    even = next((h for h in heights if extent % h == 0), min(heights, key=cycles))
    return limit if extent >= _TALL * limit and cycles(limit) < cycles(even) else even


def _own_order(s: Schedule, reduction: str, tile: TileLoops, axes: TileAxes, target: Target) -> tuple[str, bool]:
    """Which operand stays in cache by default, and whether the panels belong to a batch element.

    The order with less traffic of the operands that do not fit in half of the second-level cache. Without panels there
    is a weight a column and tap (a depthwise convolution): columns outside where these do not fit in the first-level
    cache, from which each row tile would read all of them.
    """
    block = find_block(s.func, reduction)
    operands = list(dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer != block.buffer))
    if axes.panel is None or not tile.row_loops:
        by_tap = len(operands) == 2 and is_multiply_add(block) and bool(tile.row_loops)
        return "columns" if by_tap and _bytes(s, operands[-1]) > target.l1_bytes else "rows", False
    own = "columns"
    if len(operands) == 2:
        source, weight = (_bytes_read(s, block, b) for b in operands)
        loops = {x.var: x.extent.value() or 8 for b in all_blocks(s.func) for x in loops_of(s.func, b.name)}
        cache = target.resident_bytes
        columns_first = weight + source * (loops[tile.columns[0]] if source > cache else 1)
        rows_first = source + weight * (loops[tile.row_loops[-1]] if weight > cache else 1)
        own = "columns" if columns_first <= rows_first else "rows"
    return own, any(b in tile.batch for b in _loops_indexing(s, reduction, operands[-1:]))


def _own_block(
    s: Schedule, reduction: str, consumer: str, tile: TileLoops, axes: TileAxes, target: Target
) -> int:
    """Row tiles of a block by default, 1 for no blocks.

    Where the panels fit in the second-level cache, as many as leave each thread a few blocks of its own: it then has
    the same rows of every layer of a network, reads what it wrote itself, and no cache line has to come from another
    processor. Where they do not, and the operand does not either, a part of it that does: it would come from the last
    cache again for each panel, and that is shared with others.
    """
    block = find_block(s.func, reduction)
    operands = list(dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer != block.buffer))
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    counts = [n for x in (*tile.batch, *tile.row_loops) if (n := extents[x]) is not None]
    known = len(counts) == len(tile.batch) + len(tile.row_loops) and len(operands) == 2 and axes.panel is not None
    if target.threads == 1 or not known:
        return 1
    tiles, height, cache = prod(counts), extents[tile.inner[0]] or target.tile_rows(1), target.resident_bytes
    if _bytes(s, operands[1]) > cache:
        source = _bytes_read(s, block, operands[0])
        is_large = source > cache and source // _PARTS <= target.filling_bytes
        return -(-tiles // _PARTS) if is_large and tiles >= _TALL * _PARTS else 1
    row = widest_itemsize(s.func, reduction) * prod(a.extent.value() or 1 for a in block.axes if a.kind == "reduce")
    own = 1
    while tiles >= 2 * own * _BLOCKS * target.threads and 2 * own * height * row <= cache:
        own *= 2
    return own


def _loops_indexing(s: Schedule, reduction: str, operands: Sequence[str]) -> set[str]:
    """Names of the consumers' loops over which an operand's packed panels vary, matched through the result's axes."""
    block = find_block(s.func, reduction)
    used = {v for x in loads(block.value) if x.buffer in operands for i in x.indices for v in i.free_vars()}
    out: set[str] = set()
    for user in consumers(s.func, block.buffer):
        env = block_environment(user)
        for x in loads(user.value):
            if x.buffer == block.buffer:
                for stored, index in zip(block.indices, x.indices, strict=True):
                    if stored.free_vars() & used:
                        out |= index.substitute(env).free_vars()
    return out


def _bytes_read(s: Schedule, block: Block, buffer: str) -> int:
    """Size of what ``block`` reads of a buffer: of a strided convolution's operand perhaps a part only."""
    env = block_environment(block)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block.name)}
    indices = [i.substitute(env) for x in loads(block.value) if x.buffer == buffer for i in x.indices]
    points = [extents.get(v) for v in {v for i in indices for v in i.free_vars()}]
    size = _bytes(s, buffer)
    if None in points:
        return size
    return min(size, find_buffer(s.func, buffer).dtype.itemsize * prod(n for n in points if n is not None))


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
    if len(steps) > 1 and s.sample_categorical(f"{reduction}.steps", ("declared", "last"), "declared") == "last":
        steps = [steps[-1], *steps[:-1]]
    s.reorder(*steps, *tile)
    init = s.decompose_reduction(reduction, steps[0])
    extent = {x.var: x.extent.value() for x in loops_of(s.func, reduction)}[steps[-1]]
    factor = choose_number(s, f"{reduction}.unroll", [u for u in _UNROLLS if u in divisors(extent)], 1)
    if factor > 1:
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


def _place_stages(s: Schedule, stages: Sequence[str], around: Sequence[str], target: Target) -> None:
    """Compute an operand's stage at one of the loops around the tile, or where it is read, if so decided."""
    for stage in dict.fromkeys(stages):
        options = list(around)
        if s.copy().attempt(partial(Schedule.compute_inline, block=stage)):
            options.append(INLINE)
        if not options:
            continue
        where = s.sample_compute_location(stage, options)
        if where == INLINE:
            s.compute_inline(stage)
        elif where != ROOT:
            s.compute_at(stage, where)
            vectorize_inner(s, stage, around.index(where) + 1, target)


def _is_ragged(s: Schedule, block: str, loop: str) -> bool:
    """True if some loop inside ``loop`` has a shorter extent in its last iteration, and that extent is a constant."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    return loops[loop].extent.is_const and any(loop in x.extent.free_vars() for x in loops.values())


def _spread(s: Schedule, block: str, lead: list[str], ragged: list[str], total: float | None, target: Target) -> None:
    """Threads over the loops outside the tile; partial tiles peeled off so that whole ones run without tests."""
    ragged = ragged or _symbolic_rows(s, block, lead)
    free = [x for x in lead if x not in ragged]
    worth = is_worth_spreading(total, target)
    shared = _first(s, block, lead) in ragged or _count(s, block, free) < 8 * target.threads
    if ragged and worth and shared and s.attempt(lambda a: _spread_over_tiles(a, block, lead, ragged, total, target)):
        return
    if ragged and worth and lead != [*free, *ragged]:
        s.attempt(lambda a: a.reorder(*free, *ragged))
    parallelize(s, block, free, total, target)
    for name in ragged:
        if not s.attempt(partial(Schedule.peel, loop=name)):
            peel_if_ragged(s, block, name)


def _symbolic_rows(s: Schedule, block: str, lead: Sequence[str]) -> list[str]:
    """A loop over tiles of which the last is partial by a symbolic number of rows, with loops of symbolic size around.

    Without its partial tile the others read their operand at places that are apart by constants.
    """
    loops = {x.var: x for x in loops_of(s.func, block)}
    rows = [n for n in lead if not loops[n].extent.is_const and any(n in x.extent.free_vars() for x in loops.values())]
    around = [n for n in lead if n not in rows and not loops[n].extent.is_const]
    return rows if around else []


def _spread_over_tiles(
    s: Schedule, block: str, lead: list[str], ragged: list[str], total: float | None, target: Target
) -> None:
    """The same where the rows of tiles are shared out too: the partial ones first become a nest of their own."""
    rows_first = _first(s, block, lead) in ragged
    s.reorder(*ragged, *(x for x in lead if x not in ragged))
    for name in _peeled(s, block, ragged[0], len(lead)):
        loops = [x.var for x in loops_of(s.func, name)][: len(lead)]
        if not rows_first:
            loops = [*loops[len(ragged) :], *loops[: len(ragged)]]
            s.reorder(*loops)
        parallelize(s, name, loops, total, target)


def _first(s: Schedule, block: str, lead: Sequence[str]) -> str:
    """The outermost of ``lead`` that has more than one step."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    return next((x for x in lead if loops[x].extent.value() != 1), lead[0])


def _peeled(s: Schedule, block: str, loop: str, depth: int) -> list[str]:
    """Peel ``loop``, the outermost, and where it stands what is partial in its last step: ``block`` in both nests."""
    before = {b.name for b in all_blocks(s.func)}
    s.peel(loop)
    buffer = find_block(s.func, block).buffer
    tails = [b.name for b in all_blocks(s.func) if b.name not in before and b.buffer == buffer]
    for tail in tails:
        loops = [x.var for x in loops_of(s.func, tail)][:depth]
        ragged = next((x for x in loops if _is_ragged(s, tail, x)), None)
        if ragged is not None:
            s.peel(ragged)
    return [block, *tails]


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
