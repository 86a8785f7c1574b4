"""Blocks that share loops with others, as the stages of a recurrence share the loop over its steps.

The shared loops stay as they are, and each block is scheduled below them: a reduction as a register tile of its
innermost result loops (initial values first, then its own loops around the tile), everything else as vectors. Of the
shared loops, the outermost is spread over threads if its iterations are independent (the directions of a recurrence).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
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
from tilewright.schedule.rules.spatial import schedule_spatial
from tilewright.schedule.rules.tiles import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block


def steps_rule(s: Schedule, block: str, target: Target) -> bool:
    """Schedule ``block`` and all blocks that share its outermost loop; False if there are no others."""
    shared = shared_loops(s.func, block)
    if not shared:
        return False
    for name in _inside(s, shared[0]):
        s.attempt(partial(_schedule, block=name, shared=shared_loops(s.func, name), target=target))
    _spread(s, shared[0], target)
    return True


def _inside(s: Schedule, loop: str) -> list[str]:
    """The blocks in ``loop``, in program order."""
    return [b.name for b in all_blocks(s.func) if any(x.var == loop for x in loops_of(s.func, b.name))]


def _schedule(s: Schedule, block: str, shared: Sequence[str], target: Target) -> None:
    if is_reduction(find_block(s.func, block)):
        _tile(s, block, shared, target)
    else:
        schedule_spatial(s, block, target, above=len(shared))


def _tile(s: Schedule, block: str, shared: Sequence[str], target: Target) -> None:
    """The result loops that fit the registers innermost and written out, the reduction around them."""
    lanes = target.lanes(widest_itemsize(s.func, block))
    steps = reduce_loops(s.func, block)
    loops = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    results = [n for n in loops if n not in steps and n not in shared]
    if not results or (width := loops[results[-1]]) is None:
        raise ScheduleError(f"{block}: no innermost loop of constant extent to make vectors of")
    inside, vectors = [results.pop()], -(-width // lanes)
    while results and (n := loops[results[-1]]) is not None and vectors * n <= target.vector_registers * 3 // 4:
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
    """Threads over the outermost shared loop if that is legal and worth it."""
    inside = _inside(s, loop)
    extent = next(x.extent for x in loops_of(s.func, inside[0]) if x.var == loop)
    if extent == 1 or not is_worth_spreading(total_nanoseconds(s.func, inside), target):
        return
    s.attempt(lambda a: a.parallel(loop))
