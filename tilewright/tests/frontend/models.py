"""Small models that together use every path of the importer; shared by the tests and the fuzzer of this room."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int | str | None]], outputs: list[str], opset: int = 21, *,
    constants: dict[str, np.ndarray] | None = None, dtype: int = FLOAT, out_dtype: int | None = None,
    functions: list[onnx.FunctionProto] | None = None, domains: dict[str, int] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A model with tensor inputs of one element type and outputs of unknown shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, dtype, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(o, dtype if out_dtype is None else out_dtype, None) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(k, v) for k, v in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [], ir_version=10)


def convnet() -> onnx.ModelProto:
    """Old opset: Conv, BatchNormalization, Clip by attribute, pooling, Gemm, Softmax as a matrix."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "s": np.ones(8, np.float32), "b": np.zeros(8, np.float32), "v": np.ones(8, np.float32),
        "fc": rng.standard_normal((8, 40)).astype(np.float32), "fb": np.zeros(40, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "b", "v"], ["n"], "bn"),
        helper.make_node("Clip", ["n"], ["r"], "clip", min=0.0, max=6.0),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ReduceMean", ["p"], ["m"], "mean", axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["m", "fc", "fb"], ["l"], "fc"),
        helper.make_node("Softmax", ["l"], ["y"], "prob", axis=1),
    ]
    return model_of(nodes, {"x": ["N", 3, 8, 8]}, ["y"], 9, constants=constants)


def shapes() -> onnx.ModelProto:
    """Shape arithmetic with symbolic dims."""
    constants = {
        "zero": np.array(0, np.int64), "axes": np.array([0], np.int64), "rest": np.array([-1], np.int64),
        "sizes": np.array([2, 2], np.int64), "table": np.arange(600, dtype=np.float32).reshape(2, 300),
    }  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["flat"], "reshape"),
        helper.make_node("Split", ["flat", "sizes"], ["a", "b"], "split", axis=1),
        helper.make_node("Mul", ["a", "b"], ["m"]),
        helper.make_node("MatMul", ["m", "table"], ["t"]),
        helper.make_node("ConstantOfShape", ["to1"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        helper.make_node("Concat", ["n1", "w"], ["to1"], axis=0),
        helper.make_node("Constant", [], ["w"], value_ints=[300]),
        helper.make_node("Add", ["t", "ones"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", 2, 2]}, ["y"], 18, constants=constants)


def control() -> onnx.ModelProto:
    """Loop around If, reading values of the outer graph; the branches use the same names."""

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["state", "x"], ["r"])], op,
                                 [], [helper.make_tensor_value_info("r", FLOAT, None)])  # fmt: skip

    body = helper.make_graph(
        [
            helper.make_node("Identity", ["cond"], ["cond_out"]),
            helper.make_node("If", ["cond"], ["next"], "choose", then_branch=branch("Add"), else_branch=branch("Sub")),
            helper.make_node("Identity", ["next"], ["scan"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", FLOAT, [3])],
        [helper.make_tensor_value_info("cond_out", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", FLOAT, None), helper.make_tensor_value_info("scan", FLOAT, None)],
    )  # fmt: skip
    constants = {"trip": np.array(4, np.int64), "go": np.array(True), "r": np.zeros(3, np.float32)}
    nodes = [helper.make_node("Loop", ["trip", "go", "r"], ["last", "all"], "loop", body=body)]
    return model_of(nodes, {"x": [3]}, ["last", "all"], 16, constants=constants)


def functions() -> onnx.ModelProto:
    """A function that calls a function, with attribute references, defaults and an optional input."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["r"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner = helper.make_function("local", "inner", ["a", "b"], ["r"], [leaky], opsets, ["slope"])
    call = helper.make_node("inner", ["t"], ["u"], domain="local")
    call.attribute.append(onnx.AttributeProto(name="slope", ref_attr_name="k", type=onnx.AttributeProto.FLOAT))
    outer = helper.make_function(
        "local", "outer", ["a"], ["u", "a2"],
        [helper.make_node("Neg", ["a"], ["t"]), call, helper.make_node("Identity", ["a"], ["a2"])],
        opsets, attribute_protos=[helper.make_attribute("k", 0.5)],
    )  # fmt: skip
    nodes = [
        helper.make_node("outer", ["x"], ["p"], "first", domain="local"),
        helper.make_node("outer", ["p"], ["q", "p2"], "second", domain="local", k=0.25),
        helper.make_node("Add", ["q", "p2"], ["y"]),
        helper.make_node("MeanVarianceNormalization", ["y"], ["z"], axes=[0]),
    ]
    return model_of(nodes, {"x": [4]}, ["y", "z"], 18, functions=[inner, outer], domains={"local": 1})


def resize() -> onnx.ModelProto:
    """Upsample, Pad and Slice by attribute, Dropout with its mask, TopK by attribute."""
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    nodes = [
        helper.make_node("Pad", ["x"], ["p"], pads=[0, 0, 1, 1, 0, 0, 1, 1], value=1.5),
        helper.make_node("Upsample", ["p", "scales"], ["u"], "up", mode="nearest"),
        helper.make_node("Slice", ["u"], ["s"], starts=[1, 0], ends=[5, 1000], axes=[2, 3]),
        helper.make_node("Dropout", ["s"], ["d", "mask"], ratio=0.5),
        helper.make_node("TopK", ["d"], ["y", "index"], axis=3, k=2),
    ]
    return model_of(nodes, {"x": [1, 2, 4, 4]}, ["y"], 9, constants=constants)


def quantized() -> onnx.ModelProto:
    """onnxruntime's quantized operators: convolution, pools, products, packed weights, LSTM, attention."""
    rng = np.random.default_rng(3)
    ms = {"domain": "com.microsoft"}

    def integers(*shape: int, dtype: type = np.uint8) -> np.ndarray:
        return rng.integers(0, 100, shape).astype(dtype)

    constants = {
        "s": np.array(0.1, np.float32), "z": np.array(7, np.uint8), "i": np.array(0, np.int8), "zeros": integers(1) * 0,
        "w": integers(4, 3, 3, 3, dtype=np.int8), "fc": integers(8, 16, dtype=np.int8), "bits": integers(6, 1, 8),
        "steps": np.full((6, 1), 0.1, np.float32), "index": np.array([[1, 0]]),
        "table": integers(5, 16), "rows": np.ones((5, 1), np.float32), "lw": integers(1, 16, 8),
        "lr": integers(1, 2, 8), "one": np.array(1, np.float32), "rate": np.full(1, 1e-4, np.float32),
        "qkv": integers(16, 12, dtype=np.int8), "bias": np.zeros(12, np.float32),
    }  # fmt: skip
    sz = ["s", "z"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *sz], ["q"], "in", **ms),
        helper.make_node("QLinearConv", ["q", *sz, "w", "s", "i", *sz], ["c"], "conv", pads=[1] * 4, **ms),
        helper.make_node("QLinearAveragePool", ["c", *sz, *sz], ["a"], "pool", kernel_shape=[3, 3], pads=[1] * 4, **ms),
        helper.make_node("QLinearLeakyRelu", ["c", *sz, "one", "z"], ["l"], "leaky", **ms),
        helper.make_node("QLinearAdd", ["a", *sz, "l", "one", "z", *sz], ["p"], "add", **ms),
        helper.make_node("QLinearConcat", [*sz, "p", *sz, "c", "one", "z"], ["k"], "concat", axis=1, **ms),
        helper.make_node("QLinearGlobalAveragePool", ["k", *sz, *sz], ["g"], "mean", **ms),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("QGemm", ["f", *sz, "fc", "s", "i", "", *sz], ["m"], "gemm", **ms),
        helper.make_node("QLinearSoftmax", ["m", *sz, "s", "z"], ["t"], "softmax", opset=13, **ms),
        helper.make_node("DequantizeLinear", ["t", *sz], ["d"], "out", **ms),
        helper.make_node("MatMulNBits", ["d", "bits", "steps"], ["n"], "bits", K=16, N=6, block_size=16, **ms),
        helper.make_node("GatherBlockQuantized", ["table", "index", "rows"], ["e"], "row", bits=8, block_size=16, **ms),
        helper.make_node("DynamicQuantizeLSTM", ["e", "lw", "lr", "", "", "", "", "", "rate", "zeros", "rate", "zeros"],
                         ["h"], "lstm", hidden_size=2, **ms),
        helper.make_node("DynamicQuantizeLinear", ["e"], ["eq", "es", "ez"]),
        helper.make_node("QAttention", ["eq", "qkv", "bias", "es", "s", "", "ez"], ["y"], "heads", num_heads=2, **ms),
    ]  # fmt: skip
    return model_of(nodes, {"x": ["n", 3, 4, 5]}, ["n", "h", "y"], 18, constants=constants,
                    domains={"com.microsoft": 1})  # fmt: skip


MODELS = {"convnet": convnet, "shapes": shapes, "control": control, "functions": functions, "resize": resize,
          "quantized": quantized}  # fmt: skip
