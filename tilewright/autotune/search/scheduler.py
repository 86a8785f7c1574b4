"""Which task is tuned next: the one whose next trials are expected to save most of the network's time per second.

A task's share of the network is its weight times its best time relative to its default. The expected gain follows
from the task's own curve (:mod:`tilewright.autotune.search.gain_estimate`). Decisions depend on results only, never
on the clock, so that runs with the same records repeat; the clock only ends them. Source of the idea: Ansor's task
scheduler (Zheng et al., 2020).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.autotune.search.history import TaskResult, microseconds
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, fragment, table, title
from tilewright.core.options import require_choice, require_number, require_whole

BATCH = 8
_FINALISTS = 4
_FINAL_SHARE = 0.2
"""At most this share of the time budget is kept for measuring the best few of every task again."""
_FIRST_BATCH = 4
"""Trials of a task's first turn: the default and a few others, so that every task has its turn early."""


@dataclass(frozen=True, slots=True)
class EffortLevel:
    """``trials``: the most for one task. ``stop_gain``: stop when the whole network is expected to gain less than this
    share from ``horizon`` more trials of every task."""

    trials: int
    stop_gain: float
    horizon: int = 64


class Effort(StrEnum):
    QUICK = "quick"
    NORMAL = "normal"
    THOROUGH = "thorough"


EFFORTS: dict[str, EffortLevel] = {
    Effort.QUICK: EffortLevel(32, 0.03),
    Effort.NORMAL: EffortLevel(192, 0.01),
    Effort.THOROUGH: EffortLevel(1000, 0.003),
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far tuning is. ``speedup``: of all tasks together, expected from their best times. ``remaining_gain``: the
    share of the present time that more trials are expected to save. ``task``: the one whose turn begins or ends."""

    task: str
    trials: int
    elapsed: float
    speedup: float
    remaining_gain: float

    def __str__(self) -> str:
        rate = self.trials / self.elapsed if self.elapsed > 0 else 0.0
        return (
            f"{self.elapsed:6.1f} s  {self.trials:5d} trials ({rate:.1f}/s)  {self.speedup:.2f}x"
            f"  expected to gain {100 * self.remaining_gain:.1f} % more  {self.task}"
        )


@dataclass(frozen=True, slots=True)
class TuneResult:
    """``tasks`` in the order given. ``stopped``: why it ended."""

    tasks: tuple[TaskResult, ...]
    stopped: str
    interrupted: bool
    trials: int
    elapsed: float
    speedup: float
    remaining_gain: float

    def to_dicts(self) -> list[dict[str, object]]:
        """The rows of all tasks (:meth:`TaskResult.to_dicts`), task after task."""
        return [row for t in self.tasks for row in t.to_dicts()]

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def _repr_html_(self) -> str:
        return fragment(*self.pieces())

    def pieces(self) -> list[str]:
        """What a page shows of it: a row for each task."""
        said = (
            f"{self.trials} trials in {self.elapsed:.1f} s, {self.speedup:.2f} times as fast; stopped: {self.stopped}"
        )
        rows = [
            (t.name, microseconds(t.default_seconds), microseconds(None if t.best is None else t.best.seconds),
             f"{t.speedup:.2f}", Bar(1.0 - 1.0 / max(t.speedup, 1.0)), str(len(t.trials)),
             str(sum(t.failures.values())))
            for t in self.tasks
        ]  # fmt: skip
        return [
            title("tuning", said),
            table(("task", " default", " best", " gain", "saved", " trials", " failed"), rows),
        ]


class TaskScheduler:
    """Takes turns among the tuners of several tasks."""

    def __init__(
        self,
        tuners: Sequence[TaskTuner],
        *,
        time_budget_s: float | None = None,
        max_trials: int | None = None,
        effort: str = Effort.NORMAL,
        batch: int = BATCH,
        clock: Callable[[], float] = time.monotonic,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.tuners = tuple(tuners)
        self._level = EFFORTS[require_choice("effort", effort, EFFORTS)]
        self._seconds = None if time_budget_s is None else require_number("time_budget_s", time_budget_s)
        self._max_trials = None if max_trials is None else require_whole("max_trials", max_trials, 0)
        self._batch = batch
        self._clock = clock
        self._begin = clock()
        self._on_progress = on_progress

    # -- what is expected ------------------------------------------------------------------------------------------
    def _share(self, tuner: TaskTuner) -> float:
        """The task's time in the network as it is now."""
        return tuner.task.weight * tuner.ratio

    def speedup(self) -> float:
        """The tasks' default time divided by their best time, weighted."""
        now = sum(map(self._share, self.tuners))
        return sum(t.task.weight for t in self.tuners) / now if now > 0 else 1.0

    def remaining_gain(self) -> float:
        """The share of the present time that ``horizon`` more trials of every task are expected to save."""
        now = sum(map(self._share, self.tuners))
        saved = sum(self._share(t) * t.expected_gain(self._allowed(t, self._level.horizon)) for t in self.tuners)
        return saved / now if now > 0 else 0.0

    def _allowed(self, tuner: TaskTuner, n: int) -> int:
        return max(0, min(n, self._level.trials - len(tuner.history.trials)))

    def choose(self) -> TaskTuner | None:
        """The task with the highest expected gain per second; None if no task has anything left."""
        cost = self._typical_cost()
        best: TaskTuner | None = None
        best_rate = 0.0
        for t in self.tuners:
            n = self._turn(t)
            if not n:
                continue
            gain = t.expected_gain(n)
            seconds = n * (t.history.cost() if t.history.trials else cost)
            rate = self._share(t) * gain / seconds
            if rate > best_rate:
                best, best_rate = t, rate
        return best

    def _turn(self, tuner: TaskTuner) -> int:
        n = self._batch if tuner.history.trials else min(self._batch, _FIRST_BATCH)
        return 0 if tuner.is_exhausted else self._allowed(tuner, n)

    def _typical_cost(self) -> float:
        known = [t.history.cost() for t in self.tuners if t.history.trials]
        return sum(known) / len(known) if known else 0.5

    # -- the run ---------------------------------------------------------------------------------------------------
    def run(self) -> TuneResult:
        """Tune until the budget ends, little gain is expected, or an interrupt (Ctrl-C); returns what was found."""
        while True:
            try:
                stopped = self._reason_to_stop()
                if stopped is not None:
                    self._confirm()
                    return self._result(stopped, False)
                self._take_turn()
            except KeyboardInterrupt:
                return self._result("interrupted", True)

    def _take_turn(self) -> None:
        tuner = self.choose()
        if tuner is None:
            return
        n = self._turn(tuner)
        if self._max_trials is not None:
            n = min(n, self._max_trials - self._trials())
        self._say(tuner)
        tuner.step(n)
        self._say(tuner)

    def _say(self, tuner: TaskTuner) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress(tuner.task.name))

    def _final_seconds(self) -> float:
        """Time that the last measurements need, within the budget."""
        if self._seconds is None:
            return 0.0
        needed = sum(_FINALISTS * t.history.cost() for t in self.tuners if t.trials)
        return min(needed, _FINAL_SHARE * self._seconds)

    def _confirm(self) -> None:
        """Measure the best few of every task again, the weightiest first, while there is time."""
        for tuner in sorted(self.tuners, key=lambda t: -t.task.weight):
            used = self._clock() - self._begin
            if self._seconds is not None and used + _FINALISTS * tuner.history.cost() > self._seconds:
                continue
            if tuner.trials and tuner.ratio < 1.0:
                self._say(tuner)
                tuner.confirm(_FINALISTS - 1)

    def progress(self, task: str) -> Progress:
        """Where things stand."""
        return Progress(task, self._trials(), self._clock() - self._begin, self.speedup(), self.remaining_gain())

    def _reason_to_stop(self) -> str | None:
        elapsed = self._clock() - self._begin
        if self._seconds is not None and elapsed >= self._seconds - self._final_seconds():
            return "the time budget is used"
        if self._max_trials is not None and self._trials() >= self._max_trials:
            return f"{self._trials()} trials"
        if self.choose() is None:
            return "nothing left to try" if all(t.is_exhausted for t in self.tuners) else "trials of this effort used"
        gain = self.remaining_gain()
        if gain < self._level.stop_gain and all(t.history.trials for t in self.tuners):
            return f"little left to gain: {100 * gain:.1f} % expected"
        return None

    def _trials(self) -> int:
        return sum(t.trials for t in self.tuners)

    def _result(self, stopped: str, interrupted: bool) -> TuneResult:
        tasks = tuple(t.result(stopped, interrupted) for t in self.tuners)
        elapsed = self._clock() - self._begin
        return TuneResult(tasks, stopped, interrupted, self._trials(), elapsed, self.speedup(), self.remaining_gain())
