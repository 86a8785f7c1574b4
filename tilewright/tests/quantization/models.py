"""Small models of float32 to quantize, and samples for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.quantization.calibration.runner import open_runner

Feed = dict[str, np.ndarray]


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str],
    weights: Mapping[str, np.ndarray], opset: int = 17,
) -> onnx.ModelProto:  # fmt: skip
    """A model of float32 whose results have shapes that follow."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()],
    )
    ids = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=ids, ir_version=max(7, helper.find_min_ir_version_for(ids)))
    )


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def residual(opset: int = 17) -> onnx.ModelProto:
    """Conv, Relu, Conv, a sum with the first activation, Relu, pools, Flatten, Gemm."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["s"], "add"),
        helper.make_node("Relu", ["s"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["a"], "mean"),
        helper.make_node("Flatten", ["a"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1),
    ]
    weights = {
        "w1": normal(1, 8, 4, 3, 3) / 6, "b1": normal(2, 8), "w2": normal(3, 8, 8, 3, 3) / 8, "b2": normal(4, 8),
        "w3": normal(5, 5, 8), "b3": normal(6, 5),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 4, 8, 8)}, ["y"], weights, opset)


def transformer() -> onnx.ModelProto:
    """A norm that two products read, one with a bias in an Add, a product of activations, and a last product."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], "norm", axis=-1),
        helper.make_node("MatMul", ["n", "wq"], ["q"], "query"),
        helper.make_node("MatMul", ["n", "wk"], ["k0"], "key"),
        helper.make_node("Add", ["bk", "k0"], ["k"], "key_bias"),
        helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], "product"),
        helper.make_node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["o"], "mix"),
        helper.make_node("MatMul", ["o", "wo"], ["y"], "out"),
    ]
    scale = np.ones(16, np.float32)
    scale[3] = 40.0  # an outlier
    weights = {
        "scale": scale, "shift": normal(2, 16) / 4, "wq": normal(3, 16, 16) / 8, "wk": normal(4, 16, 16) / 8,
        "bk": normal(5, 16), "wo": normal(6, 16, 12) / 4,
    }  # fmt: skip
    return model_of(nodes, {"x": ("batch", 6, 16)}, ["y"], weights)


def samples(model: onnx.ModelProto, count: int = 4) -> list[Feed]:
    """Normal samples of a model's inputs, open dimensions of 1."""
    return [
        {
            i.name: normal(100 + 7 * n + k, *(d.dim_value or 1 for d in i.type.tensor_type.shape.dim))
            for k, i in enumerate(model.graph.input)
        }
        for n in range(count)
    ]


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {i.name: np.asarray(numpy_helper.to_array(i)) for i in model.graph.initializer}


def run(model: onnx.ModelProto, feed: Feed) -> dict[str, np.ndarray]:
    """The results by this compiler."""
    return open_runner(model, "tilewright")(feed)
