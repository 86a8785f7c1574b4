#!/usr/bin/env python3
"""How long builds take: the adversarial models of the tests, and models of your own, each cold in a process of its own.

    python benchmarks/build_time.py [NAME[:N] ...] [MODEL.onnx ...] [--limit SECONDS]

Columns: nodes of the file, kernels, seconds on the wall, seconds of processors with the share of LLVM in them. Half the
latter is what a quiet machine with two cores takes, since kernels are compiled while others are scheduled. Exit status
1 if a model takes longer than ``--limit`` on two cores for each 1,000 of its nodes, 1,000 at least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

_SIZES = {
    "chain": 1000, "random_dag": 1000, "convolutions": 200, "outputs": 20000, "concat": 20000, "split": 20000,
    "maximum": 20000, "nested_ifs": 30, "nested_loops": 15, "shape_arithmetic": 200, "windowed_attention": 25,
}  # fmt: skip


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("models", nargs="*", help="names of builders, with a size or without, and paths of models")
    p.add_argument("--limit", type=float, default=20.0, help="seconds for 1,000 nodes on two cores")
    p.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(json.dumps(_one(args.one)))
        return 0
    print(f"{'model':<40}{'nodes':>8}{'kernels':>9}{'wall s':>9}{'cpu s':>9}{'LLVM':>7}")
    slow = 0
    for name in args.models or [f"{n}:{size}" for n, size in _SIZES.items()]:
        command = [sys.executable, __file__, "--one", name]
        run = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        if run.returncode:
            print(f"{name:<40}  FAILED  {run.stderr.strip().splitlines()[-1][:200]}")
            slow += 1
            continue
        r = json.loads(run.stdout.splitlines()[-1])
        late = r["cpu"] / 2 > args.limit * max(1.0, r["nodes"] / 1000)
        slow += late
        share = f"{100 * r['llvm'] / r['cpu']:.0f} %"
        numbers = f"{r['nodes']:>8}{r['kernels']:>9}{r['wall']:>9.2f}{r['cpu']:>9.2f}{share:>7}"
        print(f"{Path(name).stem[:39]:<40}{numbers}{'  too long' * late}")
    return min(slow, 1)


def _one(name: str) -> dict[str, float]:
    import onnx

    import tilewright
    from tilewright.codegen import jit
    from tilewright.tests.api.large_models import MODELS

    builder, _, size = name.partition(":")
    model = MODELS[builder](int(size or _SIZES[builder])) if builder in MODELS else name
    proto = onnx.load(model, load_external_data=False) if isinstance(model, str) else model
    compile_object, spent = jit.compile_object, [0.0]

    def timed(*given, **named) -> bytes:
        start = time.thread_time()
        code = compile_object(*given, **named)
        spent.append(time.thread_time() - start)
        return code

    jit.compile_object = timed
    wall, cpu = time.perf_counter(), time.process_time()
    tilewright.compile(model, cache=False, progress=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"nodes": len(proto.graph.node), "kernels": len(spent) - 1, "wall": wall, "cpu": cpu, "llvm": sum(spent)}


if __name__ == "__main__":
    sys.exit(main())
