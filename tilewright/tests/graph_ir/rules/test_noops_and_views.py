"""No-op removal and view rules: each fires, refuses, and keeps the numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply, built, ops, reasons, require_refused

F = np.float32


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def wrap(b: GraphBuilder, y: str) -> str:
    """A node behind, so that the rewritten value is not itself an output."""
    return b.op("Neg", y)


def x4(b: GraphBuilder) -> str:
    return b.input("x", "float32", ("n", 3, 4, 5))


def bytes4(b: GraphBuilder) -> str:
    return b.input("x", "uint8", ("n", 3, 4, 5))


FIRES: list[tuple[str, Callable[[GraphBuilder], str], list[str]]] = [
    ("identity", lambda b: wrap(b, b.op("Identity", x4(b))), ["Neg"]),
    ("dropout", lambda b: wrap(b, b.op("Dropout", x4(b))), ["Neg"]),
    ("cast_to_same", lambda b: wrap(b, b.op("Cast", x4(b), to=dtypes.float32)), ["Neg"]),
    ("cast_like", lambda b: b.op("CastLike", x4(b), np.zeros(1, np.int32)), ["Cast"]),
    ("view_to_same", lambda b: wrap(b, b.op("Reshape", x4(b), i64(0, 3, 4, 5))), ["Neg"]),
    ("view_to_same", lambda b: wrap(b, b.op("Expand", x4(b), i64(1, 1, 1, 1))), ["Neg"]),
    ("transpose_identity", lambda b: wrap(b, b.op("Transpose", x4(b), perm=(0, 1, 2, 3))), ["Neg"]),
    ("slice_all", lambda b: wrap(b, b.op("Slice", x4(b), i64(0), i64(99), i64(2))), ["Neg"]),
    ("pad_nothing", lambda b: wrap(b, b.op("Pad", x4(b), i64(*[0] * 8))), ["Neg"]),
    ("tile_once", lambda b: wrap(b, b.op("Tile", x4(b), i64(1, 1, 1, 1))), ["Neg"]),
    ("clip_unbounded", lambda b: wrap(b, b.op("Clip", x4(b))), ["Neg"]),
    ("variadic_single", lambda b: wrap(b, b.op("Concat", x4(b), axis=1)), ["Neg"]),
    ("split_single", lambda b: wrap(b, b.op("Split", x4(b), axis=1, num_outputs=1)), ["Neg"]),
    (
        "concat_empty",
        lambda b: b.op("Concat", y := x4(b), b.op("Slice", y, i64(0), i64(0), i64(1)), y, axis=1),
        ["Concat"],
    ),
    ("mul_one", lambda b: wrap(b, b.op("Mul", x4(b), np.ones(1, F))), ["Neg"]),
    ("div_one", lambda b: wrap(b, b.op("Div", x4(b), np.ones((), F))), ["Neg"]),
    ("pow_one", lambda b: wrap(b, b.op("Pow", x4(b), np.ones((), F))), ["Neg"]),
    ("sub_zero", lambda b: wrap(b, b.op("Sub", x4(b), np.zeros((), F))), ["Neg"]),
    ("add_zero", lambda b: wrap(b, b.op("Add", x4(b), np.full((), -0.0, F))), ["Neg"]),
    ("add_zero", lambda b: wrap(b, b.op("Add", b.input("x", "int64", ("n",)), i64(0))), ["Neg"]),
    ("add_zero_float", lambda b: wrap(b, b.op("Add", x4(b), np.zeros((), F))), ["Neg"]),
    ("and_true", lambda b: b.op("Not", b.op("And", b.input("x", "bool", (3,)), np.ones(3, bool))), ["Not"]),
    ("or_false", lambda b: b.op("Not", b.op("Or", b.input("x", "bool", (3,)), np.zeros(1, bool))), ["Not"]),
    (
        "where_constant",
        lambda b: wrap(b, b.op("Where", np.ones((1,), bool), b.input("x", "float32", (2, 3)), np.zeros((), F))),
        ["Neg"],
    ),
    ("relu_relu", lambda b: wrap(b, b.op("Relu", b.op("Relu", x4(b)))), ["Relu", "Neg"]),
    (
        "not_not",
        lambda b: b.op("Cast", b.op("Not", b.op("Not", b.input("x", "bool", (3,)))), to=dtypes.int32),
        ["Cast"],
    ),
    ("neg_neg", lambda b: b.op("Abs", b.op("Neg", b.op("Neg", x4(b)))), ["Abs"]),
    ("reshape_constant", lambda b: b.op("Reshape", x4(b), i64(0, -1, 5)), ["Reshape"]),
    (
        "reshape_constant",
        lambda b: b.op("Reshape", y := x4(b), b.op("Concat", b.op("Shape", y, start=0, end=1), i64(60), axis=0)),
        ["Reshape"],
    ),
    ("flatten_reshape", lambda b: b.op("Flatten", x4(b), axis=1), ["Reshape"]),
    ("view_view", lambda b: b.op("Reshape", b.op("Unsqueeze", x4(b), i64(1)), i64(0, 12, 5)), ["Reshape"]),
    ("view_view", lambda b: wrap(b, b.op("Squeeze", b.op("Unsqueeze", x4(b), i64(1)), i64(1))), ["Neg"]),
    (
        "expand_constant",
        lambda b: b.op(
            "Expand", y := b.input("x", "float32", ("n", 1)), b.op("Concat", b.op("Shape", y, end=1), i64(4), axis=0)
        ),
        ["Expand"],
    ),
    (
        "transpose_transpose",
        lambda b: b.op("Transpose", b.op("Transpose", x4(b), perm=(0, 2, 3, 1)), perm=(1, 0, 2, 3)),
        ["Transpose"],
    ),
    (
        "transpose_transpose",
        lambda b: wrap(b, b.op("Transpose", b.op("Transpose", x4(b), perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2))),
        ["Neg"],
    ),
    ("transpose_cast", lambda b: b.op("Transpose", b.op("Cast", bytes4(b), to=dtypes.float32)), ["Transpose", "Cast"]),
    (
        "transpose_view_cast",
        lambda b: b.op("Transpose", b.op("Reshape", b.op("Cast", bytes4(b), to=dtypes.int64), i64(0, 12, -1))),
        ["Reshape", "Transpose", "Cast"],
    ),
    (
        "transpose_reshape",
        lambda b: b.op("Transpose", b.input("x", "float32", ("n", 3, 1, 1)), perm=(0, 2, 3, 1)),
        ["Reshape"],
    ),
]

STAYS: list[tuple[str, Callable[[GraphBuilder], str], str]] = [
    ("dropout", lambda b: b.op("Dropout", x4(b), np.zeros((), F), b.input("t", "bool", ())), "not known to be false"),
    ("cast_to_same", lambda b: b.op("Cast", x4(b), to=dtypes.float64), ""),
    ("view_to_same", lambda b: b.op("Reshape", x4(b), i64(0, 12, 5)), ""),
    ("view_to_same", lambda b: b.op("Expand", x4(b), i64(2, 1, 1, 1, 1)), ""),
    ("slice_all", lambda b: b.op("Slice", x4(b), i64(-1), i64(-99), i64(2), i64(-1)), ""),
    ("pad_nothing", lambda b: b.op("Pad", x4(b), i64(0, 0, 0, 1, 0, 0, 0, 0)), ""),
    ("mul_one", lambda b: b.op("Mul", b.input("x", "float32", (3,)), np.ones((2, 3), F)), ""),
    ("add_zero", lambda b: b.op("Add", x4(b), np.zeros((), F)), ""),
    (
        "where_constant",
        lambda b: b.op("Where", np.ones((2, 1), bool), b.input("x", "float32", (3,)), np.zeros((), F)),
        "",
    ),
    ("identity", lambda b: b.op("Identity", x4(b)), ""),
    ("transpose_reshape", lambda b: b.op("Transpose", x4(b), perm=(0, 2, 3, 1)), ""),
    ("transpose_cast", lambda b: b.op("Transpose", b.op("Cast", bytes4(b), to=dtypes.bool_)), ""),
    ("transpose_cast", lambda b: b.op("Transpose", b.op("Cast", x4(b), to=dtypes.float64)), ""),
    (
        "reshape_constant",
        lambda b: b.op(
            "Reshape",
            y := b.input("x", "float32", ("a", "b", 4)),
            b.op("Gather", b.op("Shape", y), i64(1, 0, 2), axis=0),
        ),
        "more than one unknown dim",
    ),
]


@pytest.mark.parametrize(("name", "build", "want"), FIRES, ids=[f"{k}-{c[0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(name: str, build: Callable[[GraphBuilder], str], want: list[str]) -> None:
    graph = built(build)
    new, ctx = apply(graph, name)
    assert any(f.what == name for f in ctx.log.fired)
    assert [o for o in ops(new) if o not in ("Shape", "Slice")] == want
    again, _ = apply(new, name)
    assert again is new


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Callable[[GraphBuilder], str], reason: str) -> None:
    require_refused(build, name, reason)


def test_dropout_with_mask_output_is_refused() -> None:
    b = GraphBuilder()
    y, mask = b.ops("Dropout", x4(b), outputs=2)
    graph = b.build(y, mask)
    new, ctx = apply(graph, "dropout")
    assert new is graph
    assert "the mask output is read" in reasons(ctx)


def test_cast_like_keeps_how_it_treats_large_numbers() -> None:
    b = GraphBuilder("g")
    g = b.build(b.op("CastLike", x4(b), np.zeros(1, np.float16), saturate=0))
    (node,) = run_passes(g, "all")[0].nodes
    assert (node.op, node.attr("saturate")) == ("Cast", 0)
