"""The page: read the log, gather the facts of each task, put the parts together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.records.pruning import recorded_default
from tilewright.autotune.records.record import Machine, Verdict, machine_of
from tilewright.core.io.files import begins_with
from tilewright.inspect.report.charts import Work
from tilewright.inspect.report.facts import TaskFacts, costs, task_facts, total_speedup, weights_of
from tilewright.inspect.report.rows import Log, Row, read_log
from tilewright.inspect.report.schedules import default_candidate, schedules_of
from tilewright.inspect.report.sections import cost_model, failures, gains, one_task, roof
from tilewright.inspect.report.style import STYLE
from tilewright.inspect.report.words import DASH, count, duration
from tilewright.machine.target import Target
from tilewright.runtime.profile import Peaks

MeasurePeaks = Callable[[int], Peaks]

_BEGIN = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Tuning report: '
PAGE = begins_with("a report page", _BEGIN.encode())
"""What :func:`report` makes, as a file."""


def report(path: str | Path, here: Target | None = None, measure_peaks: MeasurePeaks | None = None) -> str:
    """The page for the log at ``path``. ``here``: this machine; ``measure_peaks``: its peaks for a number of threads.

    Raises InputError if there is no such log or it has no measurement.
    """
    log = read_log(path)
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
    weights = weights_of([t for t, _ in found])
    order = sorted(range(len(found)), key=lambda i: (-weights[i], found[i][0].name, found[i][0].workload))
    tasks = [found[i][0] for i in order]
    shares = {n: weights[i] for n, i in enumerate(order)}
    schedules = [schedules_of(log, found[i][0], found[i][1]) for i in order]
    work = [
        Work(
            n + 1, t.name, s.flops, s.bytes, None if t.default is None else t.default.seconds, t.best.seconds, shares[n]
        )
        for n, (t, s) in enumerate(zip(tasks, schedules, strict=True))
        if t.best is not None and t.best.seconds is not None
    ]
    peaks, why = _peaks(tasks, here, measure_peaks)
    weighted = all(t.weight is not None for t in tasks)
    body = [
        _head(log, tasks, total_speedup(tasks, shares)),
        gains(tasks, shares, _latest(log.verdicts), weighted),
        roof(work, peaks, why),
        cost_model(tasks),
        failures(tasks),
        "<h2>Each task: what was measured, and the best schedule beside the default</h2>",
        *(
            one_task(n + 1, t, s, escape(machine_text(t.machine)))
            for n, (t, s) in enumerate(zip(tasks, schedules, strict=True))
        ),
    ]
    return (
        f"{_BEGIN}{escape(log.path.name)}</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(x for x in body if x) + "\n</body></html>\n"
    )


def machine_text(m: Machine) -> str:
    """``znver3, 2 threads``."""
    return f"{m[1]}, {m[2]} thread{'' if m[2] == 1 else 's'}"


def _head(log: Log, tasks: Sequence[TaskFacts], speedup: float | None) -> str:
    candidates = sum(len(t.points) for t in tasks)
    spent = sum(t.spent for t in tasks)
    machines = Counter(t.machine for t in tasks)
    if speedup is None:
        head = f"{_count(len(tasks), 'task')} measured"
    else:
        head = f"{_count(len(tasks), 'task')}, together {speedup:.2f} times as fast as with default schedules"
    first, last = (f(r.time for r in log.rows) for f in (min, max))
    days = dict.fromkeys(time.strftime("%Y-%m-%d", time.gmtime(x)) for x in (first, last))
    facts = [
        ("tasks", str(len(tasks))),
        ("candidates", count(candidates)),
        ("measurements", count(len(log.rows))),
        ("time spent", duration(spent)),
        ("rate", f"{candidates / spent:.1f} a second" if spent > 0 else DASH),
        ("failed", str(sum(sum(t.failures.values()) for t in tasks))),
        ("machine", "; ".join(machine_text(m) for m in machines)),
        ("vector unit", "; ".join(dict.fromkeys(m[0] for m in machines))),
        ("search", ", ".join(log.tuners) or DASH),
        *((name, version) for name, version in log.versions.items()),
    ]
    cells = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    left = f" {log.skipped} lines were not understood and left out." if log.skipped else ""
    note = (
        f"{escape(str(log.path.name))}, measured {' to '.join(days)} (UTC). Times are of single kernels, alone on the "
        f"machine; what a network gains is in its own timing.{left}"
    )
    return f"<h1>{head}</h1><p class=soft>{note}</p><dl>{cells}</dl>"


def _peaks(tasks: Sequence[TaskFacts], here: Target | None, measure: MeasurePeaks | None) -> tuple[Peaks | None, str]:
    machines = {t.machine for t in tasks}
    if len(machines) > 1:
        return None, "the log is of several machines"
    (machine,) = machines
    if measure is None:
        return None, "they were not asked for"
    if here is None or machine_of(here.with_threads(machine[2])) != machine:
        return None, f"the log is of another machine ({machine_text(machine)}) than the one that made this page"
    return measure(machine[2]), ""


def _latest(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    return {v.workload: v for v in sorted(verdicts, key=lambda v: (v.time, v.candidate))}


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
