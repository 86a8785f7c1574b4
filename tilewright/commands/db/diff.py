"""``db diff OLD NEW``, or ``db diff LOG --versions X Y``: which kernels became faster or slower, as far as the samples
tell. Exit status: 1 if a kernel became slower, else 0."""

from __future__ import annotations

import argparse

from tilewright.autotune.records.database import open_database
from tilewright.autotune.review.comparing import Change, Comparison, KernelChange, compare
from tilewright.commands.db.options import (
    add_filters,
    add_significance,
    answer,
    machine,
    micros,
    selected,
    selection_of,
    task,
)
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import table
from tilewright.core.errors import InputError

_HEAD = ("workload", "task", "machine", " old us", " new us", " new/old", " p", "")
_TEST = (
    "A difference counts if it is larger than --threshold and the test of Mann and Whitney on the raw samples of both "
    "best records, two-sided and exact, corrected by Holm for the number of kernels, gives less than --alpha."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _TEST
    parser.add_argument("old", metavar="OLD", help="a tuning log")
    parser.add_argument("new", metavar="NEW", nargs="?", help="another one; not with --versions")
    parser.add_argument(
        "--versions", nargs=2, metavar=("X", "Y"),
        help="compare what two versions of tilewright, or commits, measured in one log",
    )  # fmt: skip
    add_significance(parser)
    parser.add_argument("--all", action="store_true", help="list kernels without a difference, too")
    add_filters(parser, "compared")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    if (args.new is None) == (args.versions is None):
        raise InputError("db diff: expected two logs, or one and --versions X Y")
    if args.versions is None:
        old, new = (selected(open_database(p), args) for p in (args.old, args.new))
    else:
        lines = list(open_database(args.old).lines())
        old, new = (selection_of(args, v).of(lines) for v in args.versions)
        for version, found in zip(args.versions, (old, new), strict=True):
            if not found:
                raise InputError(f"--versions: expected a version or a commit that measured something, got {version!r}")
    result = compare(old, new, args.alpha, args.threshold)
    counted = {str(c): len(result.of(c)) for c in Change}
    data = {
        "alpha": args.alpha, "threshold": args.threshold, "test": _TEST, "geometric_mean": result.geometric_mean,
        "counts": counted, "kernels": [k.to_json() for k in result.kernels],
    }  # fmt: skip
    answer(args, data, _text(result, args.all))
    return 1 if result.of(Change.SLOWER) else 0


def _text(result: Comparison, everything: bool) -> str:
    quiet = () if everything else (Change.SAME, Change.TOO_FEW)
    rows = [_row(k) for k in result.kernels if k.change not in quiet]
    parts = [table(_HEAD, rows)] if rows else []
    said = ", ".join(f"{len(found)} {c}" for c in Change if (found := result.of(c)))
    mean = result.geometric_mean
    foot = f"{len(result.kernels)} kernels: {said or 'none'}"
    return "\n\n".join([*parts, foot + ("" if mean is None else f"; geometric mean of new/old {mean:.3f}")])


def _row(k: KernelChange) -> tuple[str, ...]:
    return (
        k.record.workload.hash[:12], task(k.record), machine(k.record), micros(k.old.seconds if k.old else None),
        micros(k.new.seconds if k.new else None), "" if k.ratio is None else f"{k.ratio:.3f}",
        "" if k.p is None else f"{k.p:.2g}", f"{k.change}{', same schedule' if k.same_schedule else ''}",
    )  # fmt: skip
