"""Blocks that share loops with others, as the stages of a recurrence share the loop over its steps.

The shared loops stay as they are, and each block is scheduled below them: a reduction as a register tile of its
innermost result loops (initial values first, then its own loops around the tile), everything else as vectors. Of the
shared loops, the outermost is spread over threads if its iterations are independent (the directions of a recurrence).
Otherwise the threads share each large reduction in every step: each keeps its part of the weights in its own cache.
Decision: ``<block>.parallel``, 1 if they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import ELEMENTS, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import schedule_elementwise
from tilewright.schedule.rules.facts import (
    all_blocks,
    block_accesses,
    is_reduction,
    loops_of,
    reduce_loops,
    shared_loops,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import is_worth_spreading
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import blocks_in, find_block, find_loop


def _matches(s: Schedule, block: str, target: Target) -> list[str]:
    """The outermost loop of ``block`` if it shares it with others."""
    return shared_loops(s.func, block)[:1]


def _apply(s: Schedule, block: str, match: str, target: Target) -> None:
    """Schedule all blocks inside of the loop ``match``."""
    for name in _inside(s, match):
        s.attempt(partial(_schedule, block=name, shared=shared_loops(s.func, name), target=target))
    _spread(s, match, target)


def _inside(s: Schedule, loop: str) -> list[str]:
    """The blocks in ``loop``, in program order."""
    return [b.name for b in all_blocks(s.func) if any(x.var == loop for x in loops_of(s.func, b.name))]


def _schedule(s: Schedule, block: str, shared: Sequence[str], target: Target) -> None:
    if is_reduction(find_block(s.func, block)):
        _tile(s, block, shared, target)
    else:
        schedule_elementwise(s, block, target, above=len(shared))


def _tile(s: Schedule, block: str, shared: Sequence[str], target: Target) -> None:
    """The result loops that fit the registers innermost and written out, the reduction around them."""
    lanes = target.lanes(widest_itemsize(s.func, block))
    steps = reduce_loops(s.func, block)
    loops = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    results = [n for n in loops if n not in steps and n not in shared]
    if not results or (width := loops[results[-1]]) is None:
        raise ScheduleError(f"{block}: no innermost loop of constant extent to make vectors of")
    inside, vectors = [results.pop()], -(-width // lanes)
    while results and (n := loops[results[-1]]) is not None and vectors * n <= target.result_registers:
        inside.insert(0, results.pop())
        vectors *= n
    s.reorder(*_largest_first(s, block, results), *steps, *inside)
    init = s.decompose_reduction(block, steps[0])
    write_out(s, block, inside, lanes)
    write_out(s, init, [x.var for x in loops_of(s.func, init)][-len(inside) :], lanes)


def _largest_first(s: Schedule, block: str, loops: Sequence[str]) -> list[str]:
    """``loops`` with those outside along which the operand that is walked by most of the nest's loops moves."""
    reads = [x for x in block_accesses(s.func, block) if not x.is_store]
    largest = max(reads, key=lambda x: len(x.address.free_vars()))
    return sorted(loops, key=lambda n: n not in largest.address.free_vars())


def _spread(s: Schedule, loop: str, target: Target) -> None:
    """Threads over the outermost shared loop if that is legal and worth it; or over the reductions of each step."""
    inside = _inside(s, loop)
    extent = find_loop(s.func, loop).extent
    worth = extent != 1 and is_worth_spreading(total_nanoseconds(s.func, inside, target.costs), target)
    if worth and s.attempt(lambda a: a.parallel(loop)):
        return
    for name in inside:
        if is_reduction(find_block(s.func, name)):
            s.attempt(partial(_spread_step, block=name, target=target))


def _spread_step(s: Schedule, block: str, target: Target) -> None:
    """Threads over the outermost loop that a reduction has for itself, if one step of it is work enough."""
    buffer, steps = find_block(s.func, block).buffer, reduce_loops(s.func, block)
    own = [x for x in loops_of(s.func, block) if {b.buffer for b in blocks_in(x.body)} == {buffer}]
    points = prod(x.extent.value() or 1 for x in own)
    nanoseconds = points * widest_itemsize(s.func, block) / target.costs.stream_rate
    if target.threads == 1 or not own or own[0].var in steps or nanoseconds < target.costs.never_parallel_ns:
        return
    worth = int(is_worth_spreading(nanoseconds, target))
    if choose_number(s, f"{block}.parallel", (0, 1), worth):
        s.parallel(own[0].var)


RECURRENCE = ScheduleRule("recurrence", _matches, _apply, (*ELEMENTS, *WRITE))
