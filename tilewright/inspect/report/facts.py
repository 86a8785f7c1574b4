"""What a log says of each task: the curve of its best time, failures, how well the cost model ranked, what was gained.

A task here is a workload on a machine. Of several measurements of a candidate the latest counts, at the trial at which
the candidate first came: so the end of a curve is the time that a build relies on. Seconds are those between a result
and the one before it on the same machine; longer pauses count as one minute, so that the night between two sessions is
not tuning time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.autotune.records.record import Machine
from tilewright.inspect.report.rows import Row

_LONGEST_PAUSE = 60.0
_BATCH = 8
_LEAST_BATCH = 4


@dataclass(frozen=True, slots=True)
class Point:
    """One candidate. ``spent``: seconds of tuning this task until it was known. ``seconds``: inf for a failure."""

    number: int
    spent: float
    seconds: float
    best: float
    row: Row


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """``points`` in order. ``default``: the measurement of the default schedule; None if the log has none.
    ``correlations``: trials so far, and the rank correlation in the batch that ended there."""

    workload: str
    machine: Machine
    name: str
    weight: float | None
    points: tuple[Point, ...]
    best: Row | None
    default: Row | None
    failures: dict[str, int]
    correlations: tuple[tuple[int, float], ...]
    measurements: int
    spent: float

    @property
    def speedup(self) -> float | None:
        """Default time divided by the best time; None if either is unknown."""
        if self.best is None or self.default is None or not self.best.seconds or not self.default.seconds:
            return None
        return self.default.seconds / self.best.seconds


def costs(rows: Sequence[Row]) -> dict[int, float]:
    """Seconds that each measurement took, by place of its line."""
    out: dict[int, float] = {}
    last: dict[Machine, float] = {}
    for r in sorted(rows, key=lambda r: (r.time, r.place)):
        before = last.get(r.machine)
        gap = r.own_seconds if before is None else r.time - before
        out[r.place] = min(max(gap, 0.0), _LONGEST_PAUSE)
        last[r.machine] = r.time
    return out


def task_facts(rows: Sequence[Row], default: str | None, cost: dict[int, float]) -> TaskFacts:
    """The facts of one task. ``default``: key of the default's candidate; None: the log does not have it."""
    ordered = sorted(rows, key=lambda r: (r.time, r.place))
    latest = {r.candidate: r for r in ordered}
    wrong = {r.candidate for r in ordered if r.failure == "wrong_result"}
    points: list[Point] = []
    seen: set[str] = set()
    spent, best = 0.0, math.inf
    for r in ordered:
        spent += cost[r.place]
        if r.candidate in seen:
            continue
        seen.add(r.candidate)
        value = latest[r.candidate].seconds
        seconds = math.inf if value is None or r.candidate in wrong else value
        best = min(best, seconds)
        points.append(Point(len(points) + 1, spent, seconds, best, r))
    usable = [r for key, r in latest.items() if r.seconds is not None and key not in wrong]
    weights = [r.weight for r in ordered if r.weight is not None]
    failed = Counter(r.failure for r in latest.values() if r.failure is not None)
    return TaskFacts(
        ordered[0].workload, ordered[0].machine, ordered[-1].task or ordered[0].workload[:12],
        weights[-1] if weights else None, tuple(points),
        min(usable, key=lambda r: (r.seconds or 0.0, r.time, r.candidate), default=None),
        None if default is None else latest.get(default),
        dict(sorted(failed.items())), _correlations(points), len(ordered), spent,
    )  # fmt: skip


def _correlations(points: Sequence[Point]) -> tuple[tuple[int, float], ...]:
    """By batch: scores of different batches come from different models, so they are not compared."""
    batches: list[list[Point]] = []
    for p in points:
        if p.row.predicted is None:
            continue
        last = batches[-1] if batches else None
        same = last is not None and last[0].row.batch == p.row.batch
        if last is None or not same or (p.row.batch is None and len(last) >= _BATCH):
            batches.append([p])
        else:
            last.append(p)
    out: list[tuple[int, float]] = []
    for b in batches:
        if len(b) >= _LEAST_BATCH:
            found = rank_correlation([p.row.predicted or 0.0 for p in b], [p.seconds for p in b])
            if found is not None:
                out.append((b[-1].number, found))
    return tuple(out)


def batch_correlations(tasks: Sequence[TaskFacts]) -> list[tuple[float, float]]:
    """Of all tasks in the order of time: candidates so far, and the rank correlation in the batch that ended there."""
    times = sorted(p.row.time for t in tasks for p in t.points)
    found = sorted((t.points[number - 1].row.time, value) for t in tasks for number, value in t.correlations)
    return [(float(bisect_right(times, time)), value) for time, value in found]


def running_mean(values: Iterable[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """Each value replaced by the mean of itself and up to ``width - 1`` before it."""
    kept = list(values)
    out = []
    for i, (x, _) in enumerate(kept):
        part = [y for _, y in kept[max(0, i + 1 - width) : i + 1]]
        out.append((x, sum(part) / len(part)))
    return out


def weights_of(tasks: Sequence[TaskFacts]) -> dict[int, float]:
    """Shares of the run time by place in ``tasks``: as recorded, else as if each were called once; sum 1."""
    known = all(t.weight is not None for t in tasks)
    raw = [(t.weight if known else None if t.default is None else t.default.seconds) or 0.0 for t in tasks]
    total = sum(raw) or 1.0
    return {i: w / total for i, w in enumerate(raw)}


def total_speedup(tasks: Sequence[TaskFacts], weights: dict[int, float]) -> float | None:
    """All tasks together, weighted; None if no task has both times."""
    before = after = 0.0
    for i, t in enumerate(tasks):
        if t.speedup is not None:
            before += weights[i]
            after += weights[i] / max(t.speedup, 1.0)
    return before / after if after > 0 else None


def saved_shares(tasks: Sequence[TaskFacts], weights: dict[int, float]) -> list[float]:
    """What each task saves of the whole, as a share of what the one that saves most does."""
    saved = [0.0 if t.speedup is None else weights[i] * (1.0 - 1.0 / max(t.speedup, 1.0)) for i, t in enumerate(tasks)]
    most = max(saved) or 1.0
    return [s / most for s in saved]
