"""Blocks that share loops with others, as the stages of a recurrence share the loop over its steps.

The shared loops stay as they are, and each block is scheduled below them: a reduction as register tiles of rows of the
batch by its innermost result loops, everything else as vectors. Of the shared loops, the outermost is spread over
threads if its iterations are independent (the directions of a recurrence). Otherwise the threads share each step: its
panels, if all blocks of it go panel by panel, or each large reduction. So each keeps its part of the weights in its own
cache. Decisions: ``<block>.rows``, rows of a register tile, and ``<block>.parallel``, 1 if threads share a step.
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
from tilewright.schedule.rules.parallelism import enough_work, is_worth_spreading
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import blocks_in, find_block, find_loop, runs_in_order
from tilewright.tensor_ir.ir import Loop


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
    """Register tiles of the innermost loops that fit, and of rows, along which the largest operand stays where it is;
    the reduction around a tile. Rows that tiles leave are a smaller one, or one by one where their number is not known.
    """
    lanes, steps = target.lanes(widest_itemsize(s.func, block)), reduce_loops(s.func, block)
    loops = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    outer = [n for n in loops if n not in steps and n not in shared]
    if not outer or (width := loops[outer[-1]]) is None:
        raise ScheduleError(f"{block}: no innermost loop of constant extent to make vectors of")
    last = outer.pop()
    outer, still = _largest_first(s, block, outer)
    row = next((n for n in reversed(still) if loops[n] not in (0, 1)), None)
    inside, vectors = [last], [-(-width // lanes)]
    while outer and (n := loops[outer[-1]]) is not None and vectors[-1] * n <= _most_vectors(vectors[-1], row, target):
        inside.insert(0, outer.pop())
        vectors.append(vectors[-1] * n)
    if row is None:
        _write(s, block, [*outer, *still], steps, inside, lanes)
        return
    still.remove(row)
    own, of_tile = _rows(loops[row], vectors, target)
    rows = choose_number(s, f"{block}.rows", range(1, min(loops[row] or own, own + 1) + 1), own)
    around, tile = inside[:-of_tile], inside[-of_tile:]
    if rows == 1:
        _write(s, block, [*outer, *still, row, *around], steps, tile, lanes)
        return
    over, row = s.split(row, (None, rows))
    s.reorder(*outer, *still, over, row, *around, *steps, *tile)
    rest = _peeled(s, over)
    if rows < vectors[of_tile - 1] and width % lanes == 0:  # of the fewer, all stay in registers beside the results
        middle, last = s.split(last, (None, lanes))
        _write(s, block, around, steps, [*tile[:-1], middle, row, last], lanes)
    else:
        _write(s, block, around, steps, [row, *tile], lanes)
    if rest is not None:
        _write_rest(s, rest, len(inside), len(around), target.result_registers // vectors[-1], lanes)


def _write_rest(s: Schedule, block: str, inside: int, around: int, most: int, lanes: int) -> None:
    """The rows that tiles leave, with so many loops ``inside`` of a row: one tile, in which a row has all of these, or
    all but ``around`` if there are more than ``most`` rows; or one by one, if their number is not known."""
    steps = reduce_loops(s.func, block)
    first, *last = [x for x in loops_of(s.func, block) if x.var not in steps][-1 - inside :]
    left, names = first.extent.value(), [x.var for x in last]
    if left is None:
        _write(s, block, [first.var], steps, names, lanes)
        return
    outside = 0 if left <= most else around
    _write(s, block, names[:outside], steps, [first.var, *names[outside:]], lanes)


def _largest_first(s: Schedule, block: str, loops: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of ``loops`` along which the operand moves that is walked by most of the nest's loops; and the others."""
    nest = {x.var for x in loops_of(s.func, block)}
    reads = [x.address.free_vars() & nest for x in block_accesses(s.func, block) if not x.is_store]
    largest = max(reads, key=len)
    return [n for n in loops if n in largest], [n for n in loops if n not in largest]


def _most_vectors(vectors: int, row: str | None, target: Target) -> int:
    """Vectors of a row at most, where it has so many: those of two rows fit the registers, if there are any."""
    enough = row is not None and vectors >= target.costs.step_cycles
    return target.result_registers // (2 if enough else 1)


def _rows(count: int | None, vectors: Sequence[int], target: Target) -> tuple[int, int]:
    """Rows of a tile, and how many of the innermost loops it has: of what fits, with the fewest loads a multiply-add.

    ``count``: all rows, which are cut into equal parts; None if symbolic. ``vectors``: of a row, by number of loops.
    """
    limits = [max(1, target.result_registers // v) for v in vectors]
    rows = [n if count is None else -(-count // -(-count // n)) for n in limits]
    loads = [(r + v) / (r * v) for r, v in zip(rows, vectors, strict=True)]
    best = min(range(len(vectors)), key=lambda k: (loads[k], -k))
    return rows[best], best + 1


def _peeled(s: Schedule, loop: str) -> str | None:
    """The block of what whole tiles leave, in a nest of its own; None where they leave nothing."""
    tails: list[str] = []
    if not s.attempt(lambda a: tails.append(a.peel(loop))):
        return None
    return blocks_in(find_loop(s.func, tails[0]).body)[0].name


def _write(
    s: Schedule, block: str, outer: Sequence[str], steps: Sequence[str], tile: Sequence[str], lanes: int
) -> None:
    """The reduction's ``steps`` inside of ``outer`` and around ``tile``, written out, after its initial values."""
    s.reorder(*outer, *steps, *tile)
    init = s.decompose_reduction(block, steps[0])
    write_out(s, block, tile, lanes)
    write_out(s, init, [x.var for x in loops_of(s.func, init)][-len(tile) :], lanes)


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
    """Threads over the outermost loop of a step that a reduction has for itself, or shares with all that need its
    results, if one step of it is work enough; where its size is symbolic, on the condition that it is."""
    own = [x for x in _in_a_step(s, block) if x.extent != 1]
    if target.threads == 1 or not own or own[0].kind != "serial" or own[0].var in reduce_loops(s.func, block):
        return
    points, over = prod(x.extent.value() or 1 for x in own), own[0].var
    nanoseconds, condition = points * widest_itemsize(s.func, block) / target.costs.stream_rate, None
    if not is_worth_spreading(nanoseconds, target) and not all(x.extent.is_const for x in own):
        condition = enough_work(s, over, target)
    if condition is None and nanoseconds < target.costs.never_parallel_ns:
        return
    worth = condition is not None or is_worth_spreading(nanoseconds, target)
    if choose_number(s, f"{block}.parallel", (0, 1), int(worth)):
        s.parallel(over, condition)


def _in_a_step(s: Schedule, block: str) -> list[Loop]:
    """The loops around ``block`` in one that has to run in order; all, if there is none."""
    loops = loops_of(s.func, block)
    ordered = [n for n, x in enumerate(loops, 1) if runs_in_order(x)]
    return list(loops[max(ordered, default=0) :])


RECURRENCE = ScheduleRule("recurrence", _matches, _apply, ("rows", *ELEMENTS, *WRITE))
