"""Small models as exporters write them, with something to simplify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.tests.quantization.models import model_of, normal


def classifier(opset: int = 17) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, and a Reshape to rows whose size is computed from the input's shape."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Identity", ["r"], ["i"], "identity"),
        helper.make_node("GlobalAveragePool", ["i"], ["p"], "pool"),
        *flattening("p"),
        helper.make_node("MatMul", ["rows", "v"], ["m"], "product"),
        helper.make_node("Add", ["m", "b"], ["y"], "bias"),
    ]
    weights = {
        "w": normal(1, 8, 3, 3, 3), "scale": normal(2, 8), "shift": normal(3, 8), "mean": normal(4, 8),
        "var": np.abs(normal(5, 8)) + 1, "v": normal(6, 8, 5), "b": normal(7, 5),
    }  # fmt: skip
    model = model_of(nodes, {"x": ("batch", 3, "height", "width")}, ["y"], weights, opset)
    model.graph.initializer.extend(integers({"zero": 0, "at": [0], "rest": [-1]}))
    return model


def flattening(x: str) -> list[onnx.NodeProto]:
    """``rows`` as x.view(x.size(0), -1) is exported."""
    return [
        helper.make_node("Shape", [x], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "zero"], ["size"], "size"),
        helper.make_node("Unsqueeze", ["size", "at"], ["sizes"], "sizes"),
        helper.make_node("Concat", ["sizes", "rest"], ["target"], "target", axis=0),
        helper.make_node("Reshape", [x, "target"], ["rows"], "rows"),
    ]


def integers(values: Mapping[str, int | Sequence[int]]) -> list[onnx.TensorProto]:
    """Initializers of int64."""
    return [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in values.items()]


def past_and_mask() -> onnx.ModelProto:
    """A mask as long as past and present together, as decoders take it."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], "concat", axis=1),
        helper.make_node("Mul", ["all", "mask"], ["y"], "mask"),
    ]
    return model_of(nodes, {"past": ("n", "past_len"), "new": ("n", "len"), "mask": ("n", "total")}, ["y"], {})


def foreign() -> onnx.ModelProto:
    """A node of another domain between an Identity and a sum with a computed constant."""
    nodes = [
        helper.make_node("Identity", ["x"], ["i"], "identity"),
        helper.make_node("Secret", ["i"], ["s"], "secret", domain="com.example", strength=3),
        helper.make_node("Add", ["a", "b"], ["c"], "constants"),
        helper.make_node("Add", ["s", "c"], ["y"], "sum"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(normal(1, 4), "a"), numpy_helper.from_array(normal(2, 4), "b")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
