"""Valid models that cost much to build: long, wide, deep, of many different kernels, of sizes that are long formulas.

``MODELS`` has a builder of ``n`` nodes (or operands, or levels) by name; ``benchmarks/build_time.py`` times them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from tilewright.tests.frontend.models import FLOAT, model_of

Constants = dict[str, np.ndarray]

_UNARY = ("Relu", "Exp", "Neg", "Sigmoid", "Abs", "Tanh", "Sqrt", "Floor", "Sin", "Erf", "Softplus", "Round")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def chain(n: int) -> onnx.ModelProto:
    """One elementwise operator after the other."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, len(_UNARY), n)
    nodes = [helper.make_node(_UNARY[k], [f"v{i}"], [f"v{i + 1}"]) for i, k in enumerate(kinds)]
    return model_of(nodes, {"v0": ["rows", 33]}, [f"v{n}"], 17)


def random_dag(n: int) -> onnx.ModelProto:
    """Elementwise operators, softmaxes, products and means of values made shortly before."""
    rng = np.random.default_rng(0)
    nodes: list[NodeProto] = []
    values = ["x"]
    for i in range(n):
        a, b = (values[max(0, len(values) - int(rng.geometric(0.15)))] for _ in range(2))
        out, part = f"v{i}", f"v{i}.part"
        kind = rng.random()
        if kind < 0.35:
            nodes.append(helper.make_node(str(rng.choice(_UNARY)), [a], [out]))
        elif kind < 0.8:
            nodes.append(helper.make_node(str(rng.choice(_BINARY)), [a, b], [out]))
        elif kind < 0.88:
            nodes.append(helper.make_node("Softmax", [a], [out], axis=int(rng.integers(0, 2))))
        elif kind < 0.94:
            nodes.append(helper.make_node("MatMul", [a, "square"], [out]))
        else:
            nodes.append(helper.make_node("ReduceMean", [a], [part], axes=[1], keepdims=1))
            nodes.append(helper.make_node("Add", [part, b], [out]))
        values.append(out)
    read = {i for node in nodes for i in node.input}
    ends = [v for v in values if v not in read]
    constants = {"square": rng.standard_normal((17, 17)).astype(np.float32)}
    return model_of(nodes, {"x": ["rows", 17]}, ends, 17, constants=constants)


def convolutions(n: int) -> onnx.ModelProto:
    """Convolutions of different channels and kernels."""
    rng = np.random.default_rng(0)
    nodes: list[NodeProto] = []
    constants: Constants = {}
    channels = 3
    for i in range(n):
        size, made = int(rng.choice([1, 3])), int(rng.integers(3, 40))
        weights = rng.standard_normal((made, channels, size, size)) / (channels * size * size) ** 0.5
        constants[f"w{i}"] = weights.astype(np.float32)
        nodes.append(helper.make_node("Conv", [f"v{i}", f"w{i}"], [f"v{i + 1}"], pads=[size // 2] * 4))
        channels = made
    return model_of(nodes, {"v0": [1, 3, 24, 24]}, [f"v{n}"], 17, constants=constants)


def outputs(n: int) -> onnx.ModelProto:
    """Very many outputs, each with a node of its own."""
    nodes = [helper.make_node("Add", ["x", f"c{i % 7}"], [f"y{i}"]) for i in range(n)]
    constants: Constants = {f"c{i}": np.array(i + 1, np.float32) for i in range(7)}
    return model_of(nodes, {"x": [4]}, [f"y{i}" for i in range(n)], 17, constants=constants)


def concat(n: int) -> onnx.ModelProto:
    """One Concat of very many operands, most of them equal computations."""
    nodes = [helper.make_node("Mul", ["x", f"c{i % 7}"], [f"v{i}"]) for i in range(n)]
    nodes.append(helper.make_node("Concat", [f"v{i}" for i in range(n)], ["y"], axis=0))
    constants: Constants = {f"c{i}": np.array(i + 2, np.float32) for i in range(7)}
    return model_of(nodes, {"x": [2, 3]}, ["y"], 17, constants=constants)


def split(n: int) -> onnx.ModelProto:
    """One Split into very many parts, all summed."""
    parts = [f"v{i}" for i in range(n)]
    nodes = [helper.make_node("Split", ["x"], parts, axis=0), helper.make_node("Sum", parts, ["y"])]
    return model_of(nodes, {"x": [n, 3]}, ["y"], 13)


def maximum(n: int) -> onnx.ModelProto:
    """One Max of very many operands."""
    constants: Constants = {f"c{i}": np.full((2, 3), i, np.float32) for i in range(n - 1)}
    return model_of([helper.make_node("Max", ["x", *constants], ["y"])], {"x": [2, 3]}, ["y"], 17, constants=constants)


def _info(name: str, kind: int = FLOAT, shape: tuple[int, ...] = (3,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _with_condition(node: NodeProto, condition: str, kind: int) -> onnx.ModelProto:
    graph = helper.make_graph([node], "g", [_info("x"), _info(condition, kind, ())], [_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def nested_ifs(n: int) -> onnx.ModelProto:
    """An If inside an If, ``n`` deep."""
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "b", [], [_info("t")])
    for d in range(n):
        other = helper.make_graph([helper.make_node("Abs", ["x"], [f"e{d}"])], f"e{d}", [], [_info(f"e{d}")])
        out = "y" if d == n - 1 else f"o{d}"
        node = helper.make_node("If", ["c"], [out], then_branch=inner, else_branch=other)
        inner = helper.make_graph([node], f"b{d}", [], [_info(out)])
    return _with_condition(inner.node[0], "c", TensorProto.BOOL)


def nested_loops(n: int) -> onnx.ModelProto:
    """A Loop inside a Loop, ``n`` deep."""
    step = helper.make_node("Neg", ["s0"], ["r0"])
    for d in range(n):
        given = [_info(f"i{d}", TensorProto.INT64, ()), _info(f"k{d}", TensorProto.BOOL, ()), _info(f"s{d}")]
        again = helper.make_node("Identity", [f"k{d}"], [f"a{d}"])
        body = helper.make_graph([again, step], f"b{d}", given, [_info(f"a{d}", TensorProto.BOOL, ()), _info(f"r{d}")])
        read, made = ("x", "y") if d == n - 1 else (f"s{d + 1}", f"r{d + 1}")
        step = helper.make_node("Loop", ["m", "", read], [made], body=body)
    return _with_condition(step, "m", TensorProto.INT64)


def shape_arithmetic(n: int) -> onnx.ModelProto:
    """A size that is a formula of ``n`` levels, each of which reads the one before twice."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"], start=0)]
    for i in range(n):
        divisor = "three" if i % 2 else "two"
        nodes += [
            helper.make_node("Add", [f"s{i}", "one"], [f"a{i}"]),
            helper.make_node("Div", [f"a{i}", divisor], [f"d{i}"]),
            helper.make_node("Max", [f"d{i}", "three"], [f"m{i}"]),
            helper.make_node("Mul", [f"m{i}", "two"], [f"t{i}"]),
            helper.make_node("Min", [f"t{i}", f"s{i}"], [f"s{i + 1}"]),
        ]
    nodes += [helper.make_node("ConstantOfShape", [f"s{n}"], ["z"]), helper.make_node("Add", ["z", "half"], ["y"])]
    constants: Constants = {"one": _ints(1), "two": _ints(2), "three": _ints(3), "half": np.array(0.5, np.float32)}
    return model_of(nodes, {"x": ["h", "w"]}, ["y"], 17, constants=constants)


def pooled(n: int) -> onnx.ModelProto:
    """Levels that pool an image and join the result with the image: the size of each reads the one before twice."""
    nodes: list[NodeProto] = []
    for i in range(n):
        nodes.append(helper.make_node("MaxPool", [f"v{i}"], [f"p{i}"], kernel_shape=[16, 1], strides=[16, 1]))
        nodes.append(helper.make_node("Concat", [f"p{i}", f"v{i}"], [f"v{i + 1}"], axis=2))
    return model_of(nodes, {"v0": [1, 2, "h", 3]}, [f"v{n}"], 17)


def windowed_attention(n: int) -> onnx.ModelProto:
    """``n`` blocks of attention in windows of 4x4 over an image of symbolic size: padded, rolled, cut, joined again."""
    rng = np.random.default_rng(0)
    constants: Constants = {
        "image": _ints(1, 2), "window": _ints(4), "zero": _ints(0), "one": _ints(1), "two": _ints(2),
        "end": _ints(1 << 60), "rows": _ints(-1, 16, 8), "none": _ints(0, 0, 0, 0, 0), "channels": _ints(8),
        "minus": _ints(-2),
        "bias": rng.standard_normal((16, 16)).astype(np.float32),
        "weights": rng.standard_normal((8, 24)).astype(np.float32) / 3,
    }  # fmt: skip
    nodes: list[NodeProto] = []

    def make(op: str, inputs: list[str], *outs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, list(outs), **attributes))
        return outs[0]

    def roll(x: str, p: str, axis: int, by: str) -> str:
        ax = "one" if axis == 1 else "two"
        tail = make("Slice", [x, by, "end", ax], f"{p}.tail")
        head = make("Slice", [x, "zero", by, ax], f"{p}.head")
        return make("Concat", [tail, head], f"{p}.rolled", axis=axis)

    order = [0, 1, 3, 2, 4, 5]
    for i in range(n):
        p, x = f"b{i}", f"v{i}"
        make("Shape", [x], f"{p}.shape")
        size = make("Gather", [f"{p}.shape", "image"], f"{p}.size", axis=0)
        rest = make("Mod", [size, "window"], f"{p}.rest")
        lacking = make("Mod", [make("Sub", ["window", rest], f"{p}.less"), "window"], f"{p}.lacking")
        pads = make("Concat", ["none", lacking, "zero"], f"{p}.pads", axis=0)
        padded = make("Pad", [x, pads], f"{p}.padded")
        padded = roll(roll(padded, f"{p}.h", 1, "two"), f"{p}.w", 2, "two")
        make("Shape", [padded], f"{p}.whole")
        counts = make("Div", [make("Gather", [f"{p}.whole", "image"], f"{p}.sides"), "window"], f"{p}.counts")
        high = make("Slice", [counts, "zero", "one"], f"{p}.high")
        wide = make("Slice", [counts, "one", "two"], f"{p}.wide")
        cut = make("Concat", ["one", high, "window", wide, "window", "channels"], f"{p}.cut", axis=0)
        windows = make("Transpose", [make("Reshape", [padded, cut], f"{p}.grid")], f"{p}.apart", perm=order)
        make("Shape", [windows], f"{p}.form")
        rows = make("Reshape", [windows, "rows"], f"{p}.rows")
        make("Split", [make("MatMul", [rows, "weights"], f"{p}.qkv")], f"{p}.q", f"{p}.k", f"{p}.vs", axis=2)
        turned = make("Transpose", [f"{p}.k"], f"{p}.turned", perm=[0, 2, 1])
        scores = make("Add", [make("MatMul", [f"{p}.q", turned], f"{p}.products"), "bias"], f"{p}.scores")
        mixed = make("MatMul", [make("Softmax", [scores], f"{p}.weights", axis=-1), f"{p}.vs"], f"{p}.mixed")
        blocks = make("Reshape", [mixed, f"{p}.form"], f"{p}.blocks")
        joined = make("Transpose", [blocks], f"{p}.joined", perm=order)
        whole = make("Reshape", [joined, f"{p}.whole"], f"{p}.image")
        back = roll(roll(whole, f"{p}.bh", 1, "minus"), f"{p}.bw", 2, "minus")
        start = make("Concat", ["zero", "zero"], f"{p}.start", axis=0)
        make("Add", [make("Slice", [back, start, size, "image"], f"{p}.cropped"), x], f"v{i + 1}")
    return model_of(nodes, {"v0": [1, "h", "w", 8]}, [f"v{n}"], 17, constants=constants)


MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain, "random_dag": random_dag, "convolutions": convolutions, "outputs": outputs, "concat": concat,
    "split": split, "maximum": maximum, "nested_ifs": nested_ifs, "nested_loops": nested_loops,
    "shape_arithmetic": shape_arithmetic, "windowed_attention": windowed_attention,
    "pooled": pooled,
}  # fmt: skip
