"""The page: read the log, gather the facts of each task, fill in the template."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.lookup.precision import account
from tilewright.autotune.records.pruning import recorded_default
from tilewright.autotune.records.record import Machine, machine_of
from tilewright.core.errors import TilewrightError
from tilewright.core.html.code import highlighted
from tilewright.core.html.style import page_style
from tilewright.core.io.files import begins_with
from tilewright.inspect.report import words
from tilewright.inspect.report.charts import Work, best_curve, correlation_curve, network_curve, roofline
from tilewright.inspect.report.facts import (
    TaskFacts,
    batch_correlations,
    costs,
    saved_shares,
    task_facts,
    total_speedup,
    weights_of,
)
from tilewright.inspect.report.rows import Log, Row, read_log
from tilewright.inspect.report.schedules import Schedules, default_candidate, schedules_of
from tilewright.machine.target import Target
from tilewright.runtime.profile import Peaks

if TYPE_CHECKING:
    from jinja2 import Template

MeasurePeaks = Callable[[int], Peaks]

_BEGIN = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Tuning report: '
PAGE = begins_with("a report page", _BEGIN.encode())
"""What :func:`report` makes, as a file."""
_FILTERS = (
    highlighted,
    words.choice,
    words.counted,
    words.duration,
    words.machine,
    words.microseconds,
    words.ratio,
    words.short_time,
)


def report(path: str | Path, here: Target | None = None, measure_peaks: MeasurePeaks | None = None) -> str:
    """The page for the log at ``path``. ``here``: this machine; ``measure_peaks``: its peaks for a number of threads.

    Raises InputError if there is no such log or it has no measurement; TilewrightError without jinja2 or matplotlib.
    """
    _require_packages()
    log = read_log(path)
    found = _tasks(log)
    weights = weights_of([t for t, _ in found])
    order = sorted(range(len(found)), key=lambda i: (-weights[i], found[i][0].name, found[i][0].workload))
    tasks = [found[i][0] for i in order]
    shares = {n: weights[i] for n, i in enumerate(order)}
    schedules = [schedules_of(log, *found[i]) for i in order]
    peaks, why_no_peaks = _peaks(tasks, here, measure_peaks)
    return _template().render(
        begin=_BEGIN, style=page_style(), log=log, tasks=tasks, shares=shares, schedules=schedules,
        facts=_facts(log, tasks),
        days=dict.fromkeys(time.strftime("%Y-%m-%d", time.gmtime(f(r.time for r in log.rows))) for f in (min, max)),
        speedup=total_speedup(tasks, shares), saved=saved_shares(tasks, shares), network=network_curve(tasks, shares),
        faster=sum(t.speedup is not None and t.speedup > 1.01 for t in tasks),
        weighted=all(t.weight is not None for t in tasks),
        verdicts={v.workload: v for v in sorted(log.verdicts, key=lambda v: (v.time, v.candidate))},
        precisions=_precisions(log),
        failures=sum((Counter(t.failures) for t in tasks), Counter()), candidates=sum(len(t.points) for t in tasks),
        curves=[_curves(t) for t in tasks], peaks=peaks, why_no_peaks=why_no_peaks,
        **_roof(_work(tasks, schedules, shares), peaks), **_cost_model(tasks),
    )  # fmt: skip


def _precisions(log: Log) -> list[str]:
    """The account of each network's latest choice of precision on a machine."""
    ordered = sorted((c for c in log.choices if c.workload == c.network), key=lambda c: (c.time, c.implementation))
    return [account(c) for c in {(c.network, machine_of(c.target)): c for c in ordered}.values()]


def _require_packages() -> None:
    missing = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise TilewrightError(
            f"report: expected jinja2 and matplotlib, found no {' and no '.join(missing)}: "
            "pip install 'tilewright[report]'"
        )


def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {f.__name__: f for f in _FILTERS}
    return environment.get_template("page.html")


def _tasks(log: Log) -> list[tuple[TaskFacts, Candidate | None]]:
    """The tasks of a log, and what the rules make of each today."""
    cost = costs(log.rows)
    groups: dict[tuple[str, Machine], list[Row]] = {}
    for r in log.rows:
        groups.setdefault((r.workload, r.machine), []).append(r)
    found: list[tuple[TaskFacts, Candidate | None]] = []
    for rows in groups.values():
        default = default_candidate(log.record(rows[0]))
        known = default is not None and any(r.candidate == default.key for r in rows)
        key = default.key if known and default is not None else recorded_default(rows)
        found.append((task_facts(rows, key, cost), default))
    return found


def _facts(log: Log, tasks: Sequence[TaskFacts]) -> dict[str, str]:
    candidates, spent = sum(len(t.points) for t in tasks), sum(t.spent for t in tasks)
    machines = dict.fromkeys(t.machine for t in tasks)
    return {
        "tasks": str(len(tasks)),
        "candidates": words.count(candidates),
        "measurements": words.count(len(log.rows)),
        "time spent": words.duration(spent),
        "rate": f"{candidates / spent:.1f} a second" if spent > 0 else words.DASH,
        "failed": str(sum(sum(t.failures.values()) for t in tasks)),
        "machine": "; ".join(words.machine(m) for m in machines),
        "vector unit": "; ".join(dict.fromkeys(m[0] for m in machines)),
        "search": ", ".join(log.tuners) or words.DASH,
        **log.versions,
    }


def _peaks(tasks: Sequence[TaskFacts], here: Target | None, measure: MeasurePeaks | None) -> tuple[Peaks | None, str]:
    machines = {t.machine for t in tasks}
    if len(machines) > 1:
        return None, "the log is of several machines"
    (machine,) = machines
    if measure is None:
        return None, "they were not asked for"
    if here is None or machine_of(here.with_threads(machine[2])) != machine:
        return None, f"the log is of another machine ({words.machine(machine)}) than the one that made this page"
    return measure(machine[2]), ""


def _work(tasks: Sequence[TaskFacts], schedules: Sequence[Schedules], shares: Mapping[int, float]) -> list[Work]:
    """Of the tasks that compute."""
    return [
        Work(n + 1, t.name, s.flops, s.bytes, t.default.seconds if t.default else None, t.best.seconds, shares[n])
        for n, (t, s) in enumerate(zip(tasks, schedules, strict=True))
        if t.best is not None and t.best.seconds is not None and s.flops > 0 and s.bytes > 0
    ]


def _roof(work: Sequence[Work], peaks: Peaks | None) -> dict[str, Any]:
    drawn = roofline(work, peaks) if work else ""
    if peaks is None or not work:
        return {"roofline": drawn}
    share = sum(w.share_of(peaks) * w.weight for w in work) / (sum(w.weight for w in work) or 1.0)
    doubts = peaks.doubts((w.best, w.flops, w.bytes, "") for w in work)
    return {"roofline": drawn, "roof_share": share, "doubts": doubts}


def _cost_model(tasks: Sequence[TaskFacts]) -> dict[str, Any]:
    found = batch_correlations(tasks)
    if not found:
        return {"correlation": None}
    late = [value for _, value in found[len(found) // 2 :]]
    drawn = correlation_curve(found, sum(len(t.points) for t in tasks), 8)
    return {"correlation": sum(late) / len(late), "correlations": drawn}


def _curves(t: TaskFacts) -> list[str]:
    """What is drawn of a task; of one candidate there is nothing to draw."""
    if len(t.points) == 1:
        return []
    drawn = [best_curve(t, False), best_curve(t, True)]
    return [*drawn, correlation_curve(t.correlations, len(t.points))] if t.correlations else drawn
