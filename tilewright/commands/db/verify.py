"""``db verify LOG``: the winners of a log measured again on this machine, each in turns with the default schedule. Exit
status: 1 if one does not replay, is wrong, fails, or is slower than the default."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tilewright.autotune.measure.measurer import EvaluatorConfig, LocalMeasurer
from tilewright.autotune.records.database import open_database
from tilewright.autotune.review.recheck import Checked, Finding, recheck, winners
from tilewright.codegen.detect_cpu import detect_host
from tilewright.commands.common import count
from tilewright.commands.db.options import (
    add_filters,
    add_log,
    add_significance,
    answer,
    machine,
    micros,
    of_workload,
    selected,
    task,
)
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import table

_HEAD = ("workload", "task", "machine", " recorded us", " now us", " default us", " now/default", " p", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("--workload", metavar="HASH", help="only this one, by the start of its hash or its task's name")
    parser.add_argument("--rounds", type=count, default=9, help="samples of each schedule (default: 9)")
    add_significance(parser)
    parser.add_argument("--dry-run", action="store_true", help="measure nothing, list what would be measured")
    add_filters(parser, "measured")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    lines = of_workload(selected(open_database(args.log), args), args.workload)
    done = winners(lines, detect_host())
    if not args.dry_run:
        todo = sum(not c.why for c in done)
        count_done = 0

        def tell(c: Checked) -> None:
            nonlocal count_done
            count_done += c.finding is not Finding.UNCHECKED
            print(f"{count_done} of {todo} measured", end="\r", file=sys.stderr, flush=True)

        with LocalMeasurer(EvaluatorConfig()) as measurer:
            done = recheck(
                done, measurer, args.rounds, args.alpha, args.threshold, tell if sys.stderr.isatty() else None
            )  # fmt: skip
    found = Counter(str(c.finding) for c in done)
    answer(args, {"dry_run": args.dry_run, "counts": dict(found), "winners": [c.to_json() for c in done]}, _text(done))
    return 1 if any(c.finding.is_bad for c in done) else 0


def _text(done: list[Checked]) -> str:
    rows = [
        (
            c.record.workload.hash[:12], task(c.record), machine(c.record), micros(c.record.seconds), micros(c.seconds),
            micros(c.default_seconds), "" if c.against_default is None else f"{c.against_default:.3f}",
            "" if c.p is None else f"{c.p:.2g}", f"{c.finding}{f': {c.why}' if c.why else ''}",
        )
        for c in done
    ]  # fmt: skip
    counted = ", ".join(f"{n} {k}" for k, n in Counter(str(c.finding) for c in done).items())
    return f"{table(_HEAD, rows)}\n\n{len(done)} winners: {counted or 'none'}"
