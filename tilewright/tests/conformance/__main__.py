"""Command line: run the cases, print the counts, compare with the expected statuses or rewrite them."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tilewright.tests.conformance.cases import KINDS, all_cases
from tilewright.tests.conformance.expected import (
    EXPECTED,
    EXPORTED,
    UPDATE,
    WRITTEN,
    changes,
    counts_text,
    read_expected,
    status,
    write_expected,
)
from tilewright.tests.conformance.exported import run_exported
from tilewright.tests.conformance.pool import run_all, shard
from tilewright.tests.conformance.runner import run_case
from tilewright.tests.conformance.written import run_written


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a case is worse than expected."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.tests.conformance", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only cases of this kind")
    parser.add_argument("--filter", help="only cases whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--shard", default="0/1", help="only part K of N of the cases, as K/N")
    parser.add_argument("--update", action="store_true", help="write the results into expected.json")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--slowest", type=int, default=0, help="print the cases that take longest")
    parser.add_argument("--exported", action="store_true", help="through artifacts instead of compiled models")
    parser.add_argument("--target", help="with --exported: as programs for this target, run by an emulator")
    parser.add_argument(
        "--written", choices=WRITTEN, help="read, and written after the passes of a level: files that others run, too"
    )
    parser.add_argument("--opset", type=int, help="with --written: in this opset, which need not say all cases")
    parser.add_argument("--show", help="print the results with this status")
    args = parser.parse_args(arguments)
    if args.target and not args.exported:
        parser.error("--target: expected with --exported")
    if args.opset and not args.written:
        parser.error("--opset: expected with --written")
    expected = EXPORTED if args.exported else WRITTEN[args.written] if args.written else EXPECTED
    k, n = (int(x) for x in args.shard.split("/"))

    cases = all_cases(args.kind or KINDS)
    names = shard([c for c in cases if not args.filter or re.search(args.filter, c)], k, n)
    began, seconds = time.monotonic(), {}

    def note(name: str, result: str, took: float) -> None:
        seconds[name] = took
        if args.show and status(result) == args.show:
            print(f"{name}: {result}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(seconds)}/{len(names)}", end="\r", file=sys.stderr)

    run = partial(run_exported, target=args.target) if args.exported else run_case
    if args.written:
        run = partial(run_written, level=args.written, opset=args.opset)
    results = run_all({c: cases[c] for c in names}, args.jobs, note, run)
    print(counts_text(results))
    print(f"{time.monotonic() - began:.0f} s with {args.jobs} processes")
    for name in sorted(seconds, key=lambda c: -seconds[c])[: args.slowest]:
        print(f"  {seconds[name]:6.2f} s  {name}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=0), encoding="utf-8")
    if args.opset:
        return int(any(status(r) == "failing" for r in results.values()))
    if args.update:
        write_expected(results, expected)
        return 0
    worse, better = changes(results, read_expected(expected))
    for title, lines in (("worse than expected", worse), (f"better than expected (run {UPDATE})", better)):
        if lines:
            print(f"{len(lines)} {title}:", *lines, sep="\n  ")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
