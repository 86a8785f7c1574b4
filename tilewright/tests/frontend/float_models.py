"""Small float models, to be quantized: the operators that onnxruntime's quantizer knows, in the company they keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.tests.frontend.models import model_of

Feeds = list[dict[str, np.ndarray]]
N = helper.make_node


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    fan = float(np.prod(shape[1:])) if len(shape) > 1 else 1.0
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(fan)).astype(np.float32)


def convnet() -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, a sum around a block, GlobalAveragePool, Gemm, Softmax."""
    constants = {
        "w1": weights(8, 3, 3, 3), "b1": weights(8, seed=1) / 9, "g": np.abs(weights(8, seed=2)) + 0.5,
        "o": weights(8, seed=3) / 9, "m": weights(8, seed=4) / 9, "v": np.abs(weights(8, seed=5)) + 0.5,
        "w2": weights(8, 8, 3, 3, seed=6), "wd": weights(8, 1, 3, 3, seed=7), "fc": weights(5, 8, seed=8),
        "fb": weights(5, seed=9) / 9,
    }  # fmt: skip
    nodes = [
        N("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        N("BatchNormalization", ["c1", "g", "o", "m", "v"], ["n1"], "norm"),
        N("Relu", ["n1"], ["r1"], "relu1"),
        N("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        N("Conv", ["p1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        N("Relu", ["c2"], ["r2"], "relu2"),
        N("Conv", ["r2", "wd"], ["c3"], "depthwise", pads=[1, 1, 1, 1], group=8),
        N("Add", ["p1", "c3"], ["a"], "sum"),
        N("GlobalAveragePool", ["a"], ["gap"], "mean"),
        N("Flatten", ["gap"], ["flat"], "flat"),
        N("Gemm", ["flat", "fc", "fb"], ["logits"], "fc", transB=1),
        N("Softmax", ["logits"], ["y"], "prob", axis=1),
    ]
    return model_of(nodes, {"x": ["n", 3, 10, 11]}, ["y"], 13, constants=constants)


def branches() -> onnx.ModelProto:
    """Activations, AveragePool, Concat, Mul, Clip, Resize, Pad, Split, Where, Transpose."""
    constants = {
        "w": weights(6, 3, 1, 1), "sizes": np.array([2, 4]), "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1]),
        "low": np.array(0, np.float32), "high": np.array(1.5, np.float32), "keep": np.arange(8) % 3 > 0,
        "around": np.array(0, np.float32), "other": np.array([0.25], np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32), "wt": weights(8, 8, 2, 2, seed=2),
    }  # fmt: skip
    nodes = [
        N("Conv", ["x", "w"], ["c"], "conv"),
        N("LeakyRelu", ["c"], ["l"], "leaky", alpha=0.2),
        N("Sigmoid", ["c"], ["s"], "sigmoid"),
        N("Mul", ["l", "s"], ["m"], "gate"),
        N("Split", ["m", "sizes"], ["u", "v"], "split", axis=1),
        N("AveragePool", ["v"], ["av"], "average", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        N("Clip", ["av", "low", "high"], ["cv"], "clip"),
        N("Concat", ["u", "cv", "u"], ["k"], "concat", axis=1),
        N("Pad", ["k", "pads", "around"], ["pk"], "pad"),
        N("Resize", ["pk", "", "scales"], ["z"], "resize", mode="nearest", coordinate_transformation_mode="asymmetric",
          nearest_mode="floor"),
        N("ConvTranspose", ["z", "wt"], ["d"], "up", strides=[2, 2]),
        N("Transpose", ["d"], ["t"], "turn", perm=[0, 2, 3, 1]),
        N("Where", ["keep", "t", "other"], ["y"], "where"),
    ]  # fmt: skip
    return model_of(nodes, {"x": ["n", 3, 6, 7]}, ["y"], 13, constants=constants)


def perceptron() -> onnx.ModelProto:
    """Gemm and MatMul with Add, activations, a residual, Softmax over another axis."""
    constants = {"w1": weights(33, 17), "b1": weights(17, seed=1) / 9, "w2": weights(17, 17, seed=2),
                 "b2": weights(17, seed=3) / 9, "w3": weights(3, 17, seed=4)}  # fmt: skip
    nodes = [
        N("Gemm", ["x", "w1", "b1"], ["g"], "gemm"),
        N("Relu", ["g"], ["r"], "relu"),
        N("MatMul", ["r", "w2"], ["p"], "product"),
        N("Add", ["p", "b2"], ["q"], "bias"),
        N("Sigmoid", ["q"], ["s"], "sigmoid"),
        N("Mul", ["q", "s"], ["m"], "swish"),
        N("Add", ["m", "r"], ["a"], "residual"),
        N("Gemm", ["a", "w3"], ["l"], "last", transB=1),
        N("Softmax", ["l"], ["y"], "prob", axis=1),
    ]
    return model_of(nodes, {"x": ["n", 33]}, ["y"], 13, constants=constants)


def tokens() -> onnx.ModelProto:
    """An embedding, attention of one head written out, LayerNormalization, ArgMax."""
    constants = {"table": weights(20, 16) * 4, "wq": weights(16, 16, seed=1), "wk": weights(16, 16, seed=2),
                 "wv": weights(16, 16, seed=3), "g": np.abs(weights(16, seed=4)), "b": weights(16, seed=5),
                 "head": weights(16, 20, seed=6)}  # fmt: skip
    nodes = [
        N("Gather", ["table", "ids"], ["e"], "embedding", axis=0),
        *(N("MatMul", ["e", f"w{k}"], [k], f"to_{k}") for k in "qkv"),
        N("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        N("MatMul", ["q", "kt"], ["s"], "scores"),
        N("Softmax", ["s"], ["p"], "prob", axis=-1),
        N("MatMul", ["p", "v"], ["o"], "mix"),
        N("Add", ["o", "e"], ["a"], "residual"),
        N("LayerNormalization", ["a", "g", "b"], ["n"], "norm", axis=-1),
        N("MatMul", ["n", "head"], ["y"], "head"),
    ]
    return model_of(nodes, {"ids": ["n", "steps"]}, ["y"], 17, constants=constants, dtype=TensorProto.INT64,
                    out_dtype=TensorProto.FLOAT)  # fmt: skip


def recurrent() -> onnx.ModelProto:
    """LSTM in both directions, and a product behind it."""
    constants = {"w": weights(2, 24, 7), "r": weights(2, 24, 6, seed=1), "b": weights(2, 48, seed=2) / 9,
                 "fc": weights(12, 4, seed=3), "shape": np.array([0, 0, -1])}  # fmt: skip
    nodes = [
        N("LSTM", ["x", "w", "r", "b"], ["h"], "lstm", hidden_size=6, direction="bidirectional"),
        N("Transpose", ["h"], ["t"], "turn", perm=[0, 2, 1, 3]),
        N("Reshape", ["t", "shape"], ["f"], "flat"),
        N("MatMul", ["f", "fc"], ["y"], "fc"),
    ]
    return model_of(nodes, {"x": ["steps", "n", 7]}, ["y"], 14, constants=constants)


def transformer() -> onnx.ModelProto:
    """onnxruntime's fused operators: embeddings, Attention, SkipLayerNormalization, BiasGelu."""
    ms = {"domain": "com.microsoft"}
    constants = {
        "words": weights(30, 16) * 4, "positions": weights(12, 16, seed=1) * 4, "segments": weights(2, 16, seed=2),
        "g": np.abs(weights(16, seed=3)), "b": weights(16, seed=4), "w": weights(16, 48, seed=5),
        "wb": weights(48, seed=6),
        "wo": weights(16, 16, seed=7), "bo": weights(16, seed=8), "w1": weights(16, 24, seed=9),
        "b1": weights(24, seed=10), "w2": weights(24, 16, seed=11), "b2": weights(16, seed=12),
    }  # fmt: skip
    nodes = [
        N("EmbedLayerNormalization", ["ids", "kinds", "words", "positions", "segments", "g", "b", "mask"],
          ["e", "lengths"], "embed", **ms),
        N("Attention", ["e", "w", "wb", "lengths"], ["a"], "attention", num_heads=4, **ms),
        N("MatMul", ["a", "wo"], ["o"], "out"),
        N("SkipLayerNormalization", ["o", "e", "g", "b", "bo"], ["s"], "skip", **ms),
        N("MatMul", ["s", "w1"], ["f"], "up"),
        N("BiasGelu", ["f", "b1"], ["h"], "gelu", **ms),
        N("MatMul", ["h", "w2"], ["d"], "down"),
        N("SkipLayerNormalization", ["d", "s", "g", "b", "b2"], ["y"], "skip2", **ms),
    ]  # fmt: skip
    return model_of(nodes, {k: ["n", "steps"] for k in ("ids", "kinds", "mask")}, ["y"], 14, constants=constants,
                    dtype=TensorProto.INT32, out_dtype=TensorProto.FLOAT, domains={"com.microsoft": 1})  # fmt: skip


def _real(shape: Sequence[int]) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    return lambda rng: {"x": rng.standard_normal(shape).astype(np.float32)}


def _words(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(0, 20, (3, 7))}


def _sentences(rng: np.random.Generator) -> dict[str, np.ndarray]:
    ids = {"ids": rng.integers(0, 30, (3, 7)), "kinds": rng.integers(0, 2, (3, 7)),
           "mask": np.arange(7)[None, :] < rng.integers(3, 8, (3, 1))}  # fmt: skip
    return {k: v.astype(np.int32) for k, v in ids.items()}


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[np.random.Generator], dict[str, np.ndarray]]]] = {
    "convnet": (convnet, _real((3, 3, 10, 11))), "branches": (branches, _real((2, 3, 6, 7))),
    "perceptron": (perceptron, _real((5, 33))), "tokens": (tokens, _words), "recurrent": (recurrent, _real((5, 2, 7))),
    "transformer": (transformer, _sentences),
}  # fmt: skip


def feeds(name: str, count: int = 4) -> Feeds:
    """Inputs of a model, the same each time."""
    rng = np.random.default_rng(7)
    return [MODELS[name][1](rng) for _ in range(count)]
