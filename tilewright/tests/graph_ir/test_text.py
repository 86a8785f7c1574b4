"""The text form: golden, round trip, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.errors import ParseError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Constant, Graph, OptionalType, SequenceType, TensorType
from tilewright.graph_ir.text import constants_of, parse_graph, parse_type, print_graph


def _model() -> Graph:
    b = GraphBuilder("a model")
    x = b.input("onnx::x", "float32", ("n", "2*s + 1"))
    shape = b.op("Shape", x)
    y = b.op("Mul", x, b.constant(np.array([0.5], np.float32), "w.half"))
    z = b.op("Cast", y, to=dtypes.float16)
    big = b.constant(np.arange(40, dtype=np.int64), "big")
    fill = b.op("ConstantOfShape", shape, value=Constant(np.array([3], np.int8)))
    p = b.op("Pad", x, b.constant(np.array([0, 1, 0, 1]), "pads"), None, None, mode="reflect")
    s = GraphBuilder("then branch")
    t = GraphBuilder("else branch")
    then = s.build(*s.ops("Neg", x, outputs=("then out",)), infer=False)
    other = t.build(*t.ops("Clip", x, None, np.array(1.5, np.float32), outputs=("other",)), infer=False)
    c = b.input("c", "bool", ())
    i = b.op("If", c, then_branch=then, else_branch=other)
    _, h = b.ops("LSTM", b.input("seq", "float32", (3, 1, 2)), np.zeros((1, 4, 2), np.float32),
                 np.zeros((1, 4, 1), np.float32), outputs=("", "Y_h"), hidden_size=1, clip=0.1)  # fmt: skip
    return b.build(z, big, fill, i, h, p)


def test_long_sizes_are_defined_before_the_graph() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 1, "n"))
    for _ in range(9):
        x = b.op("Concat", b.op("MaxPool", x, kernel_shape=(2,), strides=(2,)), x, axis=2)
    graph = b.build(x, b.op("Add", x, b.input("z", "float32", ("m",))))
    text = print_graph(graph)
    read = parse_graph(text)
    assert text.startswith("size size_")
    assert len(text) < 6000
    assert print_graph(read) == text
    assert read.values == graph.values
    assert read.assumptions == graph.assumptions
    with pytest.raises(ParseError, match="';'"):
        parse_graph("size s = n + 1\n")


def test_golden() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 2))
    y = b.op("Reshape", x, b.op("Concat", b.op("Shape", x), b.constant(np.array([1]), "one"), axis=0))
    assert print_graph(b.build(y)) == (
        "graph g (x: float32[n, 2]) -> (Reshape_2) {\n"
        "  const one: int64[1] = [1]\n"
        "  Shape_0: int64[2] <n, 2> = Shape(x) {} n_Shape_0\n"
        "  Concat_1: int64[3] <n, 2, 1> = Concat(Shape_0, one) {axis: 0} n_Concat_1\n"
        "  Reshape_2: float32[n, 2, 1] = Reshape(x, Concat_1) {} n_Reshape_2\n"
        "}"
    )


def test_round_trip() -> None:
    g = _model()
    text = print_graph(g)
    back = parse_graph(text, constants_of(g))
    assert print_graph(back) == text
    assert back.inputs == g.inputs
    assert dict(back.values) == dict(g.values)
    assert [n.outputs for n in back.nodes] == [n.outputs for n in g.nodes]


def test_the_parsed_graph_computes_the_same() -> None:
    g = _model()
    back = parse_graph(print_graph(g), constants_of(g))
    feed = {
        "onnx::x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "c": np.array(True),
        "seq": np.ones((3, 1, 2), np.float32),
    }
    expected, got = interpret(g, feed), interpret(back, feed)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "float8e5m2", "int4", "uint64", "bool", "string", "complex64"]
)
def test_constants_of_every_kind(dtype: str) -> None:
    t = dtypes.from_name(dtype).numpy
    array = np.array(["a b", 'c"d'], dtype=object) if dtype == "string" else np.array([0, 1]).astype(t)
    b = GraphBuilder("g")
    g = b.build(b.constant(array, "c"))
    back = parse_graph(print_graph(g), constants_of(g)).constants["c"].array
    assert back.dtype == t
    assert back.tolist() == array.tolist()


def test_special_floats() -> None:
    b = GraphBuilder("g")
    array = np.array([np.inf, -np.inf, np.nan, 1e-45, -0.0, 0.1], np.float32)
    g = b.build(b.constant(array, "c"))
    back = parse_graph(print_graph(g)).constants["c"].array
    np.testing.assert_array_equal(back.view(np.int32), array.view(np.int32))


def test_types() -> None:
    t = OptionalType(SequenceType(TensorType(dtypes.float32, None)))
    assert parse_type(str(t)) == t


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("graf g", "line 1: expected 'graph'"),
        ("graph g () -> () {\n  const c: int64[9] = #0123\n}", "line 2: expected constant #0123 among those given"),
        ("graph g () -> () {\n  const c: int64[2] = [1]\n}", "expected 2 elements, not 1"),
        ("graph g (x: float31[1]) -> () {}", "expected an element type"),
        ("graph g () -> () {} more", "expected the end of the text"),
        ("graph g () -> () {\n  y = Relu(x {} n\n}", "expected ','"),
    ],
)
def test_refusal(text: str, match: str) -> None:
    with pytest.raises(ParseError, match=match):
        parse_graph(text)
