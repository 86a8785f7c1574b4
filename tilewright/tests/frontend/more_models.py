"""More small models: together they use most kinds of operators. For the fuzzer that compiles and runs mutants."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.tests.frontend.models import FLOAT, model_of

node = helper.make_node
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _value(name: str, dtype: int, shape: list[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _typed(model: onnx.ModelProto, dtypes: dict[str, int]) -> onnx.ModelProto:
    """The model with other element types for the named inputs and outputs."""
    for v in (*model.graph.input, *model.graph.output):
        if v.name in dtypes:
            v.type.tensor_type.elem_type = dtypes[v.name]
    return model


def windows() -> onnx.ModelProto:
    """Convolutions and pools with every attribute that windows have."""
    constants = {"w": _random(4, 2, 3, 3), "b": _random(4), "t": _random(4, 1, 2, 3), "s": _random(2)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[1, 2], dilations=[2, 1], pads=[2, 1, 1, 0], group=2),
        node("ConvTranspose", ["c", "t"], ["u"], strides=[2, 1], group=2, output_padding=[1, 0], pads=[0, 1, 1, 0]),
        node("AveragePool", ["u"], ["a"], kernel_shape=[2, 3], strides=[2, 1], ceil_mode=1, count_include_pad=1,
             pads=[1, 1, 0, 1]),
        node("MaxPool", ["a"], ["m", "i"], kernel_shape=[3, 2], dilations=[1, 2], auto_pad="SAME_UPPER"),
        node("LRN", ["m"], ["l"], size=3, alpha=0.1, beta=0.5, bias=1.5),
        node("InstanceNormalization", ["l", "s", "s"], ["n"], epsilon=0.01),
        node("LpPool", ["n"], ["p"], kernel_shape=[2, 2], p=3),
        node("GlobalMaxPool", ["p"], ["y"]),
    ]  # fmt: skip
    return model_of(nodes, {"x": [1, 4, 9, "width"]}, ["y"], 21, constants=constants)


def sampling() -> onnx.ModelProto:
    """Resize by scales and by sizes, GridSample, DepthToSpace, Pad and Slice by inputs."""
    constants = {
        "scales": np.array([1.5, 0.75], np.float32), "sizes": _ints(1, 4, 6, 5), "grid": _random(1, 4, 4, 2),
        "pads": _ints(0, 0, 1, -1, 0, 0, 2, 1), "value": np.float32(0.5).reshape(()),
        "from": _ints(-1, 0), "to": _ints(-100, 5), "axes": _ints(2, 3), "steps": _ints(-1, 2),
    }  # fmt: skip
    nodes = [
        node("Resize", ["x", "", "scales"], ["r"], axes=[2, 3], mode="cubic", cubic_coeff_a=-0.5,
             coordinate_transformation_mode="align_corners"),
        node("Resize", ["r", "", "", "sizes"], ["q"], mode="linear", antialias=1, exclude_outside=1),
        node("GridSample", ["q", "grid"], ["g"], mode="linear", padding_mode="reflection"),
        node("DepthToSpace", ["g"], ["d"], blocksize=2),
        node("Pad", ["d", "pads", "value"], ["p"]),
        node("Slice", ["p", "from", "to", "axes", "steps"], ["y"]),
    ]  # fmt: skip
    return model_of(nodes, {"x": [1, 4, 5, 6]}, ["y"], 20, constants=constants)


def indexing() -> onnx.ModelProto:
    """Gathers and scatters with constant indices, and what counts or sorts."""
    constants = {
        "rows": _ints(2, 0, -1), "cells": np.array([[0, 1, 2, 0]] * 3, np.int64),
        "at": np.array([[1], [0]], np.int64), "new": _random(2, 4),
        "nd": np.array([[0, 1], [2, 3]], np.int64),
        "axis": np.int64(1).reshape(()),
        "depth": np.int64(5).reshape(()), "values": np.array([0.0, 1.0], np.float32), "k": _ints(2),
    }  # fmt: skip
    nodes = [
        node("Gather", ["x", "rows"], ["g"], axis=0),
        node("GatherElements", ["g", "cells"], ["e"], axis=0),
        node("GatherND", ["e", "nd"], ["n"]),
        node("ScatterND", ["e", "at", "new"], ["s"]),
        node("ScatterElements", ["s", "cells", "g"], ["t"], axis=0, reduction="add"),
        node("CumSum", ["t", "axis"], ["c"], reverse=1, exclusive=1),
        node("TopK", ["c", "k"], ["v", "i"], axis=1, largest=0),
        node("OneHot", ["i", "depth", "values"], ["h"], axis=1),
        node("ArgMax", ["h"], ["a"], axis=2, keepdims=0, select_last_index=1),
        node("ReduceSum", ["h"], ["y"], keepdims=0),
    ]
    return _typed(model_of(nodes, {"x": ["n", 4]}, ["y", "n", "a"], 18, constants=constants), {"a": INT64})


def recurrent() -> onnx.ModelProto:
    """LSTM, GRU and RNN over a sequence of symbolic length."""
    constants = {
        "w": _random(2, 12, 2), "r": _random(2, 12, 3), "b": _random(2, 24),
        "gw": _random(1, 6, 2), "gr": _random(1, 6, 2),
        "rw": _random(1, 3, 2), "rr": _random(1, 3, 3), "rest": _ints(0, 0, -1), "two": _ints(2, 4),
    }  # fmt: skip
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["l", "h", "c"], hidden_size=3, direction="bidirectional", clip=2.0),
        node("Transpose", ["l"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "rest"], ["f"]),
        node("Split", ["f", "two"], ["s", "o"], axis=2),
        node("GRU", ["s", "gw", "gr"], ["", "g"], hidden_size=2, linear_before_reset=1),
        node("RNN", ["s", "rw", "rr"], ["y"], hidden_size=3, activations=["LeakyRelu"], activation_alpha=[0.3]),
    ]
    return model_of(nodes, {"x": ["seq", 1, 2]}, ["y", "g", "h"], 21, constants=constants)


def loops() -> onnx.ModelProto:
    """A Scan, and a Loop whose trip count is computed and which stops itself."""
    scan = helper.make_graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "e"], ["o"])], "scan",
        [_value("s", FLOAT, [3]), _value("e", FLOAT, [3])], [_value("s2", FLOAT), _value("o", FLOAT)],
    )  # fmt: skip
    body = helper.make_graph(
        [node("Mul", ["v", "half"], ["v2"]), node("ReduceMax", ["v2"], ["m"], keepdims=0),
         node("Greater", ["m", "least"], ["on"]), node("Slice", ["v2", "zero", "one"], ["first"])],
        "body", [_value("i", INT64, []), _value("c", BOOL, []), _value("v", FLOAT)],
        [_value("on", BOOL), _value("v2", FLOAT), _value("first", FLOAT)],
        [numpy_helper.from_array(np.float32(0.5).reshape(()), "half"),
         numpy_helper.from_array(np.float32(0.01).reshape(()), "least")],
    )  # fmt: skip
    constants = {"start": np.zeros(3, np.float32), "trips": _ints(12), "zero": _ints(0), "one": _ints(1)}
    nodes = [
        node("Scan", ["start", "x"], ["last", "all"], body=scan, num_scan_inputs=1, scan_output_directions=[1]),
        node("Loop", ["trips", "", "all"], ["end", "firsts"], body=body),
    ]
    return model_of(nodes, {"x": ["steps", 3]}, ["last", "end", "firsts"], 18, constants=constants)


def quantized() -> onnx.ModelProto:
    """QDQ around a product, integer convolution and product, per channel and per tensor."""
    constants = {
        "xs": np.float32(0.05).reshape(()), "xz": np.uint8(120).reshape(()),
        "w": np.arange(-24, 24, dtype=np.int8).reshape(4, 12),
        "ws": np.full(4, 0.02, np.float32), "wz": np.zeros(4, np.int8), "k": np.ones((2, 1, 2, 2), np.uint8),
        "ks": np.float32(0.1).reshape(()), "kz": np.uint8(1).reshape(()), "m": np.eye(4, dtype=np.uint8) * 9,
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("QLinearConv", ["q", "xs", "xz", "k", "ks", "kz", "xs", "xz"], ["c"], pads=[1, 0, 0, 1]),
        node("MatMulInteger", ["c", "m", "xz"], ["i"]),
        node("DynamicQuantizeLinear", ["x"], ["d", "ds", "dz"]),
        node("DequantizeLinear", ["d", "ds", "dz"], ["f"]),
        node("Flatten", ["f"], ["flat"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        node("Gemm", ["flat", "wf"], ["g"], transB=1, alpha=0.5),
        node("QLinearMatMul", ["c", "xs", "xz", "m", "ks", "kz", "xs", "xz"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 1, 3, 4]}, ["i", "g", "y"], 21, constants=constants)
    return _typed(model, {"i": TensorProto.INT32, "y": TensorProto.UINT8})


def sequences() -> onnx.ModelProto:
    """Sequences and optionals; results of sizes that depend on data."""
    constants = {"one": np.int64(1).reshape(()), "sizes": _ints(1, 2), "flags": np.array([True, False, True])}
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        node("SequenceInsert", ["s", "x", "one"], ["s3"]),
        node("SequenceAt", ["s3", "one"], ["e"]),
        node("SequenceErase", ["s3", "one"], ["s2"]),
        node("ConcatFromSequence", ["s2"], ["c"], axis=1, new_axis=0),
        node("SequenceLength", ["s3"], ["n"]),
        node("NonZero", ["e"], ["z"]),
        node("Compress", ["x", "flags"], ["k"], axis=0),
        node("Unique", ["k"], ["u", "", "inverse"]),
    ]
    model = model_of(nodes, {"x": [3, 3]}, ["n", "z", "k", "u", "inverse"], 18, constants=constants)
    return _typed(model, {"n": INT64, "z": INT64, "inverse": INT64})


def transformer() -> onnx.ModelProto:
    """A block of attention with a mask made from sizes."""
    constants = {
        "qkv": _random(8, 24), "w": _random(8, 8), "one": np.ones(8, np.float32), "heads": _ints(0, 0, 2, 4),
        "back": _ints(0, 0, 8),
        "zero": np.int64(0).reshape(()), "step": np.int64(1).reshape(()), "first": np.int64(1).reshape(()),
        "low": np.float32(-1e9).reshape(()), "unit": _ints(1),
    }  # fmt: skip
    nodes = [
        node("LayerNormalization", ["x", "one"], ["n"], epsilon=1e-5),
        node("MatMul", ["n", "qkv"], ["p"]),
        node("Split", ["p"], ["q", "k", "v"], axis=2, num_outputs=3),
        *(node("Reshape", [a, "heads"], [f"{a}4"]) for a in "qkv"),
        node("Einsum", ["q4", "k4"], ["s"], equation="bihd,bjhd->bhij"),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["t"]),
        node("Range", ["zero", "t", "step"], ["positions"]),
        node("Unsqueeze", ["positions", "unit"], ["column"]),
        node("Greater", ["positions", "column"], ["later"]),
        node("Where", ["later", "low", "s"], ["m"]),
        node("Softmax", ["m"], ["a"]),
        node("Einsum", ["a", "v4"], ["o"], equation="bhij,bjhd->bihd"),
        node("Reshape", ["o", "back"], ["flat"]),
        node("MatMul", ["flat", "w"], ["z"]),
        node("Gelu", ["z"], ["e"], approximate="tanh"),
        node("Add", ["x", "e"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", "time", 8]}, ["y"], 21, constants=constants)


def elements() -> onnx.ModelProto:
    """Element by element in many types, with broadcasting and casts."""
    constants = {
        "i": np.array([3, -2, 7], np.int32), "u": np.array([[9]], np.uint8), "e": np.array([2.0, 0.5, 3.0], np.float32),
        "shape": _ints(2, 1, 3), "times": _ints(1, 2, 1), "shift": np.array([1, 2, 3], np.uint8),
        "low": np.float32(-0.5).reshape(()),
    }  # fmt: skip
    nodes = [
        node("Cast", ["x"], ["c"], to=TensorProto.INT32),
        node("Mod", ["c", "i"], ["m"]),
        node("Cast", ["m"], ["h"], to=TensorProto.FLOAT16),
        node("Pow", ["x", "e"], ["p"]),
        node("BitShift", ["u", "shift"], ["b"], direction="LEFT"),
        node("CastLike", ["b", "x"], ["bf"]),
        node("Max", ["p", "bf", "x"], ["t"]),
        node("Clip", ["t", "low"], ["k"]),
        node("Expand", ["k", "shape"], ["w"]),
        node("Tile", ["w", "times"], ["r"]),
        node("IsNaN", ["r"], ["nan"]),
        node("Sum", ["r", "x", "e"], ["y"]),
        node("Exp", ["h"], ["z"]),
    ]
    model = model_of(nodes, {"x": ["rows", 3]}, ["y", "z", "nan"], 21, constants=constants)
    return _typed(model, {"z": TensorProto.FLOAT16, "nan": BOOL})


def signals() -> onnx.ModelProto:
    """Transforms, windows, and tensors made from sizes and numbers."""
    constants = {
        "size": np.int64(8).reshape(()), "step": np.int64(4).reshape(()), "axis": np.int64(1).reshape(()),
        "shape": _ints(2, 3),
        "from": np.float32(0).reshape(()), "to": np.float32(2).reshape(()), "by": np.float32(0.25).reshape(()),
    }  # fmt: skip
    nodes = [
        node("HannWindow", ["size"], ["h"]),
        node("STFT", ["x", "step", "h"], ["s"]),
        node("DFT", ["x", "", "axis"], ["f"], onesided=1),
        node("ConstantOfShape", ["shape"], ["k"], value=numpy_helper.from_array(np.full(1, 3, np.float32))),
        node("EyeLike", ["k"], ["e"], k=1),
        node("Range", ["from", "to", "by"], ["r"]),
        node("Trilu", ["e"], ["t"], upper=0),
        node("ReduceLogSumExp", ["f"], ["y"], keepdims=0),
    ]
    return model_of(nodes, {"x": [1, 32, 1]}, ["y", "s", "t", "r"], 21, constants=constants)


def boxes() -> onnx.ModelProto:
    """Detection: regions of interest, suppression, unpooling, columns to images."""
    constants = {
        "rois": np.array([[0, 0, 3, 3], [1, 1, 5, 4]], np.float32), "batch": _ints(0, 0),
        "boxes": np.abs(_random(1, 5, 4)), "scores": np.abs(_random(1, 1, 5)), "most": _ints(2),
        "iou": np.array([0.5], np.float32), "image": _ints(5, 5), "block": _ints(1, 5),
    }  # fmt: skip
    nodes = [
        node("RoiAlign", ["x", "rois", "batch"], ["r"], output_height=2, output_width=2, sampling_ratio=2),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["k"]),
        node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxUnpool", ["m", "i"], ["u"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["columns", "to"], ["c"]),
        node("Constant", [], ["to"], value_ints=[1, 10, 5]),
        node("Constant", [], ["columns"], value_floats=[float(i) for i in range(50)]),
        node("Col2Im", ["c", "image", "block"], ["y"]),
        node("MaxPool", ["u"], ["z"], kernel_shape=[1, 1]),
        node("ReduceMax", ["r"], ["q"], keepdims=0),
    ]
    return _typed(model_of(nodes, {"x": [1, 2, 6, 6]}, ["q", "k", "y", "z"], 21, constants=constants), {"k": INT64})


def texts() -> onnx.ModelProto:
    """Strings, which run on the host, beside tables of trees and labels."""
    constants = {"words": np.array(["a", "bc", "d"], object), "keys": _ints(1, 2, 1)}
    nodes = [
        node("StringNormalizer", ["words"], ["n"], case_change_action="UPPER", stopwords=["d"]),
        node("Gather", ["words", "where"], ["g"]),
        node("ArgMin", ["x"], ["where"], axis=1, keepdims=0),
        node("StringConcat", ["g", "g"], ["y"]),
        node("TfIdfVectorizer", ["keys"], ["t"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
             ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[1, 2]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": [2, 3]}, ["y", "t", "n"], 21, constants=constants)
    return _typed(model, {"y": TensorProto.STRING, "n": TensorProto.STRING})


def external() -> onnx.ModelProto:
    """A weight in the file ``weights.bin`` (of :data:`EXTERNAL_BYTES` bytes) beside the model."""
    model = model_of(
        [node("MatMul", ["x", "w"], ["m"]), node("Tanh", ["m"], ["y"])], {"x": ["n", 8]}, ["y"],
        constants={"w": _random(8, 16)},
    )  # fmt: skip
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "64"), ("length", "512")):
        tensor.external_data.add(key=key, value=value)
    return model


EXTERNAL_BYTES = 1024

MORE_MODELS = {
    "windows": windows, "sampling": sampling, "indexing": indexing, "recurrent": recurrent, "loops": loops,
    "quantized": quantized, "sequences": sequences, "transformer": transformer, "elements": elements,
    "signals": signals, "boxes": boxes, "texts": texts, "external": external,
}  # fmt: skip
