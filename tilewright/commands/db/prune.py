"""``db prune LOG``: keep the best candidates only, and say what went."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.pruning import to_keep
from tilewright.autotune.records.record import Line
from tilewright.commands.common import count
from tilewright.commands.db.options import (
    add_dry_run,
    add_filters,
    add_log,
    answer,
    counts,
    of_all,
    selection_of,
    size_of,
)
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import bytes_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("-k", type=count, default=1, help="how many of each workload and machine (default: 1)")
    parser.add_argument("--keep-failures", action="store_true", help="keep the records of failures too")
    parser.add_argument("-o", "--output", metavar="LOG", help="write what is kept there, and leave the log as it is")
    add_dry_run(parser)
    add_filters(parser, "pruned; all others stay")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    log, wanted = open_database(args.log), selection_of(args)

    def choose(lines: Sequence[Line]) -> list[Line]:
        looked_at = wanted.of(lines)
        gone = set(map(id, looked_at)) - set(map(id, to_keep(looked_at, args.k, args.keep_failures)))
        return [x for x in lines if id(x) not in gone]

    size = size_of(log.path)
    kept = log.rewrite(choose, Path(args.output) if args.output else None, args.dry_run)
    before, after = counts(kept.before), counts(kept.after)
    written = args.output or str(log.path)
    new_size = None if args.dry_run else size_of(written)
    data = {
        "log": str(log.path), "output": written, "dry_run": args.dry_run, "before": before, "after": after,
        "removed": kept.removed, "torn_lines": kept.torn, "lines_left_alone": kept.foreign, "bytes_before": size,
        "bytes_after": new_size,
    }  # fmt: skip
    parts = [of_all(before[k] - after[k], before[k], k) for k in ("measurements", "verdicts", "choices")]
    failures = before["failures"] - after["failures"]
    parts[0] += f" ({failures} of failures)" if failures else ""
    parts += [f"{kept.torn} torn lines"] if kept.torn else []
    text = f"{'would remove' if args.dry_run else 'removed'} {', '.join(parts)}"
    text += f"\n{after['workloads']} of {before['workloads']} workloads have {after['measurements']} measurements left"
    text += f"; {kept.foreign} lines of other kinds or damaged ones stay" if kept.foreign else ""
    text += "" if new_size is None else f"\n{written}: {bytes_text(size)} -> {bytes_text(new_size)}"
    answer(args, data, text)
    return 0
