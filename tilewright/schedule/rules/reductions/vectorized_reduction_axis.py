"""Results that are vectors of partial sums in registers, added up at the end: few columns, a long reduction.

Found by structure: a reduction over the last axis of a multiply-add's result, which is as wide as a vector and runs
over neighbours in both operands. The reader of the sums is tiled ``rows x columns`` results, each a vector while the
reduction runs; one step of it loads a vector per row and a vector per column. Decisions, of ``<acc>`` the multiply-add:
``.rows`` and ``.columns`` (the tile), ``.steps`` and ``.unroll`` as for other register tiles, and those of
:mod:`tilewright.schedule.rules.parallelism`.
"""

from __future__ import annotations

from tilewright.core.arith.expr import as_var
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import SPREAD, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged
from tilewright.schedule.rules.facts import (
    is_multiply_add,
    is_spatial,
    loops_of,
    nanoseconds,
    reduce_loops,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.reductions.row_reduction import factor_lanes, part_of_vector
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.rules.tiling.write_tile import write_reduction
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer
from tilewright.tensor_ir.ir import Load, Op, loads


def _matches(s: Schedule, block: str, target: Target) -> list[tuple[str, str]]:
    """The multiply-adds whose last axis is summed up for ``block`` to finish, and what sums."""
    if not is_spatial(find_block(s.func, block)):
        return []
    found = ((_summed(s, sums, target), sums) for sums in reduction_feeders(s, block))
    return [(acc, sums) for acc, sums in found if acc is not None]


def _summed(s: Schedule, sums: str, target: Target) -> str | None:
    """The multiply-add whose last axis, one vector, is what ``sums`` adds up."""
    block, steps, makers = find_block(s.func, sums), reduce_loops(s.func, sums), reduction_feeders(s, sums)
    added = block.value.args[-1] if isinstance(block.value, Op) and block.value.name == "add" else None
    if not isinstance(added, Load) or len(makers) != 1 or len(steps) != 1:
        return None
    acc = find_block(s.func, makers[0])
    if added.buffer != acc.buffer or not added.indices:
        return None
    width = find_buffer(s.func, acc.buffer).shape[-1].value()
    lane = added.indices[-1].substitute(block_environment(block))
    fits = width == target.lanes(widest_itemsize(s.func, acc.name)) and as_var(lane) == steps[0]
    return acc.name if fits and is_multiply_add(acc) else None


def _apply(s: Schedule, block: str, match: tuple[str, str], target: Target) -> None:
    """A tile of vectors of partial sums."""
    (acc, sums), user = match, block
    total = nanoseconds(s.func, acc, target.costs)
    loops = {x.var: x.extent.value() for x in loops_of(s.func, user)}
    row, column = _tiled_loops(s, sums, user)
    count = 1 if column is None else loops[column]
    if count is None:
        raise ScheduleError(f"{user}: expected a known number of columns, got a symbolic one")
    height, wide = target.lane_tile(count)
    extent = 1 if row is None else loops[row]
    if extent is not None:
        wide = choose_number(s, f"{acc}.columns", [d for d in divisors(count) if d <= wide], wide)
        limit = target.tile_rows(wide)
        even = [d for d in divisors(extent) if limit // 2 < d <= limit]
        height = choose_number(s, f"{acc}.rows", even, max(even, default=max(1, min(limit, extent))))
    lead, inside = [x for x in loops if x not in (row, column)], []
    for loop, factor in ((row, height), (column, wide)):
        if loop is not None:
            over, within = s.split(loop, (None, factor))
            lead.append(over)
            inside.append(within)
    if not lead:
        raise ScheduleError(f"{user}: expected a loop around the tile")
    s.reorder(*lead, *inside)
    s.compute_at(sums, lead[-1])
    s.compute_at(acc, lead[-1])
    write_reduction(s, acc, target.lanes(widest_itemsize(s.func, acc)), set(lead))
    parts = _add_parts(s, sums, target)
    (step,) = reduce_loops(s.func, sums)
    s.reorder(step, *[x for x in s.loops(sums) if x not in (*lead, step)])
    init = s.decompose_reduction(sums, step)
    for name in (*parts, sums, init, user):
        for x in [x.var for x in loops_of(s.func, name) if x.var not in lead and x.kind == "serial"]:
            s.unroll(x)
    parallelize(s, user, lead if column is None else lead[:-1], total, target)
    for loop in [x for x in lead if x in s.loops(user)]:
        peel_if_ragged(s, user, loop)


def _add_parts(s: Schedule, sums: str, target: Target) -> tuple[str, ...]:
    """Parts of a long vector are added up as vectors before their lanes are: the blocks that do so."""
    part = part_of_vector(target.lanes(widest_itemsize(s.func, sums)), target)
    if part == 1:
        return ()
    known = set(s.blocks())
    _, inner = s.split(reduce_loops(s.func, sums)[0], (None, part))
    factor_lanes(s, sums, inner, part, unroll_steps=True)
    return tuple(b for b in s.blocks() if b not in known)


def _tiled_loops(s: Schedule, sums: str, user: str) -> tuple[str | None, str | None]:
    """The reader's loops over the last two axes of the sums; None for an axis of one element."""
    block = find_block(s.func, user)
    env = block_environment(block)
    reads = {x.indices for x in loads(block.value) if x.buffer == find_block(s.func, sums).buffer}
    names: list[str | None] = []
    if len(reads) != 1:
        raise ScheduleError(f"{user}: expected to read {sums} at one place, got {len(reads)}")
    for i in next(iter(reads))[-2:]:
        index = i.substitute(env)
        name = as_var(index)
        if name is None and not index.is_const:
            raise ScheduleError(f"{user}: expected an axis of {sums} in one loop, got {index}")
        names.append(name)
    row, column = [None, None, *names][-2:]
    return row, column


VECTORIZED_REDUCTION_AXIS = ScheduleRule(
    "vectorized_reduction_axis", _matches, _apply, ("columns", "rows", *WRITE, *SPREAD)
)
