"""Small models for the tests of the public surface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tilewright.tests.frontend.models import model_of


def perceptron(width: int = 64, seed: int = 0) -> onnx.ModelProto:
    """y = relu(x @ w + b) @ v for x[batch, 32]."""
    rng = np.random.default_rng(seed)
    constants = {
        "w": rng.standard_normal((32, width)).astype(np.float32) / 6,
        "b": rng.standard_normal(width).astype(np.float32),
        "v": rng.standard_normal((width, 10)).astype(np.float32) / 8,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "hidden"),
        helper.make_node("Add", ["h", "b"], ["hb"], "bias"),
        helper.make_node("Relu", ["hb"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "readout"),
    ]
    return model_of(nodes, {"x": ["batch", 32]}, ["y"], 18, constants=constants)


def perceptron_by_hand(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    w, b, v = (onnx.numpy_helper.to_array(i) for i in model.graph.initializer)
    return np.maximum(x @ w + b, 0) @ v


def convolution(size: int = 32) -> onnx.ModelProto:
    """Two convolutions, a pool and a softmax: enough work for two threads."""
    rng = np.random.default_rng(1)
    constants = {
        "w1": rng.standard_normal((16, 3, 3, 3)).astype(np.float32) / 5,
        "w2": rng.standard_normal((24, 16, 3, 3)).astype(np.float32) / 12,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Softmax", ["f"], ["y"], "prob"),
    ]
    return model_of(nodes, {"x": [1, 3, size, size]}, ["y"], 18, constants=constants)


def two_inputs() -> onnx.ModelProto:
    """total = a + b and rows = Concat(a, b), both inputs of [n, m]."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"], "add"),
        helper.make_node("Concat", ["a", "b"], ["rows"], "concat", axis=0),
    ]
    return model_of(nodes, {"a": ["n", "m"], "b": ["n", "m"]}, ["total", "rows"], 18)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model") -> str:
    """The model as a file in ``folder``."""
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    return str(path)
