"""Functions, records and models for tests of tuning logs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.autotune.base.measure_result import Failed, FailureKind, Ok
from tilewright.autotune.base.space import Candidate, Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import Record, Verdict, make_record
from tilewright.core import dtypes
from tilewright.machine.target import Target
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func

HERE = Target("x86_64-unknown-linux-gnu", "znver4", "+avx2,+fma", 256, 16, 32 << 10, 1 << 20, 32 << 20, 2)


def dense(m: int = 24, n: int = 32, k: int = 16, prefix: str = "") -> Func:
    """A matrix product, its names starting with ``prefix``."""
    a = placeholder(f"{prefix}A", (m, k), dtypes.float32)
    b = placeholder(f"{prefix}B", (k, n), dtypes.float32)
    r = reduce_axis(k, f"{prefix}k")
    c = compute(f"{prefix}C", (m, n), lambda i, j: sum_over(a[i, r] * b[r, j], r))
    return build_func(f"{prefix}dense", [a, b], [c])


def candidates(func: Func, target: Target, count: int, seed: int = 0) -> list[Candidate]:
    """The default and random other ones of the canonical function, all different."""
    space = Space(canonical(func), target)
    out = {space.default().key: space.default()}
    rng = np.random.default_rng(seed)
    for _ in range(200):
        if len(out) == count:
            break
        found = space.sample(rng)
        if found is not None:
            out.setdefault(found.key, found)
    return list(out.values())


def record(func: Func, candidate: Candidate, seconds: float, target: Target = HERE, time: float = 1.0) -> Record:
    """A measured candidate."""
    task = Task(canonical(func), target, name="dense")
    return make_record(task, candidate, Ok(seconds, (seconds,), 1e-7, 0.1), "table", 0, time)


def wrong(func: Func, candidate: Candidate, target: Target = HERE, time: float = 1.0) -> Record:
    """A candidate whose result is wrong."""
    task = Task(canonical(func), target, name="dense")
    return make_record(task, candidate, Failed(FailureKind.WRONG_RESULT, "off by 1"), "table", 0, time)


def verdict(r: Record, network: str, helps: bool, time: float) -> Verdict:
    """What a record did in a network."""
    return Verdict(r.workload.hash, network, r.target, r.candidate, helps, 2e-3, 1e-3, time)


def with_threads(r: Record, threads: int) -> Record:
    """The same record of a machine with another number of threads."""
    return dataclasses.replace(r, target=r.target.with_threads(threads))


def prune_often(path: Path, start: object, times: int) -> None:
    """Rewrite a log again and again, as another process does it, once ``start`` is set."""
    start.wait()  # type: ignore[attr-defined]
    for _ in range(times):
        JSONDatabase(path).prune(1000, failures=True)


def mlp_model(rows: int = 24, width: int = 48) -> onnx.ModelProto:
    """Two dense layers with a ReLU and a softmax."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(s).astype(np.float32) for s in ((32, width), (width, 40))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 40])],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
