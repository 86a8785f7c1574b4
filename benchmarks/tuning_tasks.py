"""A public set of tuning tasks: kernels of well-known networks, as data.

``tuning_tasks.json`` has a small ONNX graph for each: inputs, weights (drawn from a seed), nodes, outputs. A task is
the kernel of such a graph that computes most, as it is built for this machine without tuning. So its function, and with
it the space, may differ from CPU to CPU; results of two machines do not compare.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.features import FEATURES, features
from tilewright.autotune.network.tune_network import make_tasks
from tilewright.codegen.detect_cpu import detect_host, with_threads
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.lowering.plan import fuse_and_lower

FILE = Path(__file__).with_name("tuning_tasks.json")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks by name. ``digest``: of the file, so that results tell what they are of."""

    tasks: Mapping[str, Mapping[str, Any]]
    opset: int
    digest: str

    def model(self, name: str) -> onnx.ModelProto:
        """The graph of a task as an ONNX model. Raises InputError for an unknown name."""
        if name not in self.tasks:
            raise InputError(f"tasks: expected names of tasks, got {name!r}{did_you_mean(name, self.tasks)}")
        return _model(name, self.tasks[name], self.opset)

    def task(self, name: str, threads: int | None = None) -> Task:
        """The kernel of a task, for this machine. ``threads``: of a run (default: what the machine allows)."""
        target = with_threads(detect_host(), threads)
        graph = compile(self.model(name), stop_after="passes", target=target)
        lowered = fuse_and_lower(graph, target)
        found = make_tasks(lowered, target, {}, dict.fromkeys(lowered.funcs, 1.0))
        return replace(max(found, key=_arithmetic), weight=1.0, name=name)


def read_tasks(path: str | Path = FILE) -> TaskSet:
    """The set in a file."""
    data = Path(path).read_bytes()
    found = json.loads(data)
    return TaskSet({t["name"]: t for t in found["tasks"]}, found["opset"], hashlib.sha256(data).hexdigest()[:16])


def _model(name: str, t: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(_draw(rng, *typed), n) for n, typed in t["weights"].items()]
    inputs, outputs = ([_info(n, *typed) for n, typed in t[kind].items()] for kind in ("inputs", "outputs"))
    nodes = [
        helper.make_node(n["op"], n["inputs"], n["outputs"], name=n["outputs"][0], **n.get("attributes", {}))
        for n in t["nodes"]
    ]
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _draw(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return (rng.standard_normal(shape) * 0.1).astype(dtype)


def _info(name: str, dtype: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _arithmetic(task: Task) -> float:
    return float(features(task.func, task.target, task.dims)[FEATURES.index("func.flops")])
