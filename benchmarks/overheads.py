#!/usr/bin/env python3
"""What is not arithmetic: calls, threads, memory, compile time.

    python benchmarks/overheads.py [--threads 2] [--model MODEL.onnx]

The cost of an empty kernel comes from chains of matrix products of zero rows: the slope of the run time over the length
of the chain. That of a parallel region comes from chains of small products that are shared out: the slope with the pool
beyond the pool's part of the slope of one thread, so that it holds what unequal parts and cold caches cost as well. The
cost of ``run`` is that of a network of one small kernel beyond the kernel itself. That of an artifact is shown on a
perceptron of three products: a run in C beyond its kernels, one of no rows, which has nothing to compute, and one in
Python beside the compiled model's. Memory and compile seconds are those of MODEL (default: the light resnet50 of the
onnx package with random weights), each in a process of its own, the first build with an empty object cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_SHORT, _LONG = 10, 60
_ROWS = 96
_BATCH, _BATCHES = 20, 60
_LIMIT = 10.0
"""Microseconds that ``run`` may take beyond the kernel of a network of one node."""

_LIMIT_IN_C = 1.0
"""The same through the C interface of an artifact."""


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--model", default="", help="for memory and compile time")
    p.add_argument("--one", choices=sorted(_PARTS), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(json.dumps(_PARTS[args.one](args)))
        return 0
    calls = _run_part(args, "calls")
    print(f"empty kernel in a network      {calls['kernel_us']:8.2f} us")
    print(f"parallel region, {args.threads} threads     {calls['region_us']:8.2f} us")
    print(f"run, network of one node       {calls['run_us']:8.2f} us, its kernel {calls['own_us']:.2f} us")
    beyond = calls["run_us"] - calls["own_us"]
    print(f"  beyond the kernel            {beyond:8.2f} us, at most {_LIMIT:.0f} wanted")
    a = _run_part(args, "artifact")
    print(f"perceptron, artifact in C      {a['c_us']:8.2f} us, its kernels {a['c_kernels_us']:.2f} us")
    in_c = a["c_us"] - a["c_kernels_us"]
    print(f"  beyond the kernels           {in_c:8.2f} us, at most {_LIMIT_IN_C:.0f} wanted")
    print(f"  of no rows                   {a['c_none_us']:8.2f} us")
    print(f"perceptron, in Python          {a['loaded_us']:8.2f} us loaded, {a['compiled_us']:.2f} us compiled")
    with tempfile.TemporaryDirectory() as cache:
        env = {"TILEWRIGHT_CACHE": cache}
        rows = {"cold": _run_part(args, "ours", env), "cached": _run_part(args, "ours", env)}
    for name, r in rows.items():
        split = ", ".join(f"{k} {r[k]:.2f}" for k in ("python", "llvm", "packing"))
        after = f"after imports of {r['imports']:.2f} s"
        print(f"compile, {name:<21} {r['seconds']:8.2f} s (of processors: {split}), {after}")
    rows["onnxruntime"] = _run_part(args, "theirs")
    for name, r in rows.items():
        print(f"memory, {name:<22} {r['peak_mb']:8.0f} MB at the peak, {r['after_mb']:.0f} MB after a run")
    return 0 if beyond <= _LIMIT and in_c <= _LIMIT_IN_C else 1


def _run_part(args: argparse.Namespace, part: str, env: dict[str, str] | None = None) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", part, "--threads", str(args.threads), "--model", args.model]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=1800)
    if run.returncode:
        raise SystemExit(f"{part}: {run.stderr.strip() or run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


# -- calls -----------------------------------------------------------------------------------------------------------
def _calls(args: argparse.Namespace) -> dict[str, float]:
    import tilewright

    model = tilewright.compile(_one_node(), threads=args.threads, progress=False)
    feed = {"x": np.ones(64, np.float32)}
    (run,) = _interleaved([lambda: model.run(feed)])
    own = sum(k.seconds for k in model.profile(feed, 200).kernels)
    empty = _slopes("rows", np.zeros((0, 8), np.float32), [1])
    shared = _slopes(_ROWS, np.ones((_ROWS, 64), np.float32), [1, args.threads])
    region = shared[args.threads] - shared[1] / args.threads
    return {"kernel_us": empty[1], "region_us": region, "run_us": run, "own_us": own * 1e6}


def _artifact(args: argparse.Namespace) -> dict[str, float]:
    import tilewright
    from tilewright.codegen.detect_cpu import detect_host
    from tilewright.deploy.first_result import c_program, microseconds_of_runs
    from tilewright.deploy.toolchain import Workshop, find_toolchain

    model = tilewright.compile(_perceptron(), threads=args.threads, progress=False)
    feed = {"x": np.ones((1, 784), np.float32)}
    with tempfile.TemporaryDirectory() as folder, Workshop(find_toolchain(detect_host())) as shop:
        path = Path(folder) / "model.so"
        model.export(path)
        loaded = tilewright.load(path, args.threads)
        compiled_us, loaded_us = _interleaved([lambda: model.run(feed), lambda: loaded.run(feed)])
        loaded.close()
        program = c_program(shop, path)
        run, kernels = microseconds_of_runs(program, args.threads, [1], _BATCHES)
        nothing, _ = microseconds_of_runs(program, args.threads, [0], _BATCHES)
    return {
        "c_us": run, "c_kernels_us": kernels, "c_none_us": nothing, "compiled_us": compiled_us, "loaded_us": loaded_us
    }  # fmt: skip


def _slopes(rows: int | str, x: np.ndarray, threads: list[int]) -> dict[int, float]:
    """Microseconds that one more product costs, by the number of threads."""
    import tilewright

    models = {
        (t, n): tilewright.compile(_chain(n, rows, x.shape[1]), threads=t, progress=False)
        for t in threads for n in (_SHORT, _LONG)
    }  # fmt: skip
    for (t, _), m in models.items():
        if x.size and t > 1 and not all(k.parallel for k in m.profile({"x": x}, 1).kernels):
            raise SystemExit("expected products that are shared out")
    times = dict(zip(models, _interleaved([lambda m=m: m.run({"x": x}) for m in models.values()]), strict=True))
    return {t: (times[t, _LONG] - times[t, _SHORT]) / (_LONG - _SHORT) for t in threads}


def _interleaved(calls: list[Callable[[], object]]) -> list[float]:
    """Microseconds of each call, in batches that take turns. The lower decile: on a virtual machine two processors are
    one core from time to time, and then everything takes twice as long."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(_BATCHES):
        for call, times in zip(calls, taken, strict=True):
            call()
            start = time.perf_counter()
            for _ in range(_BATCH):
                call()
            times.append((time.perf_counter() - start) / _BATCH * 1e6)
    return [float(np.percentile(t, 10)) for t in taken]


def _chain(length: int, rows: int | str, width: int):
    """Products with one weight after the other."""
    from onnx import helper, numpy_helper

    weight = numpy_helper.from_array(np.eye(width, dtype=np.float32), "w")
    names = ["x", *(f"v{i}" for i in range(1, length)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in itertools.pairwise(names)]
    return _model(nodes, [rows, width], [weight])


def _one_node():
    from onnx import helper

    return _model([helper.make_node("Relu", ["x"], ["y"])], [64], [])


def _perceptron():
    from onnx import helper, numpy_helper

    rng, weights, nodes = np.random.default_rng(0), [], []
    for k, (n, m) in enumerate(((784, 512), (512, 512), (512, 10))):
        w = rng.standard_normal((n, m)) / n**0.5
        weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{k}"))
        ends = ["x" if k == 0 else f"r{k - 1}", "y" if k == 2 else f"p{k}"]
        nodes.append(helper.make_node("MatMul", [ends[0], f"w{k}"], [ends[1]]))
        if k < 2:
            nodes.append(helper.make_node("Relu", [f"p{k}"], [f"r{k}"]))
    return _model(nodes, ["batch", 784], weights, ["batch", 10])


def _model(nodes: list, shape: list, weights: list, result: list | None = None):
    from onnx import TensorProto, helper

    sizes = {"x": shape, "y": result or shape}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# -- memory and compile time -----------------------------------------------------------------------------------------
def _source(given: str):
    if given:
        return given
    from accuracy import light_models

    from tilewright.frontend.model_file.random_weights import with_random_weights

    path = next(p for p in light_models() if p.stem == "light_resnet50")
    place = Path(tempfile.gettempdir()) / "tilewright-overheads-resnet50.onnx"
    if not place.exists():
        place.write_bytes(with_random_weights(path, seed=0).SerializeToString())
    return str(place)


def _ours(args: argparse.Namespace) -> dict[str, float]:
    start = time.perf_counter()
    import tilewright
    from tilewright.codegen.llvm import jit
    from tilewright.lowering.context import PackedConstant

    compile_model = tilewright.compile
    imports = time.perf_counter() - start
    spent = {"llvm": 0.0, "packing": 0.0}

    def timed(name: str, f: Callable) -> Callable:
        def call(*given, **named):
            start = time.thread_time()
            try:
                return f(*given, **named)
            finally:
                spent[name] += time.thread_time() - start

        return call

    jit.compile_object = timed("llvm", jit.compile_object)
    PackedConstant.evaluate = timed("packing", PackedConstant.evaluate)
    start, used = time.perf_counter(), time.process_time()
    model = compile_model(_source(args.model), threads=args.threads, progress=False)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    model.run({s.name: _ones(s.shape, s.dtype.numpy) for s in model.inputs})
    return {
        "seconds": seconds, "imports": imports, **spent, "python": used - sum(spent.values()), **_memory(),
    }  # fmt: skip


def _theirs(args: argparse.Namespace) -> dict[str, float]:
    from tilewright.inspect.ort import open_session

    session = open_session(_source(args.model), args.threads)
    if session is None:
        raise SystemExit("onnxruntime is not installed")
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    session.run(None, {i.name: _ones(i.shape, kinds[i.type]) for i in session.get_inputs()})
    return _memory()


def _ones(shape, dtype) -> np.ndarray:
    return np.ones([d if isinstance(d, int) else 1 for d in shape or ()], dtype)


def _memory() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": peak, "after_mb": pages * resource.getpagesize() / 2**20}


_PARTS = {"calls": _calls, "artifact": _artifact, "ours": _ours, "theirs": _theirs}

if __name__ == "__main__":
    sys.exit(main())
