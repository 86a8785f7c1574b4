"""What the actions of ``db`` share: their log, filters, JSON, and the account of a log that was rewritten."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import Choice, Line, Record, Verdict
from tilewright.autotune.review.selection import Selection, parse_time
from tilewright.commands.common import amount
from tilewright.commands.output.json_output import print_json
from tilewright.core.errors import InputError


def add_log(parser: argparse.ArgumentParser, name: str = "log", text: str = "a tuning log") -> None:
    """The log that an action is about."""
    parser.add_argument(name, metavar=name.upper(), help=text)


def add_filters(parser: argparse.ArgumentParser, what: str) -> None:
    """Which lines of it. ``what``: what becomes of these (``shown``)."""
    group = parser.add_argument_group(f"only these are {what}")
    group.add_argument("--model", metavar="NAME", help="of a model file's name (* and ? match), or digest's beginning")
    group.add_argument("--cpu", metavar="CPU", help="LLVM's name (* and ? match)")
    group.add_argument("--since", type=_time, metavar="DATE", help="2026-11-24 or 2026-11-24T09:30, in UTC")
    group.add_argument("--until", type=_time, metavar="DATE", help="the same, that moment left out")


def selection_of(args: argparse.Namespace, version: str | None = None) -> Selection:
    """What :func:`add_filters` read."""
    return Selection(args.model, args.cpu, args.since, args.until, version)


def selected(database: JSONDatabase, args: argparse.Namespace) -> list[Line]:
    """The lines of a log that the filters take. Raises InputError if they take none of some."""
    lines = list(database.lines())
    wanted = selection_of(args)
    found = wanted.of(lines)
    if lines and wanted and not any(isinstance(x, Record) for x in found):
        named = sum(isinstance(x, Record) and x.session is not None for x in lines)
        hint = f"; {named} of {len(lines)} lines say which model they are of" if args.model is not None else ""
        raise InputError(f"{database.path}: none of its measurements is of what was asked for{hint}")
    return found


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """For actions that write a log."""
    parser.add_argument("--dry-run", action="store_true", help="write nothing, say what would be written")


def add_significance(parser: argparse.ArgumentParser) -> None:
    """For actions that compare times: which differences count."""
    parser.add_argument(
        "--threshold", type=amount, default=0.02, help="smaller differences do not count (default: 0.02)"
    )
    parser.add_argument("--alpha", type=amount, default=0.05, help="how probable chance may be (default: 0.05)")


def answer(args: argparse.Namespace, data: Mapping[str, Any], text: str) -> None:
    """Print one of the two."""
    if args.json:
        print_json("db", {"action": args.action, **data})
    else:
        print(text)


def counts(lines: Iterable[Line]) -> dict[str, int]:
    """How many there are of each kind."""
    found = list(lines)
    records = [x for x in found if isinstance(x, Record)]
    return {
        "measurements": len(records),
        "failures": sum(r.failure is not None for r in records),
        "workloads": len({r.workload.hash for r in records}),
        "verdicts": sum(isinstance(x, Verdict) for x in found),
        "choices": sum(isinstance(x, Choice) for x in found),
    }


def size_of(path: str | Path) -> int:
    """Bytes of a file; 0 if it is not there."""
    place = Path(path)
    return place.stat().st_size if place.is_file() else 0


def of_all(gone: int, all_of_them: int, what: str) -> str:
    """``3 of 7 verdicts``."""
    return f"{gone} of {all_of_them} {what}"


def micros(seconds: float | None) -> str:
    """Microseconds for a table; empty if unknown."""
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def machine(r: Record) -> str:
    """``znver4, 2 threads``."""
    return machine_text(r.target.cpu, r.target.threads)


def machine_text(cpu: str, threads: int) -> str:
    """``znver4, 2 threads``."""
    return f"{cpu}, {threads} thread{'s' if threads != 1 else ''}"


def task(r: Record) -> str:
    """``conv_relu (winograd)``: the name for people, and by what its node is computed, as far as the log says that."""
    return task_text(r.task, r.implementation)


def task_text(name: str, implementation: str) -> str:
    """``conv_relu (winograd)``."""
    return f"{name} ({implementation})" if implementation else name


def of_workload(lines: Sequence[Line], start: str | None) -> list[Line]:
    """The lines of workloads whose hash begins so, or of the task of that name. Raises InputError if there are none."""
    if start is None:
        return list(lines)
    named = {
        x.workload.hash
        for x in lines
        if isinstance(x, Record) and (x.task == start or x.workload.hash.startswith(start))
    }
    if not named:
        raise InputError(f"--workload: expected the start of a hash or a task's name in the log, got {start!r}")
    return [x for x in lines if (x.workload.hash if isinstance(x, Record) else x.workload) in named]


def _time(text: str) -> float:
    try:
        return parse_time(text)
    except InputError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
