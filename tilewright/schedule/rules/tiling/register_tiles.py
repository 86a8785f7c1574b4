"""Register tiles: a reduction whose results stay in registers while it runs, and are finished on the way out.

Covers matrix products, convolutions, depthwise convolutions, pooling and reductions over outer axes. The nest of
``C[m, n] = f(sum over k of A[m, k] * B[n/nr, k, nr])``, in the names of BLIS (Van Zee; Goto and van de Geijn, 2008)::

    for jc in n / nc:                               # blocks of panels (.column_block); threads share these loops
        for ic in m / mc:                           # blocks of row tiles (.row_block); .order: ic or jc outside
            for pc in k / kc:                       # blocks of steps (.depth), with C's block in memory in between
                for jr in nc / nr:                  # the panels of a block, nr columns each (.vectors)
                    for ir in mc / mr:              # its row tiles, mr rows each (.rows); .inner: ir or jr outside
                        acc[mr, nr] = 0             # in registers
                        for p in kc:                # what B[jr, p] and A[ir, p] hold is read once per tile
                            for i in unrolled(mr):
                                for j in vectorized(nr): acc[i, j] += A[ir*mr + i, p] * B[jr, p, j]
                        for i, j in mr, nr: C[...] = f(acc[i, j])

Without blocks, the default in most cases, ``jc``, ``ic`` and ``pc`` have one step. The consumer (the epilogue, or a
copy made by ``cache_write``) is split into tiles, and the reduction is computed at the tile as a local buffer. Where a
step adds sums of its own, scaled (the groups of a weight of few bits), these are computed in the step, in registers as
well, a row at a time.

Decisions besides those of :mod:`.tile_size`, :mod:`.cache_blocking`, :mod:`.k_blocking`, :mod:`.spaced_rows`,
:mod:`.write_tile` and :mod:`tilewright.schedule.rules.parallelism`: ``<acc>.lanes`` (vector width) and
``<acc>.epilogue`` (finished at the tile, or in a pass of its own).
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import ELEMENTS, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import choose_lanes, schedule_elementwise
from tilewright.schedule.rules.facts import (
    all_blocks,
    expr_cost,
    is_reduction,
    is_row_like,
    is_spatial,
    nanoseconds,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.prefetch import fetch_ahead, fetch_if_open
from tilewright.schedule.rules.tiling.cache_blocking import (
    block_beside,
    made_for_panels,
    order_of_loops,
    own_block,
    own_order,
)
from tilewright.schedule.rules.tiling.k_blocking import choose_kc, tile_partial
from tilewright.schedule.rules.tiling.share_tiles import is_ragged, spread
from tilewright.schedule.rules.tiling.spaced_rows import set_apart, space_rows
from tilewright.schedule.rules.tiling.tile_axes import TileAxes, is_packed, repeating_loops, split_groups, tile_axes
from tilewright.schedule.rules.tiling.tile_size import split_tile
from tilewright.schedule.rules.tiling.write_tile import (
    inner_sums,
    lanes_stored,
    operand_stages,
    place_stages,
    write_inner_sums,
    write_out,
    write_reduction,
)
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_buffer


def _matches(s: Schedule, block: str, target: Target) -> list[str]:
    """The reductions that ``block`` finishes, or itself."""
    found = find_block(s.func, block)
    if is_spatial(found):
        return [f for f in reduction_feeders(s, block) if not is_row_like(s, f)]
    fits = is_reduction(found) and all(a.kind != "ordered" for a in found.axes) and not is_row_like(s, block)
    return [block] if fits else []


def _apply(s: Schedule, block: str, match: str, target: Target) -> None:
    if match != block:
        _tile_for(s, match, block, target)
    elif s.copy().attempt(lambda a: copied(a, block)):  # a result that has no copy stays as it was declared
        _tile_for_copy(s, block, target, join_panels=True)


def _tile_for(s: Schedule, reduction: str, consumer: str, target: Target) -> None:
    """Finish the tile in ``consumer``; or in a copy, and ``consumer`` is a pass of its own, as it always is where it
    reads a result several times."""
    if repeating_loops(s, reduction, consumer):
        _tile_and_pass(s, reduction, consumer, target)
        return
    axes = tile_axes(s, reduction, consumer)
    if axes is None and (group := split_groups(s, reduction, consumer)) is not None:
        axes = tile_axes(s, reduction, consumer, group=group)
    if axes is None:
        raise ScheduleError(f"{reduction}: no tile of {consumer}")
    epilogue = axes.panel is not None and expr_cost(find_block(s.func, consumer).value) > 0
    if epilogue and s.sample_categorical(f"{reduction}.epilogue", ("tile", "pass"), "tile") == "pass":
        _tile_and_pass(s, reduction, consumer, target)
    else:
        schedule_tile(s, reduction, consumer, axes, target)


def _tile_and_pass(s: Schedule, reduction: str, consumer: str, target: Target) -> None:
    _tile_for_copy(s, reduction, target, join_panels=True)
    schedule_elementwise(s, consumer, target)


def _tile_for_copy(s: Schedule, reduction: str, target: Target, join_panels: bool = False) -> None:
    """Tile a reduction whose result is stored as it is: a copy writes it from registers to memory.

    ``join_panels``: panels and their columns are one row of the result.
    """
    copy = copied(s, reduction)
    if join_panels and is_packed(find_block(s.func, reduction)):
        s.fuse(*s.loops(copy)[-2:])
    axes = tile_axes(s, reduction, copy)
    if axes is None:
        raise ScheduleError(f"{reduction}: no tile of its copy")
    schedule_tile(s, reduction, copy, axes, target)
    if find_buffer(s.func, find_block(s.func, reduction).buffer).scope != "local":
        raise ScheduleError(f"{reduction}: a tile of its copy has no constant size")


def copied(s: Schedule, reduction: str) -> str:
    """Let ``reduction`` write a buffer of its own, and copy that. A symbolic one is local once it is that of a tile."""
    known = all(d.is_const for d in find_buffer(s.func, find_block(s.func, reduction).buffer).shape)
    return s.cache_write(reduction, "local" if known else "global")


def schedule_tile(s: Schedule, reduction: str, consumer: str, axes: TileAxes, target: Target) -> None:
    """Tile ``consumer`` and compute ``reduction`` inside its tile.

    Of a symbolic number of rows the last tile, which is partial, has a test for each of its rows.
    """
    total = nanoseconds(s.func, reduction, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    tile = split_tile(s, reduction, consumer, axes, lanes, target)
    spaced = space_rows(s, reduction, axes, tile, total, target)
    stages = operand_stages(s, reduction)
    ragged = [x for x in tile.row_loops if is_ragged(s, consumer, x)]
    made = made_for_panels(s, reduction, stages)
    own, shared = ("columns", False) if made else own_order(s, reduction, tile, axes, not ragged, target)
    if made:
        block = block_beside(s, consumer, made[0], tile, target)
    else:
        block = 1 if shared else own_block(s, reduction, consumer, tile, axes, not ragged, target)
    order = order_of_loops(s, reduction, tile, own, block, shared, whole=not ragged, apart=bool(made))
    ragged = [x for x in order.rows if is_ragged(s, consumer, x)]
    if not {*order.rows} <= {*tile.batch, *tile.row_loops}:
        ragged = ragged[:1]  # the blocks; what is partial in the last one stays in it
    lanes = choose_lanes(s, reduction, lanes, target)
    s.reorder(*order.loops, *tile.inner)
    inner = inner_sums(s, reduction)
    own_results = None if inner or ragged or axes.panel is None or not order.outer else choose_kc(s, reduction)
    lead = order.loops if own_results is None else list(order.outer)
    s.compute_at(reduction, lead[-1])
    if own_results is None:
        write_reduction(s, reduction, lanes, set(lead))
        write_inner_sums(s, inner, reduction, lanes)
        write_out(s, consumer, [x for x in s.loops(consumer) if x not in lead], lanes_stored(s, consumer, lanes))
        place_stages(
            s, stages, lead if made else lead[:-1], target, dict.fromkeys(made, (order.outer or order.within)[-1])
        )
    else:
        write_out(s, consumer, tile.inner, lanes_stored(s, consumer, lanes))
        tile_partial(s, own_results, reduction, lead, lanes, target)
        place_stages(s, stages, lead, target)
    if spaced is not None:
        set_apart(s, spaced)
    known = {b.name for b in all_blocks(s.func)}
    spread(s, consumer, lead, ragged, total, target)
    if axes.panel is not None:
        fetch_ahead(s, reduction, target)
        for tail in [b.name for b in all_blocks(s.func) if b.name not in known and is_reduction(b)]:
            fetch_if_open(s, tail, target)


REGISTER_TILES = ScheduleRule(
    "register_tiles", _matches, _apply,
    ("epilogue", "order", "inner", "row_block", "column_block", "depth", "spaced", "ahead", *WRITE, *ELEMENTS),
)  # fmt: skip
