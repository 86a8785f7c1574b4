"""The parts of the page below its head: gains, failures, roofline, the cost model, verdicts, and each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from tilewright.autotune.records.record import Verdict
from tilewright.inspect.report.charts import Work, best_curve, correlation_curve, failure_bars, network_curve, roofline
from tilewright.inspect.report.facts import TaskFacts
from tilewright.inspect.report.rows import Row
from tilewright.inspect.report.schedules import Schedules, Shown
from tilewright.inspect.report.words import DASH, THIN, TIMES, duration, ratio, short_time
from tilewright.runtime.profile import Peaks

_ABOVE = 1.05
"""Beyond this share of a peak it is the peak that was measured badly."""


def gains(
    tasks: Sequence[TaskFacts], weights: Mapping[int, float], verdicts: Mapping[str, Verdict], weighted: bool
) -> str:
    """A row a task, the heaviest first."""
    saved = {i: weights[i] * (1.0 - 1.0 / max(t.speedup, 1.0)) for i, t in enumerate(tasks) if t.speedup is not None}
    most = max(saved.values(), default=0.0) or 1.0
    rows = []
    for i, t in enumerate(tasks):
        failed = sum(t.failures.values())
        rows.append(
            f'<tr><td class="n">{i + 1}</td><td class="name"><a href="#t{i + 1}">{escape(t.name)}</a></td>'
            f'<td class="n">{100 * weights[i]:.1f}</td><td class="n">{_seconds(t.default)}</td>'
            f'<td class="n">{_seconds(t.best)}</td><td class="n">{ratio(t.speedup)}</td>'
            f'<td class="wide"><span class="bar" style="width:{100 * max(saved.get(i, 0.0), 0.0) / most:.1f}%"></span>'
            f'</td><td class="n">{len(t.points)}</td><td class="n">{failed or ""}</td>'
            f"<td>{_verdict(verdicts.get(t.workload))}</td></tr>"
        )
    count = sum(t.speedup is not None and t.speedup > 1.01 for t in tasks)
    note = (
        "Weights are shares of the network's run time with default schedules, as the tuner measured them."
        if weighted
        else "The log does not say how much of a network each task is, so each counts as called once."
    )
    curve = network_curve(tasks, weights)
    figure = f'<div class="figures"><figure>{curve}</figure></div>' if curve else ""
    return (
        f"<h2>{count} of {len(tasks)} tasks run faster than by default</h2><p class=soft>{note} The bar is what a task "
        'saves of the whole.</p><div class="scroll"><table><thead><tr><th class="n">#</th><th>task</th>'
        '<th class="n">weight %</th><th class="n">default µs</th><th class="n">best µs</th><th class="n">gain</th>'
        '<th></th><th class="n">trials</th><th class="n">failed</th><th>in the network</th></tr></thead><tbody>'
        f"{''.join(rows)}</tbody></table></div>{figure}"
    )


def failures(tasks: Sequence[TaskFacts]) -> str:
    """By kind, over all tasks."""
    kinds: Counter[str] = Counter()
    for t in tasks:
        kinds.update(t.failures)
    trials = sum(len(t.points) for t in tasks)
    if not kinds:
        return f"<h2>None of {trials} candidates failed</h2>"
    total = sum(kinds.values())
    return (
        f"<h2>{total} of {trials} candidates failed</h2><p class=soft>A failed candidate is never used. wrong result: "
        "not what the naive schedule computes; a build never takes such a candidate, whatever is measured later.</p>"
        f'<div class="scroll">{failure_bars(kinds, trials)}</div>'
    )


def roof(work: Sequence[Work], peaks: Peaks | None, why_none: str) -> str:
    """The roofline of the tasks that compute."""
    counted = [w for w in work if w.flops > 0 and w.bytes > 0]
    if not counted:
        return ""
    if peaks is None:
        head, note = "How fast the tasks compute", f"The machine's peaks are left out: {why_none}. "
    else:
        shares = [_share_of_roof(w, peaks) * w.weight for w in counted]
        mean = sum(shares) / (sum(w.weight for w in counted) or 1.0)
        head = f"On average the tasks run at {100 * mean:.0f} % of what the machine allows them"
        note = "The lines are the machine's peaks, measured for this page. "
        above = sum(w.flops / w.best > _ABOVE * peaks.flops_per_second for w in counted)
        if above:
            note += f"{above} tasks are above them, so the machine was busy then. "
    note += (
        "Operations are those of the naive loop nest, bytes those of all parameters, each moved once. A ring is the "
        "default schedule, a disc the best one, larger for a heavier task; numbers are those of the table above."
    )
    return f'<h2>{head}</h2><p class=soft>{note}</p><figure class="large">{roofline(counted, peaks)}</figure>'


def cost_model(tasks: Sequence[TaskFacts]) -> str:
    """How well it ranked, over all tasks in the order of time."""
    found = sorted((t.points[number - 1].row.time, value, number) for t in tasks for number, value in t.correlations)
    if not found:
        return "<h2>The log holds no predictions</h2><p class=soft>So nothing can be said about the cost model.</p>"
    times = sorted(p.row.time for t in tasks for p in t.points)
    at: list[tuple[float, float]] = []
    done = 0
    for time, value, _ in found:
        while done < len(times) and times[done] <= time:
            done += 1
        at.append((float(done), value))
    late = [v for _, v in at[len(at) // 2 :]]
    return (
        f"<h2>The cost model's rank correlation was {sum(late) / len(late):.2f} in the second half</h2>"
        "<p class=soft>Spearman's correlation between the predicted and the measured order of the candidates of a "
        "batch, before the model had seen them: 1 is the same order, 0 chance. It ranks what the search "
        "already selected, which is harder than ranking random candidates. The line is the mean of eight batches.</p>"
        f'<div class="figures"><figure>{correlation_curve(at, len(times), 8)}</figure></div>'
    )


def one_task(number: int, t: TaskFacts, s: Schedules, machine: str) -> str:
    """Curves, decisions, traces and loop nests of one task."""
    if t.best is None:
        head = f"{escape(t.name)} has no candidate that works"
    elif t.default is None:
        head = f"{escape(t.name)} takes {short_time(t.best.seconds or 0.0)}; the log has no time of its default"
    elif t.speedup is None:
        head = f"{escape(t.name)} takes {short_time(t.best.seconds or 0.0)}; its default failed"
    elif t.default is not None and t.default.candidate == t.best.candidate:
        head = f"{escape(t.name)} takes {short_time(t.best.seconds or 0.0)}; nothing is faster than its default"
    else:
        head = (
            f"{escape(t.name)} takes {short_time(t.best.seconds or 0.0)}, {t.speedup:.2f} times as fast as by default"
        )
    sizes = ", ".join(f"{escape(str(k))} = {v}" for k, v in s.dims.items())
    failed = ", ".join(f"{n} {escape(k.replace('_', ' '))}" for k, n in t.failures.items())
    facts = [
        f"{len(t.points)} candidates in {duration(t.spent)}", f"failed: {failed}" if failed else "none failed",
        machine, f"workload <code>{escape(t.workload[:12])}</code>", *([f"sizes {sizes}"] if sizes else []),
        *([f"largest error {s.error:.1e}"] if s.error else []),
    ]  # fmt: skip
    figures = [best_curve(t, False), best_curve(t, True)]
    if t.correlations:
        figures.append(correlation_curve(t.correlations, len(t.points)))
    drawn = "".join(f"<figure>{f}</figure>" for f in figures if f)
    return (
        f'<h3 id="t{number}">{number}. {head}</h3><p class=soft>{"; ".join(facts)}.</p>'
        f'<div class="figures">{drawn}</div>{_decisions(s)}{_texts(s)}'
    )


def _decisions(s: Schedules) -> str:
    if s.best is None or not s.best.decisions:
        return ""
    before = s.default.decisions if s.default is not None else s.best.decisions
    labels = list(dict.fromkeys([*before, *s.best.decisions]))
    rows = []
    for label in labels:
        old, new = (_choice(d.get(label)) for d in (before, s.best.decisions))
        rows.append(
            f'<tr{" class=changed" if old != new else ""}><td class="name">{escape(str(label))}</td>'
            f"<td>{escape(old)}</td><td>{escape(new)}</td></tr>"
        )
    return (
        '<div class="scroll"><table><thead><tr><th>decision</th><th>default</th><th>best</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _texts(s: Schedules) -> str:
    if s.best is None:
        return ""
    sides: list[tuple[str, Shown]] = [("default", s.default), ("best", s.best)] if s.default else [("best", s.best)]
    out = []
    for what, part in (("Trace", "trace"), ("Loop nest", "nest")):
        cells = "".join(
            f"<div><span class=soft>{name}</span><pre>{escape(getattr(x, part))}</pre></div>" for name, x in sides
        )
        out.append(f'<details><summary>{what}</summary><div class="pair">{cells}</div></details>')
    return "".join(out)


def _choice(value: object) -> str:
    if value is None:
        return DASH
    return f" {TIMES} ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _seconds(r: Row | None) -> str:
    return DASH if r is None or r.seconds is None else f"{r.seconds * 1e6:,.1f}".replace(",", THIN)


def _verdict(v: Verdict | None) -> str:
    if v is None:
        return ""
    change = v.tuned_seconds / v.default_seconds
    return f"{'used' if v.helps else 'default kept'}, {change:.2f}{TIMES} the time"


def _share_of_roof(w: Work, peaks: Peaks) -> float:
    return min(1.0, max(w.flops / peaks.flops_per_second, w.bytes / peaks.bytes_per_second) / w.best)
