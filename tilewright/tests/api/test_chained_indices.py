"""Indices that the model computes, on the way to them and from each other: random chains, right or refused exactly as
the interpreter has it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph

INT64, INT32, FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT


@dataclass
class Chain:
    """A model under construction. ``indices``: names of int64 tensors of shape [4, 3]."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    indices: list[str] = field(default_factory=lambda: ["i", "j"])
    results: list[str] = field(default_factory=list)

    def emit(self, op: str, inputs: list[str], **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{len(self.nodes)}", **attrs))
        return name

    def known(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def pick(self) -> str:
        return self.indices[int(self.rng.integers(len(self.indices)))]

    def step(self) -> None:
        """One more index tensor, or a result that reads at one."""
        at = self.pick()
        match int(self.rng.integers(9)):
            case 0:
                self.indices.append(self.emit("Add", [at, self.known(np.array(self.rng.integers(-2, 3)))]))
            case 1:
                narrow = self.emit("Cast", [at], to=INT32)
                self.results.append(self.emit("Gather", ["x", narrow], axis=int(self.rng.integers(2))))
            case 2:
                self.indices.append(self.emit("Mod", [at, self.known(np.array(3))]))
            case 3:
                self.indices.append(self.emit("GatherElements", [self.pick(), at], axis=int(self.rng.integers(2))))
            case 4:
                rows = self.emit("Gather", [at, self.known(self.rng.integers(-3, 4, 3))], axis=1)
                self.indices.append(rows)
            case 5:
                best = self.emit("ArgMax", ["y"], axis=1, keepdims=1)
                self.indices.append(self.emit("Add", [self.emit("Mul", [at, self.known(np.array(0))]), best]))
            case 6:
                pairs = self.emit("Slice", [at, *(self.known(np.array([k])) for k in (0, 2, 1))])
                self.results.append(self.emit("GatherND", ["x", pairs]))
            case 7:
                shown = self.emit("GatherElements", ["y", at], axis=int(self.rng.integers(2)))
                self.results.append(self.emit("Exp", [shown]))
            case _:
                self.results.append(self.emit("ScatterElements", ["y", at, "y"], axis=1, reduction="add"))

    def model(self, symbolic: bool) -> onnx.ModelProto:
        shape: list[str | int] = ["a", "b"] if symbolic else [4, 3]
        table: list[str | int] = ["c", "d"] if symbolic else [4, 5]
        inputs = [helper.make_tensor_value_info(n, INT64, shape) for n in "ij"]
        inputs += [helper.make_tensor_value_info(n, FLOAT, s) for n, s in (("x", table), ("y", shape))]
        outputs = [helper.make_tensor_value_info(n, t, None) for n, t in self.outputs()]
        known = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(self.living(), "chain", inputs, outputs, known)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def living(self) -> list[onnx.NodeProto]:
        """The nodes that a result depends on: what nobody reads is not computed, and may read where it likes."""
        needed, kept = {n for n, _ in self.outputs()}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                kept.append(node)
        return kept[::-1]

    def outputs(self) -> list[tuple[str, int]]:
        last = self.indices[-1]
        return [*((n, FLOAT) for n in self.results), *([(last, INT64)] if last not in "ij" else [])]


def chain(seed: int) -> Chain:
    made = Chain(np.random.default_rng(seed))
    for _ in range(int(made.rng.integers(2, 9))):
        made.step()
    if not made.outputs():
        made.results.append(made.emit("Gather", ["x", "i"]))
    return made


def feed(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Indices that are mostly in range."""
    near, far = int(rng.integers(0, 3)), int(rng.integers(1, 5))
    i, j = (rng.integers(-near, far, (4, 3)) for _ in "ij")
    return {"i": i, "j": j, "x": rng.random((4, 5), np.float32), "y": rng.random((4, 3), np.float32)}


def check(seed: int) -> tuple[int, int]:
    """Compares some runs; how many were right, and how many refused."""
    made = chain(seed)
    proto = made.model(symbolic=bool(seed % 2))
    graph = from_onnx(proto)
    try:
        model = tilewright.compile(graph, threads=1 + seed % 2, opt_level="none" if seed % 5 == 0 else "all")
    except ModelError:  # some constant is out of range, so every run of the interpreter must say so
        with pytest.raises(InputError):
            interpret(graph, feed(made.rng))
        return 0, 1
    right = 0
    feeds = [feed(made.rng) for _ in range(8)]
    for given in feeds:
        right += agrees(model, graph, given)
    return right, len(feeds) - right


def agrees(model: tilewright.CompiledModel, graph: Graph, given: dict[str, np.ndarray]) -> bool:
    """True if both gave the same, False if both refused the indices; fails otherwise."""
    try:
        want = interpret(graph, given)
    except InputError:
        with pytest.raises(InputError, match="expected indices in"):
            model.run(given)
        return False
    for name, value in model.run(given).items():
        np.testing.assert_allclose(value, np.asarray(want[name]), rtol=1e-5)
    return True


def test_random_chains() -> None:
    counts = np.array([check(seed) for seed in range(24)]).sum(axis=0)
    assert counts.min() > 20, counts
