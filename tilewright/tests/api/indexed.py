"""Operators that take indices, each in a model of its own: plain, in a branch, in a loop, with symbolic dims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feed = dict[str, np.ndarray]
FLOATS = np.arange(24, dtype=np.float32)
INDEX = "i"
"""Name of the operand that holds the indices."""


@dataclass(frozen=True)
class Case:
    """``operands``: of the node, in order, for an index to put in (None: absent). ``fine``: indices to try. ``low`` and
    ``high``: the range, both ends allowed. ``lone``: onnxruntime has no such range."""

    op: str
    operands: Callable[[int], Mapping[str, np.ndarray | None]]
    low: int
    high: int
    what: str = "indices"
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21

    def feed(self, index: int) -> Feed:
        return {k: v for k, v in self.operands(index).items() if v is not None}

    def where(self, node: str = "node") -> str:
        return f"node '{node}' ({self.op}): expected {self.what} in [{self.low}, {self.high}], got "

    def node(self, output: str = "y") -> onnx.NodeProto:
        inputs = ["" if v is None else k for k, v in self.operands(0).items()]
        return helper.make_node(self.op, inputs, [output], "node", **self.attrs)


def ints(values: Any, dtype: type = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def data(*shape: int) -> np.ndarray:
    return FLOATS[: int(np.prod(shape))].reshape(shape)


def _recurrent(gates: int) -> Callable[[int], Mapping[str, np.ndarray | None]]:
    weights = np.sin(np.arange(64, dtype=np.float32))
    return lambda k: {
        "x": data(3, 2, 4), "w": weights[: gates * 8].reshape(1, gates * 2, 4),
        "r": weights[: gates * 4].reshape(1, gates * 2, 2), "b": None, "i": ints([2, k], np.int32),
    }  # fmt: skip


CASES: Mapping[str, Case] = {
    "gather": Case("Gather", lambda k: {"x": data(3, 4), "i": ints([0, k])}, -3, 2),
    "gather_a_scalar": Case("Gather", lambda k: {"x": data(3, 4), "i": ints(k)}, -4, 3, attrs={"axis": 1}),
    "gather_matrix": Case(
        "Gather", lambda k: {"x": data(2, 3, 4), "i": ints([[0, 1, k], [2, -1, 0]])}, -3, 2, attrs={"axis": -2}
    ),
    "gather_int32": Case("Gather", lambda k: {"x": data(5), "i": ints([k] + 20 * [1], np.int32)}, -5, 4),
    "gather_elements": Case(
        "GatherElements", lambda k: {"x": data(3, 4), "i": ints([[0, 1, 2, 0], [1, k, -1, 2]])}, -3, 2
    ),
    "gather_elements_int32": Case(
        "GatherElements", lambda k: {"x": data(2, 3), "i": ints([[k], [0]], np.int32)}, -3, 2, attrs={"axis": 1}
    ),
    "gather_nd": Case("GatherND", lambda k: {"x": data(3, 4), "i": ints([[0, 3], [2, k]])}, -4, 3),
    "gather_nd_rows": Case("GatherND", lambda k: {"x": data(3, 4), "i": ints([[[k], [1]]])}, -3, 2),
    "gather_nd_batch": Case(
        "GatherND", lambda k: {"x": data(2, 3, 4), "i": ints([[k, 3], [0, -4]])}, -3, 2, attrs={"batch_dims": 1}
    ),
    "scatter_elements": Case(
        "ScatterElements", lambda k: {"x": data(3, 4), "i": ints([[0, k]]), "u": data(1, 2) - 9}, -3, 2
    ),
    "scatter_elements_add": Case(
        "ScatterElements", lambda k: {"x": data(3, 4), "i": ints([[0, k]], np.int32), "u": data(1, 2) - 9}, -4, 3,
        attrs={"axis": 1, "reduction": "add"},
    ),
    "scatter_nd": Case("ScatterND", lambda k: {"x": data(3, 4), "i": ints([[0, k]]), "u": data(1) - 9}, -4, 3),
    "scatter_nd_rows": Case("ScatterND", lambda k: {"x": data(3, 4), "i": ints([[k]]), "u": data(1, 4) - 9}, -3, 2),
    "reverse_sequence": Case(
        "ReverseSequence", lambda k: {"x": data(3, 4), "i": ints([1, 3, k, 2])}, 0, 3, "sequence lengths",
        {"time_axis": 0, "batch_axis": 1},
    ),
    "max_unpool": Case(
        "MaxUnpool", lambda k: {"x": data(1, 1, 2, 2), "i": ints([[[[0, 2], [8, k]]]])}, 0, 15, "positions",
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "roi_align": Case(
        "RoiAlign",
        lambda k: {"x": data(2, 1, 3, 4), "r": np.array([[0, 0, 2, 2], [1, 0, 3, 2]], np.float32), "i": ints([0, k])},
        0, 1, "batch indices", {"output_height": 2, "output_width": 2, "sampling_ratio": 2}, 16,
    ),
    "lstm": Case("LSTM", _recurrent(4), 0, 3, "sequence lengths", {"hidden_size": 2}, 14),
    "gru": Case("GRU", _recurrent(3), 0, 3, "sequence lengths", {"hidden_size": 2, "direction": "reverse"}, 14),
    "rnn": Case("RNN", _recurrent(1), 0, 3, "sequence lengths", {"hidden_size": 2}, 14),
    "tensor_scatter": Case(
        "TensorScatter", lambda k: {"x": data(1, 4, 2), "u": -data(1, 2, 2), "i": ints([k])}, 0, 2, "write indices",
        {"axis": 1}, 24,
    ),
    "cum_sum": Case("CumSum", lambda k: {"x": data(3, 4), "i": ints(k)}, -2, 1, "axes"),
    "unsqueeze": Case("Unsqueeze", lambda k: {"x": data(3, 4), "i": ints([k])}, -3, 2, "axes"),
    "reduce_sum": Case("ReduceSum", lambda k: {"x": data(3, 4), "i": ints([k])}, -2, 1, "axes", {"keepdims": 0}),
}  # fmt: skip


def plain(case: Case, constant: int | None = None, symbolic: bool = False) -> onnx.ModelProto:
    """The node alone. ``constant``: the index if it is no input. ``symbolic``: the dims of inputs are."""
    return _model(case, [case.node()], ["y"], constant, symbolic)


def branch(case: Case, constant: int | None = None) -> onnx.ModelProto:
    """The node in a branch that is taken if ``go``; the other one gives the same with a fine index."""
    inner = helper.make_graph([case.node("t")], "then", [], [_value("t")])
    fine = numpy_helper.from_array(case.feed(0)[INDEX], "fine")
    other = case.node("e")
    other.name = "other"
    other.input[list(other.input).index(INDEX)] = "fine"
    outer = helper.make_graph([other], "else", [], [_value("e")], [fine])
    node = helper.make_node("If", ["go"], ["y"], "if", then_branch=inner, else_branch=outer)
    return _model(case, [node], ["y"], constant, False, {"go": TensorProto.BOOL})


def loop(case: Case, constant: int | None = None) -> onnx.ModelProto:
    """The node in the body of a loop of ``trips`` steps, whose results are stacked."""
    flag = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.BOOL, shape=[])
    body = helper.make_graph(
        [case.node("t"), helper.make_node("Identity", ["c"], ["d"])], "body",
        [helper.make_tensor_value_info("step", TensorProto.INT64, []), flag("c")], [flag("d"), _value("t")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["always"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("Loop", ["trips", "always"], ["y"], "loop", body=body),
    ]
    return _model(case, nodes, ["y"], constant, False, {"trips": TensorProto.INT64})


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _model(
    case: Case, nodes: list[onnx.NodeProto], outputs: list[str], constant: int | None, symbolic: bool,
    more: Mapping[str, int] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    feed = case.feed(0 if constant is None else constant)
    inputs = [helper.make_tensor_value_info(k, t, []) for k, t in (more or {}).items()]
    for name, x in feed.items():
        if name != INDEX or constant is None:
            dims: list[str | int] = [f"{name}{d}" for d in range(x.ndim)] if symbolic else list(x.shape)
            if name == INDEX and case.op.endswith("ND"):
                dims[-1] = x.shape[-1]  # how many coordinates is a matter of rank
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), dims))
    known = [] if constant is None else [numpy_helper.from_array(feed[INDEX], INDEX)]
    graph = helper.make_graph(nodes, "g", inputs, [_value(o) for o in outputs], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
