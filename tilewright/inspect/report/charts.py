"""The charts of the page: a task's best time, the network's, the cost model's rank correlation, the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.inspect.report.drawing import BG, FG, GOOD, MARK, SOFT, Axis, chart, dots, level, line, note, steps
from tilewright.inspect.report.facts import Point, TaskFacts, running_mean
from tilewright.runtime.profile import Peaks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HIGHEST = 6.0
"""Measurements slower than this many times the best are drawn at the upper border."""
_MEAN_OF = 4
_APART = 13.0


@dataclass(frozen=True, slots=True)
class Work:
    """Operations and compulsory bytes of one call of a task, and its seconds before and after tuning."""

    number: int
    name: str
    flops: float
    bytes: float
    default: float | None
    best: float
    weight: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes

    @property
    def speed(self) -> float:
        """Operations per second of the best schedule."""
        return self.flops / self.best

    def share_of(self, peaks: Peaks) -> float:
        """The time that the peaks allow, divided by the best time; at most 1."""
        return min(1.0, max(self.flops / peaks.flops_per_second, self.bytes / peaks.bytes_per_second) / self.best)


def best_curve(task: TaskFacts, by_seconds: bool) -> str:
    """Measured times as dots, the best so far as steps, the default schedule's as a dashed line."""
    measured = [p for p in task.points if math.isfinite(p.seconds)]
    if not measured:
        return ""
    best = min(p.best for p in measured)
    scale, unit = (1e6, "µs") if best < 1e-3 else (1e3, "ms")
    default = 0.0 if task.default is None else task.default.seconds or 0.0
    high = max(min(max(p.seconds for p in measured), _HIGHEST * best), 1.3 * best, default) * 1.08 * scale
    last = task.points[-1]
    x = Axis("seconds", 0.0, max(last.spent, 1e-3)) if by_seconds else Axis("trials", 0.0, float(last.number))

    def across(p: Point) -> float:
        return p.spent if by_seconds else float(p.number)

    def draw(axes: Axes) -> None:
        dots(axes, [(across(p), min(p.seconds * scale, high)) for p in measured])
        if default:
            level(axes, default * scale, "default")
        falls = [p for i, p in enumerate(measured) if i == 0 or p.best < measured[i - 1].best]
        steps(axes, [*((across(p), p.best * scale) for p in falls), (x.high, best * scale)])

    y = Axis(f"best time, {unit}", best * 0.93 * scale, high, log=True)
    return chart(f"best time of {task.name} against {x.label}", x, y, draw)


def correlation_curve(found: Sequence[tuple[float, float]], trials: int, mean_of: int = _MEAN_OF) -> str:
    """The rank correlation in each batch as dots, and its running mean."""

    def draw(axes: Axes) -> None:
        level(axes, 0.0)
        dots(axes, found)
        line(axes, running_mean(found, mean_of))

    x, y = Axis("trials", 0.0, float(max(trials, 1))), Axis("rank correlation", -1.0, 1.0)
    return chart("rank correlation of predicted and measured times against trials", x, y, draw)


def network_curve(tasks: Sequence[TaskFacts], weights: Mapping[int, float]) -> str:
    """All tasks together: their weighted time relative to the default schedules, against seconds of tuning."""
    events: list[tuple[float, float, int, float]] = []
    for i, t in enumerate(tasks):
        if t.speedup is None or t.default is None or not t.default.seconds:
            continue
        ratio = 1.0
        for before, p in zip((None, *t.points), t.points, strict=False):
            spent = p.spent - (0.0 if before is None else before.spent)
            now = min(1.0, p.best / t.default.seconds)
            events.append((p.row.time, spent, i, now - ratio))
            ratio = now
    if not events:
        return ""
    total, seconds = 1.0, 0.0
    scale = sum(weights[i] for i, t in enumerate(tasks) if t.speedup is not None) or 1.0
    curve = [(0.0, 100.0)]
    for _, spent, i, change in sorted(events):
        seconds += spent
        if change:
            total += weights[i] / scale * change
            curve.append((seconds, 100 * total))
    x, y = Axis("seconds of tuning", 0.0, seconds or 1.0), Axis("% of the default's time", 0.0, 105.0)

    def draw(axes: Axes) -> None:
        level(axes, 100.0)
        steps(axes, [*curve, (x.high, 100 * total)])

    return chart("weighted time of all tasks against seconds of tuning", x, y, draw)


def roofline(work: Sequence[Work], peaks: Peaks | None) -> str:
    """Operations per second against operations per byte; each task from its default (ring) to its best (disc)."""
    speeds = [w.flops / s for w in work for s in (w.best, w.default) if s]
    high = max([*speeds, *([peaks.flops_per_second] if peaks else [])]) * 1.4
    left, right = min(w.intensity for w in work) / 1.6, max(w.intensity for w in work) * 2.0
    low = min(speeds) / 1.6
    if peaks:
        ridge = peaks.flops_per_second / peaks.bytes_per_second
        left, right = min(left, ridge / 2.0), max(right, ridge * 2.0)
        low = min(low, left * peaks.bytes_per_second)

    def draw(axes: Axes) -> None:
        if peaks:
            _roof(axes, peaks, left, right)
        for w in sorted(work, key=lambda w: w.weight):
            if w.default:
                before = w.flops / w.default / 1e9
                line(axes, [(w.intensity, before), (w.intensity, w.speed / 1e9)], MARK, 1.0)
                axes.plot(w.intensity, before, "o", mfc=BG, mec=SOFT, ms=5, clip_on=False)
            size, gid = 5 + 10 * math.sqrt(w.weight), f"disc{w.number}"
            axes.plot(w.intensity, w.speed / 1e9, "o", c=GOOD, alpha=0.8, mew=0, ms=size, clip_on=False, gid=gid)
        _numbers(axes, work)

    x, y = Axis("operations per byte", left, right, log=True), Axis("Gop/s", low / 1e9, high / 1e9, log=True)
    told = {
        f"disc{w.number}": f"{w.number} {w.name}: {w.speed / 1e9:.1f} Gop/s, {w.intensity:.1f} operations per byte"
        for w in work
    }
    return chart("roofline: operations per second against operations per byte", x, y, draw, told, (520.0, 330.0))


def _roof(axes: Axes, peaks: Peaks, left: float, right: float) -> None:
    top, slope = peaks.flops_per_second / 1e9, peaks.bytes_per_second / 1e9
    line(axes, [(at, min(top, at * slope)) for at in (left, top / slope, right)], FG, 1.3)
    note(axes, right, top, f"{top:.0f} GFLOP/s", "right")
    note(axes, 1.5 * left, 1.5 * left * slope, f"{slope:.1f} GB/s", "left", -12)


def _numbers(axes: Axes, work: Sequence[Work]) -> None:
    """The tasks' numbers beside their discs, the heaviest first, where there is room."""
    taken: list[tuple[float, float]] = []
    for w in sorted(work, key=lambda w: -w.weight):
        x, y = axes.transData.transform((w.intensity, w.speed / 1e9)) * 72 / axes.figure.dpi
        if all(abs(x - a) > _APART or abs(y - b) > _APART for a, b in taken):
            taken.append((x, y))
            note(axes, w.intensity, w.speed / 1e9, str(w.number), lift=8)
