"""The winners of a log measured again, each in turns with the default schedule: do they still replay, are their results
still right, are they still worth having?

The default is that of this version. A record does not say how cold the caches were that its network left it; so a time
that differs from the recorded one is told, and is no fault of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Space, candidate_key
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.records.record import Line, Record, isa_class
from tilewright.autotune.review.comparing import best_records
from tilewright.autotune.review.rank_test import holm, rank_test
from tilewright.core.errors import InputError, ParseError, ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.trace import Trace


class Finding(StrEnum):
    """What is true of a winner now. ``unchecked``: of another machine, or not measured yet."""

    HOLDS = "holds"
    SLOWER = "slower than the default"
    ILLEGAL = "does not replay"
    WRONG = "wrong result"
    FAILED = "fails"
    UNCHECKED = "not checked"

    @property
    def is_bad(self) -> bool:
        """True if a build is better without the record."""
        return self not in (Finding.HOLDS, Finding.UNCHECKED)


@dataclass(frozen=True, slots=True)
class Winner:
    """A candidate to measure. ``key``: digest of the trace's text."""

    trace: Trace
    key: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A winner's ``record``, and what was found. ``seconds``, ``default_seconds``: measured now, in turns. ``p``: the
    corrected probability that chance explains their difference. ``why``: of a finding that is not a time."""

    record: Record
    finding: Finding
    why: str = ""
    seconds: float | None = None
    default_seconds: float | None = None
    p: float | None = None

    @property
    def against_default(self) -> float | None:
        """The winner's time divided by the default's."""
        return None if not self.seconds or not self.default_seconds else self.seconds / self.default_seconds

    @property
    def against_record(self) -> float | None:
        """The winner's time divided by the recorded one."""
        return None if not self.seconds or not self.record.seconds else self.seconds / self.record.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        r = self.record
        return {
            "workload": r.workload.hash, "task": r.task, "candidate": r.candidate, "finding": str(self.finding),
            "why": self.why, "recorded_seconds": r.seconds, "seconds": self.seconds,
            "default_seconds": self.default_seconds, "p": self.p,
        }  # fmt: skip


def winners(lines: Iterable[Line], target: Target) -> list[Checked]:
    """The best record of each workload and machine, the slowest kernel first: to be checked if it is for ``target``'s
    vector unit, CPU and threads, and else why it is not."""
    found = sorted(best_records(lines).values(), key=lambda r: (-(r.seconds or 0.0), r.workload.hash))
    return [Checked(r, Finding.UNCHECKED, _foreign(r.target, target)) for r in found]


def recheck(
    todo: Sequence[Checked], measurer: Measurer, rounds: int = 9, alpha: float = 0.05, threshold: float = 0.02,
    on_result: Callable[[Checked], None] | None = None,
) -> list[Checked]:  # fmt: skip
    """Measure those of :func:`winners` that have no reason against it. ``rounds``: samples of each schedule, in turns.
    ``alpha``, ``threshold``: as in :func:`~tilewright.autotune.review.comparing.compare`. ``on_result``: called with
    each as it is known, before ``p`` is corrected for their number."""
    if rounds < 1:
        raise InputError(f"verify: expected at least 1 round, got {rounds}")
    done: list[Checked] = []
    p: dict[int, float] = {}
    for n, c in enumerate(todo):
        if not c.why:
            c, p[n] = _measured(c.record, measurer, rounds)
        done.append(c)
        if on_result is not None:
            on_result(c)
    corrected = holm({n: x for n, x in p.items() if done[n].seconds is not None})
    for n, x in corrected.items():
        ratio = done[n].against_default
        slower = ratio is not None and ratio > 1.0 + threshold and x < alpha
        done[n] = replace(done[n], p=x, finding=Finding.SLOWER if slower else Finding.HOLDS)
    return done


def _measured(record: Record, measurer: Measurer, rounds: int) -> tuple[Checked, float]:
    """The record measured, and how probable the difference to the default is by chance."""
    try:
        func = record.scheduled_function()
        trace = record.trace
        trace.apply(func)
    except (ParseError, ScheduleError) as e:
        return Checked(record, Finding.ILLEGAL, str(e).splitlines()[0]), 1.0
    task = Task(func, record.target, record.dims, name=record.task)
    winner, default = Winner(trace, candidate_key(trace)), Space(func, record.target).default()
    first = measurer.measure(task, [winner])[0]
    if isinstance(first, Failed):
        return _failure(record, first), 1.0
    if winner.key == default.key:
        return Checked(record, Finding.HOLDS, "", first.seconds, first.seconds), 1.0
    mine, its = measurer.remeasure(task, [winner, Winner(default.trace, default.key)], rounds)
    if isinstance(mine, Failed):
        return _failure(record, mine), 1.0
    seconds = _seconds(its)
    p = rank_test(mine.samples, its.samples) if isinstance(its, Ok) else 1.0
    return Checked(record, Finding.HOLDS, "", mine.seconds, seconds), p


def _failure(record: Record, result: Failed) -> Checked:
    found = {FailureKind.ILLEGAL: Finding.ILLEGAL, FailureKind.WRONG_RESULT: Finding.WRONG}
    return Checked(record, found.get(result.kind, Finding.FAILED), f"{result.kind}: {result.message}".splitlines()[0])


def _seconds(result: MeasureResult) -> float | None:
    return result.seconds if isinstance(result, Ok) else None


def _foreign(own: Target, target: Target) -> str:
    """Why a record's time means nothing on ``target``; empty if it does."""
    if isa_class(own) != isa_class(target):
        return f"for {isa_class(own)}; this is {isa_class(target)}"
    if own.cpu != target.cpu:
        return f"for {own.cpu}; this is {target.cpu}"
    return "" if own.threads <= target.threads else f"for {own.threads} threads; there are {target.threads}"
