"""Transposes sink and cancel; convolution regions become channels-last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder, make_shape
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.layout_moves import permuted_rows, view_groups, view_order
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply, assert_same_numbers, built, ops, reasons

F = np.float32
Build = Callable[[GraphBuilder], str | tuple[str, ...]]
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(F)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def turned(b: GraphBuilder) -> str:
    """NCHW [n, 3, 4, 5] seen through a Transpose of an NHWC input."""
    return b.op("Transpose", b.input("x", "float32", ("n", 4, 5, 3)), perm=TO_FIRST)


def back(b: GraphBuilder, y: str) -> str:
    return b.op("Transpose", y, perm=TO_LAST)


CANCELS: list[tuple[str, Build]] = [
    ("unary", lambda b: back(b, b.op("Relu", turned(b)))),
    ("constant", lambda b: back(b, b.op("Mul", turned(b), rand(3, 1, 1)))),
    ("softmax", lambda b: back(b, b.op("Softmax", turned(b), axis=1))),
    ("slice", lambda b: back(b, b.op("Slice", turned(b), i64(1), i64(3), i64(-1), i64(1)))),
    ("slice_no_axes", lambda b: back(b, b.op("Slice", turned(b), i64(0, 1), i64(9, 3)))),
    ("pad", lambda b: back(b, b.op("Pad", turned(b), i64(0, 1, 2, 3, 0, 0, 1, 0)))),
    ("pad_axes", lambda b: back(b, b.op("Pad", turned(b), i64(1, 2), F(7), i64(-1)))),
    ("reduce", lambda b: back(b, b.op("ReduceMean", turned(b), i64(2, 3)))),
    ("concat", lambda b: back(b, b.op("Concat", turned(b), rand(1, 3, 4, 5), axis=0))),
    ("clip", lambda b: back(b, b.op("Clip", turned(b), F(0), F(6)))),
    ("where", lambda b: back(b, b.op("Where", np.array([True, False, True, False, True]), turned(b), F(1)))),
    ("reshape", lambda b: b.op("Transpose", b.op("Reshape", turned(b), i64(0, 3, -1)), perm=(0, 2, 1))),
    ("shuffle", lambda b: b.op("Transpose", b.op("Reshape", turned(b), i64(0, 3, 1, 4, 5)), perm=(0, 2, 3, 4, 1))),
]


@pytest.mark.parametrize(("name", "build"), CANCELS, ids=[c[0] for c in CANCELS])
def test_transposes_cancel(name: str, build: Build) -> None:
    new, _ = apply(built(build), "sink_transposes")
    assert "Transpose" not in ops(new), ops(new)


def test_reduction_without_kept_axes_ends_the_layout() -> None:
    new, _ = apply(built(lambda b: b.op("ReduceSum", turned(b), i64(2, 3), keepdims=0)), "sink_transposes")
    assert ops(new) == ["ReduceSum"]


def test_arg_reduce_and_split() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        parts = b.ops("Split", turned(b), axis=1, num_outputs=3, outputs=3)
        return tuple(back(b, p) for p in parts)

    assert "Transpose" not in ops(apply(built(build), "sink_transposes")[0])
    new, _ = apply(built(lambda b: back(b, b.op("ArgMax", turned(b), axis=1))), "sink_transposes")
    assert ops(new) == ["ArgMax"]


STAYS: list[tuple[str, Build, str]] = [
    ("other", lambda b: b.op("Add", turned(b), b.input("z", "float32", ("n", 3, 4, 5))), "would need a Transpose"),
    ("readers", lambda b: (b.op("Relu", y := turned(b)), y), "has other readers"),
    ("flatten", lambda b: b.op("Reshape", turned(b), i64(0, -1)), "moved apart"),
]


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[c[0] for c in STAYS])
def test_sink_refuses(name: str, build: Build, reason: str) -> None:
    _, ctx = apply(built(build), "sink_transposes")
    assert reason in reasons(ctx)


def conv(b: GraphBuilder, x: str, cin: int, cout: int, k: int = 3, **attrs: object) -> str:
    pads = {"pads": (k // 2,) * 4} if k > 1 else {}
    return b.op("Conv", x, rand(cout, cin // int(attrs.get("group", 1)), k, k), rand(cout), **pads, **attrs)  # type: ignore[arg-type]


def small_cnn(b: GraphBuilder) -> str:
    x = b.input("x", "float32", ("n", 3, 12, 12))
    y = conv(b, x, 3, 8)
    y = b.op("Mul", y, b.op("Sigmoid", y))
    y = b.op("MaxPool", y, kernel_shape=(2, 2), strides=(2, 2))
    y = b.op("Add", conv(b, y, 8, 8, group=4), y)
    gate = b.op("Sigmoid", conv(b, b.op("GlobalAveragePool", y), 8, 8, k=1))
    y = b.op("Concat", b.op("Mul", y, gate), b.op("Mul", y, rand(1, 8, 1, 1)), axis=1)
    y = b.op("Resize", y, None, np.array([1, 1, 2, 2], F), mode="nearest")
    y = b.op("ConvTranspose", y, rand(16, 4, 2, 2), strides=(2, 2))
    y = b.op("Relu", b.op("DepthToSpace", y, blocksize=2))
    return b.op("MatMul", b.op("Flatten", b.op("ReduceMean", y, i64(2, 3))), rand(1, 5))


def test_channels_last_leaves_border_transposes_only() -> None:
    graph = built(small_cnn)
    new, report = run_passes(graph, "all")
    assert ops(new).count("Transpose") == 1
    assert ops(new)[0] == "Transpose"
    assert report.fired("channels_last") > 8
    assert_same_numbers(graph, new, 1e-4)


@pytest.mark.parametrize("trans", [0, 1])
def test_flatten_permutes_the_weight_behind_it(trans: int) -> None:
    def build(b: GraphBuilder) -> str:
        y = conv(b, b.input("x", "float32", ("n", 3, 4, 5)), 3, 6)
        return b.op("Gemm", b.op("Flatten", y), rand(7, 120) if trans else rand(120, 7), rand(7), transB=trans)

    graph = built(build)
    new, _ = run_passes(graph, "all")
    assert ops(new).count("Transpose") == 1
    assert_same_numbers(graph, new, 1e-4)


def test_channels_last_for_one_and_three_spatial_axes() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        x, y = b.input("x", "float32", ("n", 3, 9)), b.input("y", "float32", ("n", 2, 4, 5, 6))
        return b.op("Relu", b.op("Conv", x, rand(4, 3, 3))), b.op("Relu", b.op("Conv", y, rand(4, 2, 1, 2, 3)))

    graph = built(build)
    new, _ = run_passes(graph, "all")
    assert all(n.attr("data_layout") == "NHWC" for n in new.nodes if n.op == "Conv")
    assert_same_numbers(graph, new, 1e-4)


def test_channels_last_refuses_indices_and_lone_pools() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        y = conv(b, b.input("x", "float32", ("n", 3, 8, 8)), 3, 4)
        return b.ops("MaxPool", y, kernel_shape=(2, 2), outputs=2)

    _, ctx = apply(built(build), "channels_last")
    assert "counts positions" in reasons(ctx)

    def lone(b: GraphBuilder) -> tuple[str, ...]:
        x = b.input("x", "float32", ("n", 3, 8, 8))
        return b.op("MaxPool", x, kernel_shape=(2, 2)), conv(b, x, 3, 4)

    _, ctx = apply(built(lone), "channels_last")
    assert "does not pay" in reasons(ctx)


def test_view_groups_and_order() -> None:
    assert view_groups(make_shape(("n", 6, 4)), make_shape(("n", 2, 3, 4))) == [([0], [0]), ([1], [1, 2]), ([2], [3])]
    assert view_groups(make_shape(("n", 6)), make_shape((4, "m"))) is None
    assert view_order(make_shape(("n", 3, 4, 5)), make_shape(("n", 3, 20)), TO_LAST) == (0, 2, 1)
    assert view_order(make_shape(("n", 3, 4, 5)), make_shape(("n", 60)), TO_LAST) is None
    assert view_order(make_shape(("n", 8, 1, 1)), make_shape(("n", 8)), TO_LAST) == (0, 1)


def test_permuted_rows_of_both_memory_orders() -> None:
    w = rand(24, 5)
    want = w.reshape(2, 3, 4, 5).transpose(1, 2, 0, 3).reshape(24, 5)
    np.testing.assert_array_equal(permuted_rows(w, (2, 3, 4), (1, 2, 0)), want)
    np.testing.assert_array_equal(permuted_rows(np.asfortranarray(w), (2, 3, 4), (1, 2, 0)), want)


def test_transposes_in_subgraphs_sink_too() -> None:
    def body() -> Graph:
        b = GraphBuilder("body")
        y = b.ops("Transpose", "x", perm=(1, 0), outputs=("t",))[0]
        y = b.ops("Relu", y, outputs=("r",))[0]
        return b.build(b.ops("Transpose", y, perm=(1, 0), outputs=("u",))[0], infer=False)

    def other() -> Graph:
        b = GraphBuilder("other")
        return b.build(b.ops("Neg", "x", outputs=("v",))[0], infer=False)

    def build(b: GraphBuilder) -> str:
        b.input("x", "float32", ("n", 3))
        return b.op("If", b.input("c", "bool", ()), then_branch=body(), else_branch=other())

    new, _ = apply(built(build), "sink_transposes")
    inner = new.nodes[0].attr("then_branch")
    assert isinstance(inner, Graph)
    assert "Transpose" not in [n.op for n in inner.nodes]
