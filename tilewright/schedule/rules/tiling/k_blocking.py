"""Blocks of kc steps of the reduction: a few steps for every tile of a block of tiles, then the next few, with the
results of the block of tiles in memory in between. What those steps read of one operand then stays in the first-level
cache.

Decision, of ``<acc>`` the reduction: ``.depth`` (kc).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.elementwise import vectorize_loop
from tilewright.schedule.rules.facts import loops_of, reduce_loops
from tilewright.schedule.rules.sampling import choose_number, divisors, spread_out
from tilewright.schedule.rules.tiling.tile_axes import is_packed, tile_axes
from tilewright.schedule.rules.tiling.tile_size import TileLoops, split_tile
from tilewright.schedule.rules.tiling.write_tile import write_out, write_reduction
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block

_LEAST = 16


def choose_kc(s: Schedule, reduction: str) -> str | None:
    """Ask for kc, the steps of its longest loop in a block of the reduction, and give each block results of its own.

    Returns the name of the block that computes them; ``reduction`` then adds them up. None for all steps in one block,
    the default.
    """
    steps = reduce_loops(s.func, reduction)
    extents = {x.var: x.extent.value() or 0 for x in loops_of(s.func, reduction) if x.var in steps}
    if not extents:
        return None
    longest = max(extents, key=lambda v: extents[v])
    whole = extents[longest]
    sizes = spread_out(d for d in divisors(whole) if _LEAST <= d < whole)
    size = choose_number(s, f"{reduction}.depth", sizes, whole)
    return None if size == whole else s.rfactor(s.split(longest, (None, size))[0])


def tile_partial(s: Schedule, block: str, reduction: str, around: Sequence[str], lanes: int, target: Target) -> None:
    """Tile ``block``, the results of a few steps; ``reduction`` adds them to a block of tiles in memory."""
    (over,) = reduce_loops(s.func, reduction)
    spatial = [x for x in s.loops(reduction) if x not in around and x != over]
    s.reorder(over, *spatial)
    init = s.decompose_reduction(reduction, over)
    vectorize_loop(s, init, s.loops(init)[-1], target)
    found = find_block(s.func, reduction)
    panels = [i.substitute(block_environment(found)).free_vars() & set(spatial) for i in found.indices[-2:]]
    if all(panels) and len(spatial) > 1 and is_packed(find_block(s.func, block)):
        s.fuse(*spatial[-2:])
    axes = tile_axes(s, block, reduction, around)
    if axes is None:
        raise ScheduleError(f"{block}: no tile of {reduction}")
    tile = split_tile(s, block, reduction, axes, lanes, target)
    lead = [over, *(x for x in tile.batch if x != over), *_either(s, block, tile)]
    s.reorder(*lead, *tile.inner)
    s.compute_at(block, lead[-1])
    write_reduction(s, block, lanes, {*around, *lead})
    write_out(s, reduction, tile.inner, lanes)


def _either(s: Schedule, reduction: str, tile: TileLoops) -> tuple[str, ...]:
    """Columns outside rows, or rows outside columns."""
    first = s.sample_categorical(f"{reduction}.order", ("columns", "rows"), "columns") if tile.row_loops else "columns"
    return (*tile.columns, *tile.row_loops) if first == "columns" else (*tile.row_loops, *tile.columns)
