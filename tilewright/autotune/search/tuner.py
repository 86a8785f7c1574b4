"""Tuning one task: propose, measure, record, learn; step by step, so that a scheduler can take turns among tasks.

The default schedule is always measured first. Nothing is measured twice: what the database has of this workload on this
machine counts as measured, so that the same command goes on where it stopped. Records are written as results arrive.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.autotune.base.measure_result import MeasureResult
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.predict import FeatureCache, ModelScore
from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.cost_model.xgboost_model import default_model
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Record, make_record, result_of
from tilewright.autotune.records.session import Session
from tilewright.autotune.search.gain_estimate import expected_gain
from tilewright.autotune.search.history import History, TaskResult, Trial
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import Maker, SearchSpace, Strategy
from tilewright.autotune.search.warm_start import warm_start
from tilewright.core.errors import InputError
from tilewright.core.options import require_choice, require_whole

Callback = Callable[["TaskTuner", Trial], None]
"""Called with every new trial, as soon as it is recorded."""


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop. ``max_trials``: measured now, the default included; None for no limit. ``seconds``: by the clock.
    ``early_stopping``: trials in a row without a better one. ``batch``: candidates proposed at a time; part of what
    makes runs repeat, so it does not follow the number of workers."""

    max_trials: int | None = 64
    seconds: float | None = None
    early_stopping: int | None = None
    batch: int = 8

    def __post_init__(self) -> None:
        for name in ("max_trials", "early_stopping", "batch"):
            if getattr(self, name) is not None:
                require_whole(f"Budget: {name}", getattr(self, name))
        if self.max_trials is None and self.seconds is None and self.early_stopping is None:
            raise InputError("Budget: expected max_trials, seconds or early_stopping, got none of them")


@dataclass(frozen=True, slots=True)
class TunerConfig:
    """``strategy``: a name in ``STRATEGIES``, or a maker of your own; ``params``: its parameters. ``replayed``: how
    many records of the database are rebuilt to learn from them; the others are only never measured again."""

    strategy: str | Maker = "annealing"
    params: Mapping[str, object] = field(default_factory=dict)
    replayed: int = 256


class TaskTuner:
    """The state of tuning one task. ``training_set`` may be shared by the tuners of several tasks. ``session``: where
    its records are from."""

    def __init__(
        self,
        task: Task,
        space: SearchSpace,
        measurer: Measurer,
        *,
        training_set: TrainingSet | None = None,
        database: Database | None = None,
        config: TunerConfig | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        callbacks: Iterable[Callback] = (),
        session: Session | None = None,
    ) -> None:
        if space.func != task.func:
            raise InputError(f"{task.name}: expected a space over the task's function, got one over {space.func.name}")
        self.task = task
        self.space = space
        self.config = TunerConfig() if config is None else config
        self.history = History()
        self.correlations: list[tuple[int, float]] = []
        self.is_exhausted = False
        self._measurer = measurer
        self._database = database
        self._seed = seed
        self._clock = clock
        self._wall_clock = wall_clock
        self._callbacks = tuple(callbacks)
        self._session = session
        self._training_set = TrainingSet(default_model(seed)) if training_set is None else training_set
        if training_set is None and database is not None:
            warm_start(self._training_set, database, task.target, task.described.hashes())
        self._cache = FeatureCache(task.func, task.target, task.dims)
        self._score = ModelScore(self._training_set.model, self._cache)
        # the generator depends on the task, not on its place among others
        self._rng = np.random.default_rng([seed, int(task.workload[:12], 16)])
        self._strategy = self._make_strategy()
        self._known: set[str] = set()
        self._spent = 0.0
        self._resume()

    def _make_strategy(self) -> Strategy:
        chosen = self.config.strategy
        if isinstance(chosen, str):
            chosen = STRATEGIES[require_choice("strategy", chosen, STRATEGIES)]
        return chosen(self.space, self._score, self._rng, self.config.params)

    # -- what is known ---------------------------------------------------------------------------------------------
    @property
    def trials(self) -> int:
        """Candidates measured now, without those from the database."""
        return sum(not t.recorded for t in self.history.trials)

    @property
    def default_seconds(self) -> float | None:
        """The time of the default schedule; None before it was measured, or if it failed."""
        found = self._trial_of_default()
        return found.seconds if found is not None and math.isfinite(found.seconds) else None

    @property
    def ratio(self) -> float:
        """The best time as a share of the default's; 1 while unknown."""
        best, default = self.history.best, self.default_seconds
        return 1.0 if best is None or default is None else min(1.0, best.seconds / default)

    def expected_gain(self, more: int) -> float:
        """The share of the best time that ``more`` trials are expected to save; 0 if nothing is left to try."""
        return 0.0 if self.is_exhausted else expected_gain(self.history.bests, more, self.history.spread())

    # -- one step --------------------------------------------------------------------------------------------------
    def step(self, n: int) -> list[Trial]:
        """Measure up to ``n`` new candidates; none if the space is exhausted."""
        start, before = self._clock(), self._spent
        batch = self._batch(n)
        predicted = self._score(batch)
        first = len(self.history.trials)
        noted: set[int] = set()

        def note(place: int, result: MeasureResult) -> None:
            self._spent = before + self._clock() - start
            t = Trial(first + place, batch[place], result, float(predicted[place]), self._spent, batch=first)
            self._keep(t, place in noted)
            noted.add(place)

        try:
            if batch:
                self._measurer.measure(self.task, batch, note)
        finally:
            self._spent = before + self._clock() - start
            done = self.history.settle(first)
            self._learn(done)
        return done

    def confirm(self, count: int = 3, rounds: int = 5, slack: float = 0.15) -> None:
        """Measure the default and the best few, those within ``slack`` of the best, again and in turns; the winner
        of that is the best."""
        finalists = self.history.finalists(count, slack)
        default = self._trial_of_default()
        if default is not None and default not in finalists:
            finalists.append(default)
        if len(finalists) < 2:
            return
        results = self._measurer.remeasure(self.task, [t.candidate for t in finalists], rounds)
        again = [replace(t, result=o) for t, o in zip(finalists, results, strict=True)]
        if self._database is not None:
            for t in again:
                self._database.append(self._record(t))
        self.history.confirm(again)

    def _trial_of_default(self) -> Trial | None:
        return next((t for t in self.history.trials if self._is_default(t.candidate)), None)

    def _is_default(self, candidate: Candidate) -> bool:
        return candidate.key == self.space.default().key

    def _batch(self, n: int) -> list[Candidate]:
        """The default first, then what the strategy proposes that is not known yet."""
        out: list[Candidate] = []
        default = self.space.default()
        if default.key not in self._known:
            self._known.add(default.key)
            out.append(default)
        while len(out) < n:
            proposed = self._strategy.propose(n - len(out))
            if not proposed:
                self.is_exhausted = True
                break
            for c in proposed:
                if c.key not in self._known:
                    self._known.add(c.key)
                    out.append(c)
        return out

    def _keep(self, t: Trial, again: bool) -> None:
        """Record a trial; ``again``: more is known of it than when it was recorded first."""
        if again:
            self.history.replace(t)
        else:
            self.history.add(t)
        if self._database is not None:
            self._database.append(self._record(t))
        for callback in self._callbacks if not again else ():
            callback(self, t)

    def _learn(self, new: Sequence[Trial]) -> None:
        if not new:
            return
        self._strategy.observe([(t.candidate, t.result) for t in new])
        seconds = [t.seconds for t in new]
        found = rank_correlation([t.predicted for t in new], seconds)
        if found is not None:
            self.correlations.append((len(self.history.trials), found))
        self._training_set.add(self._cache.rows([t.candidate for t in new]), seconds, self.task.workload)
        self._training_set.refit()

    # -- records ---------------------------------------------------------------------------------------------------
    def _record(self, t: Trial) -> Record:
        name = self.config.strategy if isinstance(self.config.strategy, str) else "own strategy"
        made = make_record(self.task, t.candidate, t.result, name, self._seed, self._wall_clock(), self._session)
        facts = {
            "predicted": round(t.predicted, 6), "batch": t.batch, "elapsed": round(t.elapsed, 3),
            "weight": round(self.task.weight, 6), **({"default": True} if self._is_default(t.candidate) else {}),
            **({"implementation": self.task.implementation} if self.task.implementation else {}),
        }  # fmt: skip
        return replace(made, extra=facts)

    def _resume(self) -> None:
        """Take what the database has of this workload on this machine as measured."""
        if self._database is None:
            return
        records = self._database.measured(self.task.described, self.task.target)
        self._known.update(records)
        ordered = sorted(records.values(), key=lambda r: (r.time, r.candidate))
        rebuilt: list[Trial] = []
        default = self.space.default()
        first = [r for r in ordered if r.candidate == default.key]
        others = [r for r in ordered if r.candidate != default.key]
        for r in first + others[-self.config.replayed :]:
            c = default if r.candidate == default.key else self.space.with_decisions(r.choices())
            if c is not None and c.key == r.candidate:
                rebuilt.append(Trial(len(rebuilt), c, result_of(r), recorded=True))
        if rebuilt:
            for t in rebuilt:
                self.history.add(t)
            self._learn(rebuilt)
            self.correlations.clear()

    def result(self, stopped: str, interrupted: bool = False) -> TaskResult:
        """What there is now."""
        return TaskResult(
            name=self.task.name,
            best=self.history.best,
            default_seconds=self.default_seconds,
            trials=tuple(self.history.trials),
            stopped=stopped,
            interrupted=interrupted,
            remaining_gain=self.expected_gain(max(1, len(self.history.trials))),
            correlations=tuple(self.correlations),
            failures=self.history.failures(),
        )


def tune_task(
    task: Task,
    space: SearchSpace,
    measurer: Measurer,
    *,
    strategy: str | Maker = "annealing",
    params: Mapping[str, object] | None = None,
    training_set: TrainingSet | None = None,
    database: Database | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
    callbacks: Iterable[Callback] = (),
    session: Session | None = None,
) -> TaskResult:
    """Tune one task until the budget or the space ends. Interrupt it (Ctrl-C) any time: what was found is returned."""
    budget = Budget() if budget is None else budget
    begin = clock()
    tuner = TaskTuner(
        task, space, measurer, training_set=training_set, database=database, config=TunerConfig(strategy, params or {}),
        seed=seed, clock=clock, callbacks=callbacks, session=session,
    )  # fmt: skip
    try:
        while True:
            stopped = _reason_to_stop(tuner, budget, clock() - begin)
            if stopped is not None:
                tuner.confirm()
                return tuner.result(stopped)
            left = budget.batch if budget.max_trials is None else min(budget.batch, budget.max_trials - tuner.trials)
            tuner.step(left)
    except KeyboardInterrupt:
        return tuner.result("interrupted", interrupted=True)


def _reason_to_stop(tuner: TaskTuner, budget: Budget, elapsed: float) -> str | None:
    if tuner.is_exhausted:
        return "the space is exhausted"
    if budget.max_trials is not None and tuner.trials >= budget.max_trials:
        return f"{tuner.trials} trials"
    if budget.seconds is not None and elapsed >= budget.seconds:
        return f"{elapsed:.0f} seconds"
    if budget.early_stopping is not None and tuner.history.since_improvement() >= budget.early_stopping:
        return f"no better one in {budget.early_stopping} trials"
    return None
