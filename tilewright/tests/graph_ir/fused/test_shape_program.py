"""What is worked out once for each set of input sizes: float arithmetic on sizes that ends in the size of a result."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.fused.shape_program import early_sizes
from tilewright.graph_ir.ir import Graph
from tilewright.tests.graph_ir.fused.partitioned import groups_of


def ops(graph: Graph) -> list[str]:
    by_name = {n.name: n for n in graph.nodes}
    return [by_name[n].op for n in early_sizes(graph).nodes]


def scale(b: GraphBuilder, x: str) -> str:
    """256 over the height, twice."""
    height = b.op("Cast", b.op("Slice", b.op("Shape", x), np.array([2]), np.array([3])), to=dtypes.float32)
    s = b.op("Div", np.array([256], np.float32), height)
    return b.op("Concat", s, s, axis=0)


def test_a_scale_made_of_sizes() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 3, "h", "w"))
    g = b.build(b.op("Neg", b.op("Resize", b.op("Abs", x), None, scale(b, x), mode="linear", axes=(2, 3))))
    assert ops(g) == ["Shape", "Slice", "Cast", "Div", "Concat"]
    assert {n.op for n in g.nodes if n.name in early_sizes(g).sized} == {"Resize"}


def test_sizes_of_sizes_and_one_kernel() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 3, "h", "w"))
    r = b.op("Resize", x, None, scale(b, x), mode="linear", axes=(2, 3))
    start = b.op("Div", b.op("Sub", b.op("Slice", b.op("Shape", r), np.array([2]), np.array([4])), np.array([9])),
                 np.array([2]))  # fmt: skip
    crop = b.op("Slice", r, start, b.op("Add", start, np.array([9])), np.array([2, 3]))
    g = b.build(b.op("Neg", crop))
    assert ops(g).count("Shape") == 2
    assert [[n.op for n in k.nodes] for k in groups_of(g)] == [["Resize", "Slice", "Neg"]]


def test_what_reads_contents_is_not_early() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 3, "h", "w"))
    g = b.build(b.op("Resize", x, None, b.op("Mul", scale(b, x), b.input("s", "float32", (2,))), axes=(2, 3)))
    assert early_sizes(g).nodes == ()
    assert not early_sizes(g).sized


def test_a_result_of_the_graph_is_not_early() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 3, "h", "w"))
    s = scale(b, x)
    g = b.build(b.op("Resize", x, None, s, axes=(2, 3)), s)
    assert not early_sizes(g).sized


def test_known_sizes_need_nothing() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 6))
    g = b.build(b.op("Reshape", b.op("Neg", x), b.op("Shape", x)))
    assert early_sizes(g).nodes == ()


def test_what_gives_a_shape_alone_is_not_run() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", "m"))
    wide = b.op("Cast", b.op("Shape", b.op("Reshape", x, np.array([-1, 3]))), to=dtypes.float32)
    half = b.op("Cast", b.op("Mul", wide, np.array(0.5, np.float32)), to=dtypes.int64)
    g = b.build(b.op("Expand", np.ones(1, np.float32), half))
    assert ops(g) == ["Shape", "Cast", "Mul", "Cast"]
    assert [[n.op for n in k.nodes] for k in groups_of(g)] == [["Expand"]]


def test_only_the_depth_of_a_one_hot_has_to_be_early() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", "m"))
    half = b.op("Mul", b.op("Cast", b.op("Shape", x, start=0, end=1), to=dtypes.float32), np.array([0.5], np.float32))
    depth = b.op("Cast", half, to=dtypes.int64)
    g = b.build(b.op("OneHot", b.input("i", "int64", (3,)), depth, np.array([0, 1], np.float32)))
    assert ops(g) == ["Shape", "Cast", "Mul", "Cast"]
    assert {n.op for n in g.nodes if n.name in early_sizes(g).sized} == {"OneHot"}
