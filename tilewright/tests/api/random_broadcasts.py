"""Random graphs of operands that broadcast. Every axis, counted from the right, has one size, or 1, in all values.

So any two values broadcast. Which axes of the inputs have which of the two is a symbol's business in half of the cases,
and differs from call to call; the graphs then also meet sizes that their requirements (Concat, MatMul) do not allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Mean")
_UNARY = ("Relu", "Tanh", "Neg", "Sigmoid")


@dataclass(slots=True)
class RandomGraph:
    """A model, the sizes of its axes from the right, and for each symbol the axis that it stands for."""

    rng: np.random.Generator
    sizes: tuple[int, ...] = (7, 5, 3)
    symbols: dict[str, int] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, list[int | str]] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)

    def _pick(self, least_rank: int = 0) -> str:
        names = [n for n, r in self.ranks.items() if r >= least_rank]
        return str(self.rng.choice(names))

    def _input(self) -> None:
        rank = int(self.rng.integers(0, 4))
        dims: list[int | str] = []
        for axis in range(rank, 0, -1):
            kind = self.rng.random()
            if kind < 0.6:
                dims.append(f"s{len(self.symbols)}")
                self.symbols[str(dims[-1])] = axis
            else:
                dims.append(1 if kind < 0.75 else self.sizes[axis - 1])
        name = f"x{len(self.inputs)}"
        self.inputs[name], self.ranks[name] = dims, rank

    def _constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _emit(self, op: str, inputs: list[str], rank: int, keep: bool = True, **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{name}", **attrs))
        if keep:
            self.ranks[name] = rank
        return name

    def _step(self) -> None:
        kind = str(self.rng.choice(list(_STEPS), p=_WEIGHTS))
        if kind == "binary":
            a, b = self._pick(), self._pick()
            self._emit(str(self.rng.choice(_BINARY)), [a, b], max(self.ranks[a], self.ranks[b]))
        elif kind == "unary":
            a = self._pick()
            self._emit(str(self.rng.choice(_UNARY)), [a], self.ranks[a])
        elif kind == "where":
            a, b, c = self._pick(), self._pick(), self._pick()
            test = self._emit("Greater", [a, b], 0, keep=False)
            self._emit("Where", [test, c, a], max(self.ranks[v] for v in (a, b, c)))
        elif kind == "expand":
            a, b = self._pick(1), self._pick(1)
            shape = self._emit("Shape", [b], 1, keep=False)
            self._emit("Expand", [a, shape], max(self.ranks[a], self.ranks[b]))
        elif kind == "reduce":
            a = self._pick(1)
            axis = -int(self.rng.integers(1, self.ranks[a] + 1))
            self._emit("ReduceSum", [a, self._constant(np.array([axis]))], self.ranks[a], keepdims=1)
        elif kind == "softmax":
            a = self._pick(1)
            self._emit("Softmax", [a], self.ranks[a], axis=-int(self.rng.integers(1, self.ranks[a] + 1)))
        elif kind == "turned":
            a, b = self._pick(2), self._pick(2)
            turned = [self._emit("Transpose", [v], 0, False, perm=_swapped(self.ranks[v])) for v in (a, b)]
            rank = max(self.ranks[a], self.ranks[b])
            self._emit("Transpose", [self._emit("Add", turned, 0, False)], rank, perm=_swapped(rank))
        elif kind == "product":
            a, b = self._pick(2), self._pick(2)
            other = self._emit("Transpose", [b], 0, False, perm=_swapped(self.ranks[b]))
            product = self._emit("MatMul", [a, other], 0, False)
            rank = max(self.ranks[a], self.ranks[b])
            self._emit("ReduceSum", [product, self._constant(np.array([-1]))], rank, keepdims=1)
        elif kind == "joined":
            a, b = self._pick(1), self._pick(1)
            if self.ranks[a] != self.ranks[b]:
                return
            axis = -int(self.rng.integers(1, self.ranks[a] + 1))
            joined = self._emit("Concat", [a, b], 0, False, axis=axis)
            self._emit("ReduceMax", [joined, self._constant(np.array([axis]))], self.ranks[a], keepdims=1)
        else:
            a = self._pick(1)
            flat = self._emit("Reshape", [a, self._constant(np.array([-1]))], 0, False)
            shape = self._emit("Shape", [a], 1, keep=False)
            self._emit("Reshape", [self._emit("Relu", [flat], 0, False), shape], self.ranks[a], allowzero=1)

    def model(self) -> onnx.ModelProto:
        """The graph with everything that nothing reads as output."""
        read = {i for n in self.nodes for i in n.input}
        outputs = [n for n in self.ranks if n not in read and n not in self.inputs]
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in self.inputs.items()],
            [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
            [numpy_helper.from_array(v, k) for k, v in self.constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def feeds(self, count: int) -> Iterator[dict[str, np.ndarray]]:
        """Inputs with all symbols at their axes' sizes, then with some at 1, and with an empty axis now and then."""
        for k in range(count):
            sizes = list(self.sizes)
            fixed = {len(d) - i for d in self.inputs.values() for i, s in enumerate(d) if isinstance(s, int) and s > 1}
            empty = int(self.rng.integers(1, 4))
            if k == count - 1 and empty not in fixed:
                sizes[empty - 1] = 0
            share = 0.0 if k == 0 else float(self.rng.random())
            env = {s: 1 if self.rng.random() < share else sizes[axis - 1] for s, axis in self.symbols.items()}
            shapes = {n: [env[d] if isinstance(d, str) else d for d in dims] for n, dims in self.inputs.items()}
            yield {n: self.rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


_STEPS = {
    "binary": 8.0, "unary": 2.0, "where": 1.0, "expand": 1.5, "reduce": 1.0, "softmax": 0.7, "turned": 1.0,
    "product": 1.5, "joined": 0.7, "flat": 0.7,
}  # fmt: skip
_WEIGHTS = np.array(list(_STEPS.values())) / sum(_STEPS.values())


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def random_graph(seed: int) -> RandomGraph:
    """The graph of a seed: two to five inputs, of which one at least is a matrix, and three to eleven steps."""
    graph = RandomGraph(np.random.default_rng(seed))
    for _ in range(int(graph.rng.integers(2, 6))):
        graph._input()
    graph.inputs["m"], graph.ranks["m"] = ["r", "q"], 2
    graph.symbols |= {"r": 2, "q": 1}
    for _ in range(int(graph.rng.integers(3, 12))):
        graph._step()
    return graph
