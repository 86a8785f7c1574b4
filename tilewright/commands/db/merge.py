"""``db merge LOG... -o LOG``: put logs together, and say what that changed."""

from __future__ import annotations

import argparse

from tilewright.autotune.records.database import Database, JSONDatabase, MemoryDatabase, open_database
from tilewright.autotune.review.comparing import Change, KernelChange, compare
from tilewright.commands.db.options import (
    add_dry_run,
    add_filters,
    answer,
    machine,
    micros,
    selection_of,
    size_of,
    task,
)
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import bytes_text, table

_HEAD = ("workload", "task", "machine", " best us", " before")
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOG", help="tuning logs")
    parser.add_argument("-o", "--output", required=True, metavar="LOG", help="a log, created or added to")
    add_dry_run(parser)
    add_filters(parser, "merged")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    output = JSONDatabase(args.output)
    before = list(output.lines())
    target: Database = MemoryDatabase(before) if args.dry_run else output
    wanted = selection_of(args)
    together = open_database(list(args.logs))
    source = MemoryDatabase(wanted.of(list(together.lines()))) if wanted or args.dry_run else together
    added = target.merge(source)
    after = list(target.lines())
    skipped = {path: len(open_database(path).skipped) for path in args.logs}
    found = compare(before, after, alpha=1.0, threshold=0.0)
    better = [k for k in found.kernels if k.change is Change.NEW or (k.ratio or 1.0) < 1.0]
    size = size_of(output.path)
    data = {
        "output": str(output.path), "dry_run": args.dry_run, "added": added, "lines": len(after),
        "skipped": skipped, "better": [k.to_json() for k in better], "bytes": size,
    }  # fmt: skip
    verb = "would be added" if args.dry_run else "added"
    text = f"{added} lines {verb}; {args.output} {'would have' if args.dry_run else 'has'} {len(after)}"
    text += "" if args.dry_run else f", in {bytes_text(size)}"
    text += "".join(f"\n{path}: {n} damaged lines skipped" for path, n in skipped.items() if n)
    answer(args, data, text + _better(better))
    return 0


def _better(kernels: list[KernelChange]) -> str:
    """The kernels that have a better record than before."""
    if not kernels:
        return ""
    rows = [
        (k.record.workload.hash[:12], task(k.record), machine(k.record), micros(k.record.seconds),
         "" if k.old is None else micros(k.old.seconds))
        for k in kernels[:_SHOWN]
    ]  # fmt: skip
    more = f"\n... and {len(kernels) - _SHOWN} more" if len(kernels) > _SHOWN else ""
    return f"\n\nbetter than before, or new:\n{table(_HEAD, rows)}{more}"
