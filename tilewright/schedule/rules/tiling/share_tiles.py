"""Threads over the loops outside the tiles, with partial tiles peeled off so that whole ones run without tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import all_blocks, loops_of
from tilewright.schedule.rules.parallelism import enough_work, feeds_all_threads, is_worth_spreading, parallelize
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block


def spread(s: Schedule, block: str, lead: list[str], ragged: list[str], total: float | None, target: Target) -> None:
    """Threads over the loops outside the tile; partial tiles peeled off so that whole ones run without tests."""
    symbolic = [] if ragged else _symbolic_rows(s, block, lead)
    ragged = ragged or symbolic
    free = [x for x in lead if x not in ragged]
    worth = is_worth_spreading(total, target)
    count = _count(s, block, free)
    few = not feeds_all_threads(count, target) if symbolic else count < 8 * target.threads
    shared = _first(s, block, lead) in ragged or few
    if ragged and worth and shared and s.attempt(lambda a: _spread_over_tiles(a, block, lead, ragged, total, target)):
        return
    if ragged and worth and lead != [*free, *ragged]:
        s.attempt(lambda a: a.reorder(*free, *ragged))
    parallelize(s, block, free, total, target)
    for name in ragged:
        s.attempt(partial(Schedule.peel, loop=name))


def is_ragged(s: Schedule, block: str, loop: str) -> bool:
    """True if some loop inside ``loop`` has a shorter extent in its last iteration, and that extent is a constant."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    return loops[loop].extent.is_const and any(loop in x.extent.free_vars() for x in loops.values())


def _symbolic_rows(s: Schedule, block: str, lead: Sequence[str]) -> list[str]:
    """The loop over a symbolic number of tiles of which the last is partial, unless it is the only one."""
    loops = {x.var: x for x in loops_of(s.func, block)}
    several = [n for n in lead if not loops[n].extent.is_const and upper_bound(loops[n].extent, {}) != 1]
    return [n for n in several if any(n in x.extent.free_vars() for x in loops.values())]


def _spread_over_tiles(
    s: Schedule, block: str, lead: list[str], ragged: list[str], total: float | None, target: Target
) -> None:
    """The same where the rows of tiles are shared out too: the partial ones first become a nest of their own."""
    rows_first = _first(s, block, lead) in ragged
    work = enough_work(s, lead[0], target) if total is None else None
    s.reorder(*ragged, *(x for x in lead if x not in ragged))
    for name in _peeled(s, block, ragged[0], len(lead)):
        around = loops_of(s.func, name)[: len(lead)]
        loops = [x.var for x in around]
        if not rows_first or (name != block and not around[0].extent.is_const):  # that has one step, if any
            loops = [*loops[len(ragged) :], *loops[: len(ragged)]]
            s.reorder(*loops)
        parallelize(s, name, loops, total, target, work if name == block else None)


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
        ragged = next((x for x in loops if is_ragged(s, tail, x)), None)
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
