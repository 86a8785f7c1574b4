"""``db show LOG``: what the log holds, a row per workload and machine."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.index import usable
from tilewright.autotune.records.record import Line, Record, Verdict, isa_class, sort_key
from tilewright.commands.db.options import add_filters, add_log, answer, machine_text, micros, selected, task_text
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import table

_HEAD = ("workload", "task", "machine", "models", " records", "failures", " best us", "latest (UTC)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    add_filters(parser, "shown")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    database = open_database(args.log)
    lines = selected(database, args)
    rows = rows_of(lines)
    text = show(rows, [x for x in lines if isinstance(x, Verdict)], len(database.skipped))
    answer(args, {"workloads": rows, "skipped": list(database.skipped)}, text)
    return 0


def rows_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Facts of each workload and machine, the one with most records first."""
    groups: dict[tuple[str, str, str, int], list[Record]] = {}
    for r in lines:
        if isinstance(r, Record):
            groups.setdefault((r.workload.hash, isa_class(r.target), r.target.cpu, r.target.threads), []).append(r)
    out = []
    for (name, isa, cpu, threads), records in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        best = min(usable(records), key=sort_key, default=None)
        failed = Counter(str(r.failure) for r in records if r.failure is not None)
        out.append(
            {
                "workload": name, "task": records[-1].task,
                "implementation": records[-1].implementation, "isa": isa, "cpu": cpu, "threads": threads,
                "models": sorted({r.session.label for r in records if r.session is not None}),
                "records": len(records), "failures": dict(sorted(failed.items())),
                "best_seconds": None if best is None else best.seconds, "latest": max(r.time for r in records),
            }
        )  # fmt: skip
    return out


def show(found: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict], skipped: int = 0) -> str:
    """The table of :func:`rows_of`, and what else there is."""
    rows = [
        (
            x["workload"][:12], task_text(x["task"], x["implementation"]), machine_text(x["cpu"], x["threads"]),
            ", ".join(x["models"]), str(x["records"]), ", ".join(f"{n} {k}" for k, n in x["failures"].items()),
            micros(x["best_seconds"]), time.strftime("%Y-%m-%d %H:%M", time.gmtime(x["latest"])),
        )
        for x in found
    ]  # fmt: skip
    refused = sum(not v.helps for v in verdicts)
    foot = f"{len(rows)} workloads, {len(verdicts)} verdicts in networks ({refused} against)"
    return f"{table(_HEAD, rows)}\n\n{foot}" + (f"; {skipped} damaged lines skipped" if skipped else "")
