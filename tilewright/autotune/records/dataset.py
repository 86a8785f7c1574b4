"""A tuning log as arrays: what was measured, as features and times, for studies that measure nothing again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.autotune.cost_model.features import COLUMNS, TaskFeatures
from tilewright.autotune.records.record import Record
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.schedule.memory import StepMemory
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Dataset:
    """A row per candidate: ``features``, ``seconds`` (inf for a failure), ``groups`` (the task: its name, workload and
    machine), ``candidates`` (keys). ``skipped``: records whose trace does not replay with this version."""

    features: np.ndarray
    seconds: np.ndarray
    groups: tuple[str, ...]
    candidates: tuple[str, ...]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.groups)

    def tasks(self) -> tuple[str, ...]:
        """The groups there are, in order of appearance."""
        return tuple(dict.fromkeys(self.groups))

    def select(self, keep: Sequence[bool] | np.ndarray) -> Dataset:
        """The rows where ``keep`` holds."""
        at = np.flatnonzero(np.asarray(keep, bool))
        groups, candidates = (tuple(x[i] for i in at) for x in (self.groups, self.candidates))
        return Dataset(self.features[at], self.seconds[at], groups, candidates)

    def of(self, *tasks: str) -> Dataset:
        """The rows of some groups."""
        return self.select([g in tasks for g in self.groups])

    def without(self, *tasks: str) -> Dataset:
        """The rows of all other groups."""
        return self.select([g not in tasks for g in self.groups])


def dataset_of(records: Iterable[Record]) -> Dataset:
    """The records as arrays; of several records of one candidate the latest counts."""
    latest: dict[tuple[str, str], Record] = {}
    for r in sorted(records, key=lambda r: (r.time, r.candidate)):
        latest[_group(r), r.candidate] = r
    funcs: dict[str, Func] = {}
    memory = StepMemory()
    rows: list[np.ndarray] = []
    tasks: dict[str, TaskFeatures] = {}
    kept: list[tuple[str, str, float]] = []
    for (group, candidate), r in latest.items():
        try:
            if r.text not in funcs:
                funcs[r.text] = r.scheduled_function()
            func = funcs[r.text]
            scheduled = r.trace.apply(func, memory)
        except (ParseError, ScheduleError):
            continue
        if group not in tasks:
            tasks[group] = TaskFeatures(func, r.target, r.dims)
        rows.append(tasks[group].row(scheduled))
        kept.append((group, candidate, float("inf") if r.seconds is None else r.seconds))
    return Dataset(
        np.stack(rows) if rows else np.zeros((0, len(COLUMNS)), np.float32),
        np.array([s for _, _, s in kept], np.float64),
        tuple(g for g, _, _ in kept),
        tuple(c for _, c, _ in kept),
        len(latest) - len(rows),
    )


def _group(r: Record) -> str:
    return f"{r.task} {r.workload.hash[:10]} {r.target.cpu} t{r.target.threads}"
