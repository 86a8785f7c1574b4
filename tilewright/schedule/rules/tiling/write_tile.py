"""Inside a register tile: the reduction's own loops, rows written out, columns in vectors; and its operands' stages.

Decisions: ``<acc>.steps`` (whether the last reduction loop goes outside the others: taps inside channels),
``<acc>.unroll`` (steps of the innermost one written out), ``<stage>.at`` (where an operand is padded or packed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tilewright.core.arith.expr import product
from tilewright.machine.target import Target
from tilewright.schedule.primitives.sampling.sample_compute_location import INLINE, ROOT
from tilewright.schedule.rules.elementwise import vectorize_inner
from tilewright.schedule.rules.facts import (
    all_blocks,
    buffer_bytes,
    is_packed_operand,
    is_spatial,
    loops_of,
    reads_windows,
    reduce_loops,
    reduction_feeders,
)
from tilewright.schedule.rules.parallelism import feeds_all_threads
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers, find_block, find_buffer, find_loop
from tilewright.tensor_ir.ir import Op, loads, walk_expr, walk_index

_UNROLLS = (1, 2, 3, 4, 8)
_BYTES_OF_LANE = 4


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


def inner_sums(s: Schedule, reduction: str) -> list[str]:
    """Sums of which only ``reduction`` makes its own, column by column, as it scales each: they are made in its
    steps. Not sums that windows of it share."""
    block = find_block(s.func, reduction)
    feeders = [(f, find_block(s.func, f).buffer) for f in reduction_feeders(s, reduction)]
    return [f for f, made in feeders if is_packed_operand(made, block) and not reads_windows(block, {made})]


def write_inner_sums(s: Schedule, names: Sequence[str], reduction: str, lanes: int) -> None:
    """In each step of ``reduction``, which is written, loops over steps of their own, all columns in registers."""
    step = [x for x in reduce_loops(s.func, reduction) if find_loop(s.func, x).kind == "serial"][-1]
    for name in names:
        s.compute_at(name, step)
        above = [x.var for x in loops_of(s.func, reduction)]
        write_reduction(s, name, lanes, set(above[: above.index(step) + 1]))


def write_out(s: Schedule, block: str, loops: Sequence[str], lanes: int) -> None:
    """Vector lanes from the innermost loop, everything else unrolled."""
    if not loops:
        return
    *outer, last = loops
    extent = find_loop(s.func, last).extent.value()
    if extent is None or extent > lanes:
        middle, last = s.split(last, (None, lanes))
        outer.append(middle)
    if extent != 1:
        s.vectorize(last)
    for name in outer:
        s.unroll(name)


def lanes_stored(s: Schedule, block: str, lanes: int) -> int:
    """Lanes of the vectors in which a tile is finished: ``lanes``, but where bytes are rounded, or come from a table,
    as many as make a whole vector of them, if the innermost loop has them: those of several vectors are packed into
    one."""
    stored, extent = find_block(s.func, block), loops_of(s.func, block)[-1].extent.value()
    read = [i for x in loads(stored.value) if x.dtype.itemsize == 1 for i in x.indices]
    from_table = any(next(walk_index(i), None) is not None for i in read)
    rounded = stored.value.dtype.itemsize == 1 and any(
        isinstance(x, Op) and x.name == "round" for x in walk_expr(stored.value)
    )
    if extent is None or extent % lanes or not (from_table or rounded):
        return lanes
    return min(lanes * _BYTES_OF_LANE, extent)


def operand_stages(s: Schedule, reduction: str) -> list[str]:
    """Stages at the root that only the reduction reads, each once: the padded or packed operand."""
    block = find_block(s.func, reduction)
    stages = {b.buffer: b for b in all_blocks(s.func) if is_spatial(b)}
    found = dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer in stages)
    return [stages[n].name for n in found if [u.name for u in consumers(s.func, n)] == [reduction]]


def place_stages(
    s: Schedule, stages: Sequence[str], around: Sequence[str], target: Target, own: Mapping[str, str] | None = None
) -> None:
    """Compute an operand's stage at one of the loops around the tile, or where it is read, if so decided. ``own``:
    where some are by default."""
    for stage in stages:
        options = list(around)
        if s.copy().attempt(partial(Schedule.compute_inline, block=stage)):
            options.append(INLINE)
        if not options:
            continue
        default = (own or {}).get(stage) or _near(s, stage, around, target)
        where = s.sample_compute_location(stage, options, default)
        if where == INLINE:
            s.compute_inline(stage)
        elif where != ROOT:
            s.compute_at(stage, where)
            vectorize_inner(s, stage, around.index(where) + 1, target)


def _near(s: Schedule, stage: str, around: Sequence[str], target: Target) -> str:
    """Where a stage is computed by default. One that makes elements of another type, as of a weight of few bits, at the
    outermost loop, if each is made once there, those of a step stay in the second-level cache, and the loop has steps
    for all threads: so they are never in memory. Any other at the root."""
    block = find_block(s.func, stage)
    made = find_buffer(s.func, block.buffer).dtype
    if not around or not feeds_all_threads(find_loop(s.func, around[0]).extent.value(), target):
        return ROOT
    if all(find_buffer(s.func, x.buffer).dtype == made for x in loads(block.value)):
        return ROOT
    near = s.copy()
    if not near.attempt(lambda a: a.compute_at(stage, around[0])):
        return ROOT
    once = product(x.extent for x in loops_of(near.func, stage)) == product(a.extent for a in block.axes)
    size = buffer_bytes(find_buffer(near.func, block.buffer))
    return around[0] if once and size is not None and size <= target.beside_bytes else ROOT
