"""``db top LOG``: the best candidates of each workload."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.autotune.records.database import MemoryDatabase, open_database
from tilewright.autotune.records.record import Line, Record
from tilewright.commands.common import count
from tilewright.commands.db.options import add_filters, add_log, answer, of_workload, selected, task
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("-k", type=count, default=3, help="how many (default: 3)")
    parser.add_argument("--workload", metavar="HASH", help="only this one, by the start of its hash or its task's name")
    parser.add_argument("--trace", action="store_true", help="with their traces")
    add_filters(parser, "shown")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    lines = of_workload(selected(open_database(args.log), args), args.workload)
    found = best(lines, args.k)
    data = {"workloads": [_json(name, records, args.trace) for name, records in found.items()]}
    answer(args, data, top(found, names_of(lines), args.trace))
    return 0


def best(lines: Sequence[Line], k: int) -> dict[str, list[Record]]:
    """The best candidates by workload, in the order of the log."""
    if k < 1:
        raise InputError(f"-k: expected at least 1, got {k}")
    database = MemoryDatabase(lines)
    return {name: database.top_k(name, k) for name in dict.fromkeys(r.workload.hash for r in database.records())}


def names_of(lines: Sequence[Line]) -> dict[str, set[str]]:
    """What the tasks of each workload are called."""
    names: dict[str, set[str]] = {}
    for r in lines:
        if isinstance(r, Record):
            names.setdefault(r.workload.hash, set()).add(task(r))
    return names


def top(found: Mapping[str, Sequence[Record]], names: Mapping[str, set[str]], with_traces: bool) -> str:
    """The best candidates, workload by workload."""
    parts = []
    for name, records in found.items():
        parts.append(f"{name[:12]} {', '.join(sorted(names[name]))}")
        for i, r in enumerate(records, 1):
            values = ", ".join(f"{label}={value}" for label, value in r.choices().items())
            error = "" if r.error is None else f", error {r.error:.1e}"
            parts.append(f"  {i}. {(r.seconds or 0.0) * 1e6:.1f} us ({len(r.samples)} samples{error}) {values}")
            if with_traces:
                parts += [f"       {line}" for line in r.trace.to_text().splitlines()]
    return "\n".join(parts)


def _json(name: str, records: Sequence[Record], with_traces: bool) -> dict[str, Any]:
    return {"workload": name, "candidates": [_candidate(r, with_traces) for r in records]}


def _candidate(r: Record, with_traces: bool) -> dict[str, Any]:
    decisions = {k: "x".join(map(str, v)) if isinstance(v, tuple) else v for k, v in r.choices().items()}
    return {
        "candidate": r.candidate, "task": r.task, "implementation": r.implementation,
        "cpu": r.target.cpu, "threads": r.target.threads, "seconds": r.seconds,
        "samples": list(r.samples), "error": r.error, "decisions": decisions,
        "trace": r.trace.to_text().splitlines() if with_traces else None,
    }  # fmt: skip
