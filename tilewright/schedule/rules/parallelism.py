"""Spreading the outer loops of a nest over threads when there is enough to do."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.rules.facts import loops_of
from tilewright.schedule.schedule import Schedule

MIN_NANOSECONDS = 8_000
_CHUNKS = 4


def is_worth_spreading(work: float | None, target: Target) -> bool:
    """True if a nest of ``work`` nanoseconds (None: symbolic) should use all threads."""
    return target.threads > 1 and (work is None or work >= MIN_NANOSECONDS)


def parallelize(s: Schedule, block: str, outer: Sequence[str], work: float | None, target: Target) -> None:
    """Fuse the leading loops of ``outer`` (root-level, outermost first) until they feed all threads, in parallel.

    ``work``: estimated nanoseconds of the nest on one thread, None if symbolic (then it is spread). Leaves the nest
    alone when it is too small to split or the target has one thread.
    """
    if not outer or not is_worth_spreading(work, target):
        return
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    chosen = [outer[0]]
    total = extents[outer[0]]
    for name in outer[1:]:
        if total is not None and total >= _CHUNKS * target.threads and (
            total % target.threads == 0 or total >= 16 * target.threads
        ):
            break
        chosen.append(name)
        step = extents[name]
        total = None if total is None or step is None else total * step
    while chosen:
        try:
            loop = s.fuse(*chosen) if len(chosen) > 1 else chosen[0]
            s.parallel(loop)
        except ScheduleError:
            chosen.pop()
        else:
            return
