"""The charts of the page: a task's best time, the cost model's rank correlation, failures by kind, the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tilewright.inspect.report.facts import Point, TaskFacts, running_mean
from tilewright.inspect.report.svg import Axis, Frame
from tilewright.runtime.profile import Peaks

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
        return self.flops / self.bytes


def best_curve(task: TaskFacts, by_seconds: bool) -> str:
    """Measured times as dots, the best so far as steps, the default schedule's as a dashed line."""
    measured = [p for p in task.points if math.isfinite(p.seconds)]
    if not measured:
        return ""
    best = min(p.best for p in measured)
    default = None if task.default is None else task.default.seconds
    top = max(max(p.seconds for p in measured), default or 0.0)
    scale = 1e6 if best < 1e-3 else 1e3
    unit = "µs" if scale == 1e6 else "ms"
    high = max(min(top, _HIGHEST * best), 1.3 * best, (default or 0.0)) * 1.08
    y = Axis(f"best time, {unit}", best * 0.93, high, True, scale)
    last = task.points[-1]
    x = Axis("seconds", 0.0, max(last.spent, 1e-3)) if by_seconds else Axis("trials", 0.0, float(last.number))
    frame = Frame(x, y)

    def across(p: Point) -> float:
        return p.spent if by_seconds else float(p.number)

    marks = [frame.dots([(across(p), p.seconds) for p in measured], "dots")]
    if default is not None:
        marks.append(frame.line([(x.low, default), (x.high, default)], "rule"))
        marks.append(frame.text(x.high, default, "default", anchor="end"))
    steps = [(across(p), p.best) for i, p in enumerate(measured) if i == 0 or p.best < measured[i - 1].best]
    marks.append(frame.steps([*steps, (x.high, best)], "best"))
    return frame.svg(marks, f"best time of {task.name} against {'seconds' if by_seconds else 'trials'}")


def correlation_curve(found: Sequence[tuple[float, float]], trials: int, mean_of: int = _MEAN_OF) -> str:
    """The rank correlation in each batch as dots, and its running mean."""
    y = Axis("rank correlation", -1.0, 1.0)
    frame = Frame(Axis("trials", 0.0, float(max(trials, 1))), y)
    marks = [
        frame.line([(0.0, 0.0), (frame.x.high, 0.0)], "zero"),
        frame.dots(list(found), "dots", 2.0),
        frame.line(running_mean(found, mean_of), "best"),
    ]
    return frame.svg(marks, "rank correlation of predicted and measured times against trials")


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
    curve = [(0.0, 1.0)]
    for _, spent, i, change in sorted(events):
        seconds += spent
        if change:
            total += weights[i] / scale * change
            curve.append((seconds, total))
    y = Axis("% of the default's time", 0.0, 1.05, scale=100)
    frame = Frame(Axis("seconds of tuning", 0.0, seconds or 1.0), y)
    curve.append((frame.x.high, total))
    marks = [frame.line([(0.0, 1.0), (frame.x.high, 1.0)], "rule"), frame.steps(curve, "best")]
    return frame.svg(marks, "weighted time of all tasks against seconds of tuning")


def failure_bars(kinds: Mapping[str, int], trials: int) -> str:
    """A bar a kind, with its number."""
    most = max(kinds.values(), default=1)
    rows = "".join(
        f'<tr><td>{escape(k.replace("_", " "))}</td><td class="n">{n}</td><td class="n">{100 * n / trials:.1f} %</td>'
        f'<td class="wide"><span class="bar bad" style="width:{100 * n / most:.1f}%"></span></td></tr>'
        for k, n in sorted(kinds.items(), key=lambda x: -x[1])
    )
    return (
        '<table><thead><tr><th>kind</th><th class="n">candidates</th><th class="n">of all</th><th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def roofline(work: Sequence[Work], peaks: Peaks | None) -> str:
    """Operations per second against operations per byte; each task from its default (ring) to its best (disc)."""
    speeds = [w.flops / s for w in work for s in (w.best, w.default) if s]
    intensities = [w.intensity for w in work]
    high = max([*speeds, *([peaks.flops_per_second] if peaks else [])]) * 1.4
    left, right = min(intensities) / 1.6, max(intensities) * 2.0
    low = min(speeds) / 1.6
    if peaks:
        left, right = min(left, _ridge(peaks) / 2.0), max(right, _ridge(peaks) * 2.0)
        low = min(low, left * peaks.bytes_per_second)
    x = Axis("operations per byte", left, right, True)
    frame = Frame(x, Axis("Gop/s", low, high, True, 1e-9), 520.0, 330.0)
    marks: list[str] = []
    if peaks:
        corners = (x.low, _ridge(peaks), x.high)
        limits = [(at, min(peaks.flops_per_second, at * peaks.bytes_per_second)) for at in corners]
        marks.append(frame.line(limits, "roof"))
        peak = f"{peaks.flops_per_second / 1e9:.0f} GFLOP/s"
        marks.append(frame.text(x.high, peaks.flops_per_second, peak, "note", "end"))
        memory = f"{peaks.bytes_per_second / 1e9:.1f} GB/s"
        marks.append(frame.text(x.low, x.low * peaks.bytes_per_second, memory, lift=18))
    for w in sorted(work, key=lambda w: w.weight):
        speed = w.flops / w.best
        told = f"{w.number} {w.name}: {speed / 1e9:.1f} Gop/s, {w.intensity:.1f} operations per byte"
        if w.default:
            before = w.flops / w.default
            marks.append(frame.line([(w.intensity, before), (w.intensity, speed)], "rise"))
            marks.append(frame.dot(w.intensity, before, 2.5, "ring"))
        marks.append(frame.dot(w.intensity, speed, 2.5 + 5 * math.sqrt(w.weight), "disc", told))
    marks += _numbers(frame, work)
    return frame.svg(marks, "roofline: operations per second against operations per byte")


def _numbers(frame: Frame, work: Sequence[Work]) -> list[str]:
    """The tasks' numbers beside their discs, the heaviest first, where there is room."""
    taken: list[tuple[float, float]] = []
    out = []
    for w in sorted(work, key=lambda w: -w.weight):
        x, y = frame.place(w.intensity, w.flops / w.best)
        if all(abs(x - a) > _APART or abs(y - b) > _APART for a, b in taken):
            taken.append((x, y))
            out.append(frame.text(w.intensity, w.flops / w.best, str(w.number), anchor="middle", lift=8))
    return out


def _ridge(peaks: Peaks) -> float:
    return peaks.flops_per_second / peaks.bytes_per_second
