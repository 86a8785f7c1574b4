"""The graph interpreter: order, control flow, keeping and freeing, errors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import InputError, ModelError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph


def _chain() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    return b.build(b.op("Exp", b.op("Neg", x)))


def test_outputs_and_kept_values() -> None:
    x = np.array([0.0, 1.0], np.float32)
    got = interpret(_chain(), {"x": x}, keep=["Neg_0"])
    assert list(got) == ["Exp_1", "Neg_0"]
    np.testing.assert_allclose(got["Exp_1"], np.exp(-x))  # type: ignore[arg-type]
    np.testing.assert_array_equal(got["Neg_0"], -x)  # type: ignore[arg-type]


def test_unkept_values_are_not_returned() -> None:
    assert list(interpret(_chain(), {"x": np.zeros(2, np.float32)})) == ["Exp_1"]


def test_loop_sums_and_collects() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2,))
    s = GraphBuilder("body")
    s.input("i", "int64", ())
    cond = s.input("cond", "bool", ())
    state = s.input("state", "float32", (2,))
    go = s.ops("Identity", cond, outputs=("go",))[0]
    total = s.ops("Add", state, x, outputs=("total",))[0]
    seen = s.ops("Neg", total, outputs=("seen",))[0]
    body = s.build(go, total, seen, infer=False)
    outs = b.ops("Loop", b.input("m", "int64", ()), None, x, outputs=2, body=body)
    g = b.build(*outs)
    one = np.ones(2, np.float32)
    got = interpret(g, {"x": one, "m": np.array(3)})
    np.testing.assert_array_equal(got[outs[0]], one * 4)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got[outs[1]], -np.array([[2, 2], [3, 3], [4, 4]]))  # type: ignore[arg-type]
    empty = interpret(g, {"x": one, "m": np.array(0)})[outs[1]]
    assert isinstance(empty, np.ndarray)
    assert empty.shape == (0, 2)


def test_a_loop_without_a_turn_collects_nothing_of_the_sizes_that_are_known() -> None:
    inner = GraphBuilder("body")
    inner.input("i", "int64", ())
    go = inner.input("go", "bool", ())
    x = inner.input("x", "float32", ("n", 2))
    part = inner.op("Slice", x, np.array([0]), np.array([1]))
    body = inner.build(go, x, part)
    b = GraphBuilder("g")
    outs = b.ops("Loop", np.array(0), None, b.input("a", "float32", ("n", 2)), outputs=2, body=body)
    for n in (0, 3):
        got = interpret(b.build(*outs), {"a": np.zeros((n, 2), np.float32)})
        assert np.shape(got[outs[1]]) == (0, min(n, 1), 2)


@pytest.mark.parametrize("choice", [True, False])
def test_if_runs_one_branch(choice: bool) -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    c = b.input("c", "bool", ())
    s, t = GraphBuilder("then"), GraphBuilder("else")
    then = s.build(*s.ops("Neg", x, outputs=("a",)), infer=False)
    other = t.build(*t.ops("Identity", x, outputs=("b",)), infer=False)
    out = b.op("If", c, then_branch=then, else_branch=other)
    got = interpret(b.build(out), {"x": np.ones(3, np.float32), "c": np.array(choice)})[out]
    np.testing.assert_array_equal(got, np.full(3, -1 if choice else 1, np.float32))  # type: ignore[arg-type]


def test_scan_reversed() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (3,))
    s = GraphBuilder("body")
    acc = s.input("acc", "float32", ())
    e = s.input("e", "float32", ())
    total = s.ops("Add", acc, e, outputs=("total",))[0]
    copy = s.ops("Identity", total, outputs=("copy",))[0]
    outs = b.ops("Scan", np.array(0, np.float32), x, outputs=2, body=s.build(total, copy, infer=False),
                 num_scan_inputs=1, scan_input_directions=(1,))  # fmt: skip
    got = interpret(b.build(*outs), {"x": np.array([1, 2, 4], np.float32)})
    np.testing.assert_array_equal(got[outs[1]], [4, 6, 7])  # type: ignore[arg-type]


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected inputs \['x'\], got \['y'\]"):
        interpret(_chain(), {"y": np.zeros(2, np.float32)})


def test_unknown_names_to_keep_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected names of values to keep, got \['z'\]"):
        interpret(_chain(), {"x": np.zeros(2, np.float32)}, keep=["z"])


def test_a_failing_node_is_named() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    g = b.build(b.op("MatMul", x, b.input("y", "float32", ("n",))))
    with pytest.raises(ModelError, match=r"node 'n_MatMul_0' \(MatMul\): failed on \(float32\[2\], float32\[3\]\)"):
        interpret(g, {"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)})
