"""``python -m tilewright.tests.fuzz_graphs --count N --seed S``: N random graphs from seed S on; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilewright.tests.fuzz_graphs.check import Verdict, Ways, builds_of, check_sample, check_seed
from tilewright.tests.fuzz_graphs.families import FAMILIES
from tilewright.tests.fuzz_graphs.reduce import reduce_sample
from tilewright.tests.fuzz_graphs.script import script_of
from tilewright.tests.fuzz_graphs.workers import run_seeds


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if a seed found a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--every", action="store_true", help="every level with one and two threads for each seed")
    parser.add_argument("--simplify", action="store_true", help="simplify each graph instead of compiling it")
    parser.add_argument("--written", action="store_true", help="write it instead, after each level's passes")
    parser.add_argument("--ops", default="", help="mostly these operators, with commas between")
    parser.add_argument("--only", type=int, nargs="+", help="these seeds alone, in this process, reduced to a script")
    parser.add_argument("--alone", action="store_true", help="with --only: without onnxruntime, where that crashes")
    parser.add_argument("--scripts", type=Path, help="a folder for the scripts of --only (default: print)")
    args = parser.parse_args(argv)
    operators = tuple(o for o in args.ops.split(",") if o)
    if unknown := [o for o in operators if o not in FAMILIES]:
        parser.error(f"unknown operators {unknown}; known: {' '.join(sorted(FAMILIES))}")
    if args.only:
        return max(_show(seed, args, operators) for seed in args.only)
    return _run(range(args.seed, args.seed + args.count), args, operators)


def _run(seeds: Sequence[int], args: argparse.Namespace, operators: Sequence[str]) -> int:
    kinds: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    start = time.monotonic()
    for seed, verdict in run_seeds(seeds, args.processes, _ways(args), operators):
        kinds[verdict.kind] += 1
        ops.update(verdict.operators)
        if verdict.is_fault:
            print(f"seed {seed}: {_told(verdict)}", flush=True)
    print(f"{sum(kinds.values())} graphs, {sum(ops.values())} nodes, {time.monotonic() - start:.0f} s:",
          ", ".join(f"{n} {k}" for k, n in kinds.most_common()))  # fmt: skip
    print(f"{len(ops)} operators: {', '.join(f'{o} {n}' for o, n in sorted(ops.items()))}")
    return int(any(k not in ("ok", "empty") for k in kinds))


def _ways(args: argparse.Namespace) -> Ways:
    if args.written:
        return "write"
    return "simplify" if args.simplify else "every" if args.every else "some"


def _told(v: Verdict) -> str:
    return f"{v.kind}{f' ({v.build})' if v.build else ''}: {v.message}"


def _show(seed: int, args: argparse.Namespace, operators: Sequence[str]) -> int:
    """One seed in this process: the verdict, and the smallest graph that fails in the same way as a script."""
    verdict, sample = check_seed(seed, _ways(args), operators, args.alone)
    print(f"seed {seed}: {_told(verdict)}")
    if not verdict.is_fault:
        return 0
    if sample is not None and verdict.kind != "reference":
        builds = builds_of(seed, _ways(args)) if verdict.build is None else (verdict.build,)
        small = reduce_sample(sample, lambda s: _alike(check_sample(s, builds), verdict))
        verdict = check_sample(small, builds)
        text = script_of(small, verdict)
        if args.scripts:
            args.scripts.mkdir(parents=True, exist_ok=True)
            (args.scripts / f"seed_{seed}.py").write_text(text)
            print(f"  smallest: {' '.join(n.op_type for n in small.nodes)}: {_told(verdict)}")
        else:
            print(text)
    return 1


def _alike(a: Verdict, b: Verdict) -> bool:
    """Whether two faults are of one kind and, for errors, of one type."""
    return a.kind == b.kind and a.message.split(":")[:2] == b.message.split(":")[:2] if a.kind != "wrong" else (
        b.kind == "wrong" and ("differ" in a.message) == ("differ" in b.message))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
