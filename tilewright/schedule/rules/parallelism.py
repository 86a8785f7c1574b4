"""Spreading the outer loops of a nest over threads when there is enough to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.core.arith.expr import IntExpr
from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import loops_of, picoseconds_inside
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_loop

BALANCED = 0.9
"""The :func:`busy_share` that a way to share work must leave, of the most that another would."""
_CHUNKS = 4
_CHUNK_SIZES = (1, 2, 4, 8, 16)


def is_worth_spreading(nanoseconds: float | None, target: Target) -> bool:
    """True if a nest of so many nanoseconds (None: symbolic) should use all threads."""
    return target.threads > 1 and (nanoseconds is None or nanoseconds >= target.costs.parallel_ns)


def feeds_all_threads(steps: int | None, target: Target) -> bool:
    """True if a loop of so many steps (None: symbolic) has a few equal chunks for each thread by itself."""
    return target.threads == 1 or steps is None or steps >= _CHUNKS * target.threads


def busy_share(turns: float, target: Target) -> float:
    """The share of the time in which all threads have something to do, of so many equal turns."""
    each = turns / target.threads
    return each / math.ceil(each)


def parallelize(
    s: Schedule, block: str, outer: Sequence[str], total: float | None, target: Target, work: IntExpr | None = None
) -> None:
    """Fuse the leading loops of ``outer`` (root-level, outermost first) until they feed all threads, in parallel.

    ``total``: estimated nanoseconds of the nest on one thread, None if symbolic (then it is spread). Leaves the nest
    alone when it is too small to split or the target has one thread. Of symbolic work the threads share what is worth
    it when the sizes are known (:mod:`tilewright.tensor_ir.analysis.parallel_if`), that is if ``work``
    is positive (None: :func:`enough_work` of the nest). Decisions: ``<block>.parallel``, how many loops are spread (0:
    none, where threads may not pay), and ``<block>.chunk``, how many iterations belong together.
    """
    if not outer or target.threads == 1 or (total is not None and total < target.costs.never_parallel_ns):
        return
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    own = _count(outer, extents, target) if is_worth_spreading(total, target) else 0
    options = [n for n in range(1, len(outer) + 1) if extents[outer[n - 1]] != 1]
    if total is not None and total < target.costs.always_parallel_ns:
        options.append(0)
    count = choose_number(s, f"{block}.parallel", options, own)
    chosen = list(outer[:count])
    while chosen and not s.attempt(lambda a: _share(a, block, chosen, total, target, work)):
        chosen.pop()


def _share(
    s: Schedule, block: str, chosen: Sequence[str], known: float | None, target: Target, work: IntExpr | None
) -> None:
    """Spread ``chosen``; where the work is not ``known``, on the condition that there is enough of it."""
    loop = _chunked(s, block, chosen, target)
    if known is None and work is None:
        work = enough_work(s, loop, target)
    s.parallel(loop, work if known is None else None)


def enough_work(s: Schedule, loop: str, target: Target) -> IntExpr | None:
    """What is positive where threads should share ``loop``, in the function's dims; None if they do not decide it."""
    work = picoseconds_inside(s.func, find_loop(s.func, loop), target.costs)
    return None if work is None else work - 1000 * target.costs.parallel_ns


def _count(outer: Sequence[str], extents: Mapping[str, int | None], target: Target) -> int:
    """How many loops it takes to have a few equal chunks for each thread."""
    total = extents[outer[0]]
    for n, name in enumerate(outer[1:], 1):
        if (
            total is not None
            and total >= _CHUNKS * target.threads
            and (total % target.threads == 0 or total >= 16 * target.threads)
        ):
            return n
        step = extents[name]
        total = None if total is None or step is None else total * step
    return len(outer)


def _chunked(s: Schedule, block: str, chosen: Sequence[str], target: Target) -> str:
    """The loop over chunks of the fused loops ``chosen``."""
    loop = s.fuse(*chosen) if len(chosen) > 1 else chosen[0]
    total = find_loop(s.func, loop).extent.value()
    sizes = [c for c in _CHUNK_SIZES if total is not None and total % c == 0 and total // c >= 2 * target.threads]
    chunk = choose_number(s, f"{block}.chunk", sizes, 1)
    return loop if chunk == 1 else s.split(loop, (None, chunk))[0]
