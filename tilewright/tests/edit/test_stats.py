"""What is counted in graphs, against what one counts by hand, and by multiplying ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.dtypes import float32
from tilewright.edit.multiply_adds import multiply_adds
from tilewright.edit.stats import graph_stats
from tilewright.frontend import from_onnx
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Graph, Node, TensorType, Value
from tilewright.tests.api.models import perceptron
from tilewright.tests.frontend.models import control

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
Shape = tuple[int, ...]


def one_node(op: str, *shapes: Shape, **attrs: Attribute) -> Graph:
    """A node whose operands are inputs of the graph."""
    b = GraphBuilder("g")
    return b.build(b.op(op, *[b.input(f"x{i}", "float32", s) for i, s in enumerate(shapes)], **attrs))


def counted(g: Graph) -> IntExpr | None:
    return multiply_adds(g, g.nodes[0])


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("MatMul", ((2, 1, 3, 4), (5, 4, 7)), {}),
        ("MatMul", ((4,), (3, 4, 2)), {}),
        ("MatMul", ((0, 4), (4, 2)), {}),
        ("Gemm", ((3, 5), (5, 2)), {}),
        ("Gemm", ((5, 3), (2, 5)), {"transA": 1, "transB": 1}),
        ("Conv", ((2, 6, 9, 7), (4, 3, 3, 2)), {"group": 2, "strides": (2, 1)}),
        ("Conv", ((1, 2, 11), (3, 2, 3)), {"dilations": (2,)}),
        ("ConvTranspose", ((2, 6, 4, 5), (6, 2, 3, 3)), {"group": 2, "strides": (2, 2)}),
        ("Einsum", ((2, 3, 4), (4, 5)), {"equation": "bij,jk->bki"}),
        ("Einsum", ((2, 3, 4), (1, 4, 5)), {"equation": "...ij,...jk->...ik"}),
    ],
)
def test_the_sum_of_a_product_of_ones(op: str, shapes: tuple[Shape, ...], attrs: dict[str, Attribute]) -> None:
    g = one_node(op, *shapes, **attrs)
    (y,) = interpret(g, {f"x{i}": np.ones(s, np.float32) for i, s in enumerate(shapes)}).values()
    assert counted(g) == int(y.sum())


def test_operators_by_hand() -> None:
    assert counted(one_node("LSTM", (5, 2, 3), (1, 16, 3), (1, 16, 4), hidden_size=4)) == 5 * 2 * 16 * (3 + 4)
    assert counted(one_node("FusedAttention", (2, 8, 5, 4), (2, 8, 7, 4), (2, 8, 7, 6))) == 2 * 8 * 5 * 7 * (4 + 6)
    assert counted(one_node("Relu", (5,))) == 0
    assert counted(one_node("Det", (3, 3))) is None


def test_formulas() -> None:
    stats = graph_stats(from_onnx(perceptron()))
    assert str(stats.multiply_adds) == "batch*2688"
    assert str(stats.activation_bytes) == "batch*808"
    assert stats.peak_bytes is None
    assert stats.to_json()["multiply_adds"] == "batch*2688"


@pytest.mark.parametrize(
    ("network", "expected"), [("vgg19", 19_632_062_464), ("resnet50", 4_089_184_256), ("bvlc_alexnet", 654_560_384)]
)
def test_known_networks(network: str, expected: int) -> None:
    """The numbers that are published: 19.6, 4.1 and 0.65 billion (of resnet50, that which halves in its 1x1)."""
    stats = graph_stats(from_onnx(str(LIGHT / f"light_{network}.onnx")))
    assert stats.multiply_adds == expected
    assert stats.uncounted == stats.untyped == ()


def test_memory_and_depth() -> None:
    """x (40 bytes) -> p -> q, and p + q: three live at once."""
    b = GraphBuilder("g")
    p = b.op("Relu", b.input("x", "float32", (10,)))
    q = b.op("Tanh", p)
    g = b.build(b.op("Add", p, q))
    stats = graph_stats(g)
    assert (stats.peak_bytes, stats.activation_bytes, stats.depth) == (120, 120, 3)
    relu = dataclasses.replace(g.nodes[1], inputs=("x",))
    assert graph_stats(g.replace(nodes=(g.nodes[0], relu, g.nodes[2]))).depth == 2


def test_parameters() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (4,))
    for name, array in (("big", np.ones(4, np.float32)), ("text", np.array(["a", "bc"], object))):
        b.constant(array, name)
    b.constant(np.ones(5, ml_dtypes.int4), "narrow")
    stats = graph_stats(b.build(b.op("Add", x, "big")))
    assert [(str(p.dtype), p.tensors, p.elements, p.bytes) for p in stats.parameters] == [
        ("float32", 1, 4, 16), ("int4", 1, 5, 3), ("string", 1, 2, 0),
    ]  # fmt: skip
    largest = stats.largest[0]
    assert (largest.name, largest.type, largest.bytes) == ("big", "float32[4]", 16)
    assert (stats.parameter_count, stats.parameter_bytes) == (11, 19)


def test_subgraphs_count_once() -> None:
    stats = graph_stats(from_onnx(control()))
    operators = {o.operator: o.nodes for o in stats.operators}
    assert stats.subgraphs == 3
    assert (operators["Loop"], operators["If"], operators["Add"], operators["Sub"]) == (1, 1, 1, 1)
    assert "in 3 subgraphs too" in str(stats)


def test_what_is_not_known_is_said() -> None:
    twist = Node("Twist", ("x",), ("t",), (), "twist", "my.domain")
    product = Node("MatMul", ("t", "t"), ("y",), (), "product")
    types = {"x": TensorType(float32, (const(3),)), "y": TensorType(float32, None)}
    stats = graph_stats(Graph("g", ("x",), ("y",), (twist, product), {k: Value(k, t) for k, t in types.items()}))
    assert [str(n) for n in stats.uncounted] == ["twist (my.domain::Twist)", "product (MatMul)"]
    assert stats.untyped == stats.uncounted
    assert stats.peak_bytes is None
    text = str(stats)
    assert "2 nodes without a count of multiply-adds: twist (my.domain::Twist), product (MatMul)" in text
    assert "my.domain::Twist" in text.split("operator")[1]


def test_text_and_json() -> None:
    stats = graph_stats(from_onnx(perceptron()))
    text = str(stats)
    assert "input x: float32[batch, 32]" in text
    assert "parameters: 2,752, 10.75 KiB" in text
    data = json.loads(json.dumps(stats.to_json(), allow_nan=False))
    assert data["operators"][0] == {"operator": "MatMul", "nodes": 2, "multiply_adds": "batch*2688"}
    assert data["largest"][0] == {"name": "w", "type": "float32[32, 64]", "bytes": 8192}


def test_no_constant_is_read(tmp_path: Path) -> None:
    model = perceptron(1 << 12)
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    graph = from_onnx(str(path))
    with path.open("ab") as f:
        f.write(b"more")  # whoever reads an element now sees that the file has changed
    assert graph_stats(graph).parameter_count == 32 * 4096 + 4096 + 4096 * 10
