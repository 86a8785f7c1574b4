#!/usr/bin/env python3
"""Do whole networks run without Python, with the same results? A row per network, each in a process of its own.

    python benchmarks/artifacts.py --models DIR [NAME ...]       as libraries, by tilewright.load: bit for bit
    python benchmarks/artifacts.py --models DIR --empty-root     from C, where there is the C library and nothing else
    python benchmarks/artifacts.py --models DIR --target "llvm -mtriple=aarch64-linux-musl -mcpu=neoverse-n1" NAME ...
                                                                 for another machine, as programs, by an emulator

Networks are kept as NAME.structure.onnx (see accuracy.py); each is made, exported and removed before the next. Results
for other machines are compared as accuracy.py does, with what was recorded. Exit status 1 if any row fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from accuracy import _compare, _noise, materialize

if TYPE_CHECKING:
    import numpy as np

    from tilewright.runtime.model import CompiledModel

_MOST_RUNTIME = 64 << 10


def main() -> int:
    args = _arguments()
    if args.one:
        return _one(args)
    found = sorted(p.name.removesuffix(".structure.onnx") for p in Path(args.models).glob("*.structure.onnx"))
    names = args.names or found
    print(f"runtime, interface and the plan of one small kernel: {_least():,} bytes, of at most {_MOST_RUNTIME:,}")
    print(f"{'network':<28} {'code KB':>8} {'weights MB':>11} {'built s':>8}  results", flush=True)
    failed = 0
    for name in names:
        command = [sys.executable, __file__, "--models", args.models, "--one", name, "--threads", str(args.threads)]
        command += [*(["--target", args.target] if args.target else []), *(["--empty-root"] * args.empty_root)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        failed += run.returncode != 0
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        print(run.stdout.strip() or f"{name:<28} FAILED  {lines[-1][:300]}", flush=True)
    print(f"{len(names)} networks, {failed} failed")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--models", required=True, help="folder of structure files")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--empty-root", action="store_true", help="run a C program there (Linux, as root)")
    p.add_argument("--target", help="of another machine")
    p.add_argument("--one", help=argparse.SUPPRESS)
    return p.parse_args()


def _least() -> int:
    """Bytes of the library of a model that has next to nothing to compute."""
    from overheads import _one_node

    import tilewright

    with tempfile.TemporaryDirectory() as folder:
        return tilewright.compile(_one_node(), progress=False).export(Path(folder) / "model.so")[0].stat().st_size


def _one(args: argparse.Namespace) -> int:
    import tilewright

    models, name = Path(args.models), args.one
    cases = json.loads((models / f"{name}.expect.json").read_text(encoding="utf-8"))["cases"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        made = [materialize(models, name, work, k) for k in range(len(cases))]
        start = time.perf_counter()
        model = tilewright.compile(made[0][0], target=args.target, threads=args.threads, progress=False)
        code, weights = model.export(work / "model", format="shared", weights="beside")
        sizes = f"{code.stat().st_size / 1e3:>8.0f} {weights.stat().st_size / 1e6:>11.1f}"
        built = time.perf_counter() - start
        feeds = [{s.name: feed[s.name] for s in model.inputs} for _, feed in made]
        if args.target:
            limit = max(10 * _noise(models, name), 1e-4)
            said = _elsewhere(model, args.target, feeds, cases, limit, work)
        else:
            said = _differing(model, feeds, code, args)
    verdict = "; ".join(said) or f"{len(feeds)} case(s), {'right' if args.target else 'the same bytes'}"
    print(f"{name:<28} {sizes} {built:>8.1f}  {verdict}")
    return 1 if said else 0


def _differing(
    model: CompiledModel, feeds: list[dict[str, np.ndarray]], code: Path, args: argparse.Namespace
) -> list[str]:
    """Outputs that are other bytes than those of the compiled model."""
    import tilewright
    from tilewright.tests.deploy.empty_root import CHROOT, differing

    if args.empty_root:
        if not CHROOT:
            return ["needs Linux, a C compiler and the right to change the root"]
        return [f"{n}: other bytes" for n in differing(model, *feeds)]
    artifact = tilewright.load(code, args.threads)
    said = []
    for k, feed in enumerate(feeds):
        ours, theirs = model.run(feed), artifact.run(feed)
        said += [f"case {k}, {n}: other bytes" for n, y in ours.items() if y.tobytes() != theirs[n].tobytes()]
    return said


def _elsewhere(
    model: CompiledModel, target: str, feeds: list[dict[str, np.ndarray]], cases: list[dict], limit: float, work: Path
) -> list[str]:
    """Cases whose results are wrong on the target."""
    from tilewright.tests.deploy.program import build_program

    program = build_program(model, target, work)
    said = []
    for k, (feed, case) in enumerate(zip(feeds, cases, strict=True)):
        worst, why = _compare(program.run(feed), case)
        if worst > limit or why:
            said.append(f"case {k}: error {worst:.1e}, limit {limit:.1e} {why}".strip())
    return said


if __name__ == "__main__":
    sys.exit(main())
