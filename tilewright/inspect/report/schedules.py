"""The winner of a task beside its default: traces, decisions, loop nests, and how much work one call is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.autotune.base.space import Candidate, Space
from tilewright.autotune.records.record import Record
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.inspect.report.facts import TaskFacts
from tilewright.inspect.report.rows import Log
from tilewright.lowering.flops import func_flops, func_traffic
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Shown:
    """A schedule in words. ``nest``: the loops that it makes, or why it makes none."""

    trace: str
    nest: str
    decisions: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schedules:
    """``default`` None: it is the winner, or the rules refuse the function today. ``dims``: sizes when measured."""

    best: Shown | None
    default: Shown | None
    flops: float
    bytes: float
    dims: Mapping[str, int]
    error: float | None


def default_candidate(record: Record) -> Candidate | None:
    """What the rules make of the record's function today; None if they refuse it."""
    try:
        return Space(record.scheduled_function(), record.target).default()
    except (ParseError, ScheduleError):
        return None


def schedules_of(log: Log, task: TaskFacts, default: Candidate | None) -> Schedules:
    """The texts of a task's best and default schedule."""
    chosen = task.best or task.points[0].row
    record = log.record(chosen)
    try:
        func = record.scheduled_function()
    except ParseError:
        return Schedules(None, None, 0.0, 0.0, record.dims, record.error)
    sized = all(d in record.dims for d in func.dims)
    flops = float(func_flops(func).evaluate(record.dims)) if sized else 0.0
    moved = float(func_traffic(func).evaluate(record.dims)) if sized else 0.0
    best = None if task.best is None else _shown(record, func)
    other = None
    if task.default is not None and task.default.candidate != chosen.candidate:
        other = _shown(log.record(task.default), func)
    elif default is not None and (task.best is None or default.key != chosen.candidate):
        other = Shown(default.trace.to_text(), str(default.func), default.values())
    return Schedules(best, other, flops, moved, record.dims, record.error)


def _shown(record: Record, func: Func) -> Shown:
    try:
        trace: Trace = record.trace
        return Shown(trace.to_text(), str(trace.apply(func)), record.choices())
    except (ParseError, ScheduleError) as e:
        return Shown("", f"this schedule no longer replays: {e}", record.choices())
