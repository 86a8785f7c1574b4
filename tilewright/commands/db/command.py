"""``db show|top|check|explain|merge|prune``: look into tuning logs, put them together, make them small."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Collection, Iterable

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.lookup.implementations import find_tunable
from tilewright.autotune.lookup.workloads import networks_of, workloads_of
from tilewright.autotune.records.database import JSONDatabase, open_database
from tilewright.autotune.records.index import usable
from tilewright.autotune.records.record import Record, Verdict, isa_class, sort_key
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.commands.common import add_build_options, add_shape_options, compile_with, count
from tilewright.core.console import table
from tilewright.core.errors import InputError, ParseError, ScheduleError
from tilewright.lowering.plan import fuse_and_lower


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="what the log holds, a row per workload and machine")
    _log(show)
    top = actions.add_parser("top", help="the best candidates of each workload")
    _log(top)
    top.add_argument("-k", type=count, default=3, help="how many (default: 3)")
    top.add_argument("--workload", metavar="HASH", help="only this one, by the start of its hash or its task's name")
    top.add_argument("--trace", action="store_true", help="with their traces")
    check = actions.add_parser("check", help="what of the log no build can use any more, and why")
    _log(check)
    explain = actions.add_parser("explain", help="what a build of a model would use of the log, and why")
    _log(explain)
    explain.add_argument("model", help="an .onnx file")
    add_shape_options(explain)
    add_build_options(explain)
    merge = actions.add_parser("merge", help="put logs together")
    merge.add_argument("logs", nargs="+", metavar="LOG", help="tuning logs")
    merge.add_argument("-o", "--output", required=True, metavar="LOG", help="a log, created or added to")
    prune = actions.add_parser("prune", help="keep the best candidates only")
    _log(prune)
    prune.add_argument("-k", type=count, default=1, help="how many of each workload and machine (default: 1)")
    prune.add_argument("--keep-failures", action="store_true", help="keep the records of failures too")


def run(args: argparse.Namespace) -> int:
    match args.action:
        case "show":
            print(show(open_database(args.log)))
        case "top":
            print(top(open_database(args.log), args.k, args.workload, args.trace))
        case "check":
            print(check(open_database(args.log)))
        case "explain":
            print(_explain(args))
        case "merge":
            target = JSONDatabase(args.output)
            sources = [open_database(p) for p in args.logs]
            added = sum(map(target.merge, sources))
            print(f"{added} lines added; {args.output} has {len(target)}")
        case "prune":
            log = open_database(args.log)
            gone = log.prune(args.k, args.keep_failures)
            print(f"{gone} lines removed, {len(log)} left")
    return 0


def show(database: JSONDatabase) -> str:
    """A row for each workload and machine, the longest tuned first."""
    groups: dict[tuple[str, str, str, int], list[Record]] = {}
    for r in database.records():
        groups.setdefault((r.workload.hash, isa_class(r.target), r.target.cpu, r.target.threads), []).append(r)
    rows = []
    for (name, _, cpu, threads), records in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        best = min(usable(records), key=sort_key, default=None)
        failed = Counter(str(r.failure) for r in records if r.failure is not None)
        latest = max(r.time for r in records)
        rows.append(
            (
                name[:12], records[-1].task, f"{cpu}, {threads} thread{'s' if threads > 1 else ''}", str(len(records)),
                ", ".join(f"{n} {k}" for k, n in sorted(failed.items())),
                "" if best is None else f"{(best.seconds or 0.0) * 1e6:.1f}",
                time.strftime("%Y-%m-%d %H:%M", time.gmtime(latest)),
            )
        )  # fmt: skip
    verdicts = [x for x in database.lines() if isinstance(x, Verdict)]
    refused = sum(not v.helps for v in verdicts)
    head = ("workload", "task", "machine", " records", "failures", " best us", "latest (UTC)")
    foot = f"{len(rows)} workloads, {len(verdicts)} verdicts in networks ({refused} against)"
    if database.skipped:
        foot += f"; {len(database.skipped)} damaged lines skipped"
    return f"{table(head, rows)}\n\n{foot}"


def top(database: JSONDatabase, k: int, workload: str | None, with_traces: bool) -> str:
    """The best candidates, workload by workload."""
    if k < 1:
        raise InputError(f"-k: expected at least 1, got {k}")
    tasks: dict[str, set[str]] = {}
    for r in database.records():
        tasks.setdefault(r.workload.hash, set()).add(r.task)
    chosen = [
        name for name, names in tasks.items() if workload is None or name.startswith(workload) or workload in names
    ]
    if not chosen:
        raise InputError(f"--workload: expected the start of a hash or a task's name in the log, got {workload!r}")
    parts = []
    for name in chosen:
        parts.append(f"{name[:12]} {', '.join(sorted(tasks[name]))}")
        for i, r in enumerate(database.top_k(name, k), 1):
            values = ", ".join(f"{label}={value}" for label, value in r.choices().items())
            error = "" if r.error is None else f", error {r.error:.1e}"
            parts.append(f"  {i}. {(r.seconds or 0.0) * 1e6:.1f} us ({len(r.samples)} samples{error}) {values}")
            if with_traces:
                parts += [f"       {line}" for line in r.trace.to_text().splitlines()]
    return "\n".join(parts)


def check(database: JSONDatabase) -> str:
    """The measurements whose trace does not replay on their own function, a row per workload and reason, and the lines
    that are damaged."""
    measured = [r for r in database.records() if r.seconds is not None]
    schedules = {(r.text, r.candidate): r for r in measured}
    refusals = {name: why for name, r in schedules.items() if (why := _refusal(r))}
    lost = Counter(
        (r.workload.hash[:12], r.task, refusals[name]) for r in measured if (name := (r.text, r.candidate)) in refusals
    )
    rows = [(*row, str(n)) for row, n in sorted(lost.items())]
    parts = [table(("workload", "task", "why it does not replay", " measurements"), rows)] if rows else []
    parts += ["\n".join(database.skipped)] if database.skipped else []
    return "\n\n".join([*parts, f"{len(measured) - lost.total()} of {len(measured)} measurements replay"])


def _refusal(record: Record) -> str:
    """Why a record's trace does not replay; empty if it does."""
    try:
        record.trace.apply(record.scheduled_function())
    except (ParseError, ScheduleError) as e:
        return str(e).splitlines()[0]
    return ""


def _explain(args: argparse.Namespace) -> str:
    args.specialize, args.records = True, args.log
    database, disabled = open_database(args.log), args.disable_pass
    model = compile_with(args)
    graph = compile_with(args, stop_after="passes")
    target = with_threads(parse_target(args.target), args.threads)
    lowered = fuse_and_lower(graph, target, disabled, pack=False, out_of_range=args.out_of_range)
    own = workloads_of(lowered)
    others = [w for o in find_tunable(graph, lowered, target, disabled, known=own) for w in o.workloads.values()]
    return f"{model.coverage()}\n\n{_left_over(database, [*own.values(), *others], networks_of(lowered, own))}"


def _left_over(database: JSONDatabase, workloads: Iterable[Workload], networks: Collection[str]) -> str:
    """What of a log is not about a network."""
    known = frozenset[str]().union(*(w.hashes() for w in workloads))
    lines = list(database.lines())
    records = [x for x in lines if isinstance(x, Record)]
    foreign = [r.workload.hash for r in records if r.workload.hash not in known]
    judged = [x for x in lines if not isinstance(x, Record)]
    elsewhere = sum(x.network not in networks for x in judged)
    return (
        f"{len(foreign)} of {len(records)} measurements are of {len(set(foreign))} computations that this network does "
        f"not have; {elsewhere} of {len(judged)} verdicts and choices are on other networks"
    )


def _log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a tuning log")
