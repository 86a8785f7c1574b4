"""What tuning a task gave so far: trials in order, the best, failures by kind, the curve of the best time."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.autotune.base.measure_result import Failed, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.search.strategies.base import seconds_of
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, code, details, facts, fragment, table, title


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured candidate. ``predicted``: the model's score before measuring. ``elapsed``: seconds of tuning this
    task when it was done. ``recorded``: it comes from the database and was not measured now. ``batch``: how many trials
    there were before the batch that it was proposed in."""

    number: int
    candidate: Candidate
    result: MeasureResult
    predicted: float = 0.0
    elapsed: float = 0.0
    recorded: bool = False
    batch: int = 0

    @property
    def seconds(self) -> float:
        """The measured time; inf for a failure."""
        return seconds_of(self.result)


@dataclass(slots=True)
class History:
    """Trials of one task, and what follows from them."""

    trials: list[Trial] = field(default_factory=list)
    bests: list[float] = field(default_factory=list)
    """The best time after each trial; inf while none succeeded."""
    best: Trial | None = None

    def add(self, t: Trial) -> None:
        """One more trial."""
        self.trials.append(t)
        if math.isfinite(t.seconds) and (self.best is None or t.seconds < self.best.seconds):
            self.best = t
        self.bests.append(math.inf if self.best is None else self.best.seconds)

    def replace(self, t: Trial) -> None:
        """More is known of trial ``t.number``."""
        first = next(i for i, old in enumerate(self.trials) if old.number == t.number)
        self._rewrite(first, [t, *self.trials[first + 1 :]])

    def settle(self, first: int) -> list[Trial]:
        """Put the trials from place ``first`` on into the order of their numbers; these trials."""
        new = sorted(self.trials[first:], key=lambda t: t.number)
        if new != self.trials[first:]:
            self._rewrite(first, new)
        return new

    def _rewrite(self, first: int, new: Sequence[Trial]) -> None:
        """``new`` in place of the trials from place ``first`` on."""
        del self.trials[first:], self.bests[first:]
        self.best = min(self.trials, key=lambda t: t.seconds, default=None)
        if self.best is not None and not math.isfinite(self.best.seconds):
            self.best = None
        for t in new:
            self.add(t)

    def finalists(self, count: int, slack: float) -> list[Trial]:
        """The best ``count`` trials, best first, those within ``slack`` (relative) of the best."""
        if self.best is None:
            return []
        limit = self.best.seconds * (1.0 + slack)
        return sorted((t for t in self.trials if t.seconds <= limit), key=lambda t: t.seconds)[:count]

    def confirm(self, again: Sequence[Trial]) -> None:
        """Replace trials by what measuring them again gave; the best is now the best of these."""
        by_number = {t.number: t for t in again}
        self.trials = [by_number.get(t.number, t) for t in self.trials]
        winner = min(again, key=lambda t: t.seconds)
        if math.isfinite(winner.seconds):
            self.best = winner

    def since_improvement(self) -> int:
        """Trials after the best one."""
        return len(self.trials) if self.best is None else len(self.trials) - 1 - self.best.number

    def spread(self) -> float:
        """Standard deviation of the logarithms of the times; 0 for less than two."""
        logs = [math.log(t.seconds) for t in self.trials if math.isfinite(t.seconds)]
        return statistics.pstdev(logs) if len(logs) > 1 else 0.0

    def failures(self) -> dict[str, int]:
        """How many trials failed, by kind."""
        return dict(Counter(str(t.result.kind) for t in self.trials if isinstance(t.result, Failed)))

    def cost(self) -> float:
        """Seconds that one more trial is expected to take, from the results alone, so that runs repeat."""
        costs = [
            0.1 + t.result.compile_seconds + 2.0 * sum(max(s, 0.01) for s in t.result.samples)
            for t in self.trials
            if isinstance(t.result, Ok)
        ]
        return sum(costs) / len(costs) if costs else 0.5


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What tuning a task ended with. ``stopped``: why; ``remaining_gain``: the share of the best time that as many
    trials again are expected to save; ``correlations``: rank correlation of prediction and measurement, by batch."""

    name: str
    best: Trial | None
    default_seconds: float | None
    trials: tuple[Trial, ...]
    stopped: str
    interrupted: bool
    remaining_gain: float
    correlations: tuple[tuple[int, float], ...] = ()
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Default time divided by the best time; 1 if either is unknown."""
        if self.best is None or self.default_seconds is None:
            return 1.0
        return self.default_seconds / self.best.seconds

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each trial in order: ``seconds`` (None if it failed), ``best`` so far, ``predicted`` (the model's
        score), ``failure``, ``elapsed``, ``batch``, ``recorded``, ``is_best``, and each decision by its label."""
        rows: list[dict[str, object]] = []
        best: float | None = None
        for t in self.trials:
            seconds = t.seconds if math.isfinite(t.seconds) else None
            best = min((s for s in (best, seconds) if s is not None), default=None)
            rows.append({
                "task": self.name, "number": t.number, "seconds": seconds, "best": best, "predicted": t.predicted,
                "failure": str(t.result.kind) if isinstance(t.result, Failed) else None, "elapsed": t.elapsed,
                "batch": t.batch, "recorded": t.recorded,
                "is_best": self.best is not None and t.number == self.best.number, **t.candidate.values(),
            })  # fmt: skip
        return rows

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def _repr_html_(self) -> str:
        said = {
            "trials": str(len(self.trials)), "best": microseconds(None if self.best is None else self.best.seconds),
            "default": microseconds(self.default_seconds), "gain": f"{self.speedup:.2f} times",
            "expected to gain": f"{100 * self.remaining_gain:.1f} %", "stopped": self.stopped,
            **{f"failed: {kind}": str(n) for kind, n in self.failures.items()},
        }  # fmt: skip
        shortest = 0.0 if self.best is None else self.best.seconds
        rows = [
            (str(t.number), microseconds(t.seconds), Bar(shortest / t.seconds), f"{t.predicted:.2f}",
             ", ".join(f"{k}={v}" for k, v in t.candidate.values().items()))
            for t in sorted(self.trials, key=lambda t: t.seconds)
        ]  # fmt: skip
        trials = table((" trial", " time", "speed", " predicted", "decisions"), rows)
        parts = [title(self.name), facts(said), details("trials", trials)]
        if self.best is not None:
            c = self.best.candidate
            parts += [
                details("best trace", code(c.trace.to_text())),
                details("best loop nest", code(str(c.func))),
            ]
        return fragment(*parts)


def microseconds(seconds: float | None) -> str:
    """``12.3 us``, for a table; in words for a failure and for what is not known."""
    if seconds is None:
        return "not known"
    return f"{seconds * 1e6:,.1f} us" if math.isfinite(seconds) else "failed"
