"""One group as one function: names, operands, constants, dead stages, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.lowering.group import can_lower, native_refusal
from tilewright.tests.lowering.lowered import TARGET, lower, require_twin


def test_identical_groups_give_identical_text() -> None:
    texts = []
    for prefix in ("a", "something_else"):
        b = GraphBuilder()
        x = b.input(f"{prefix}_x", "float32", (2, 3))
        bias = b.constant(np.arange(3, dtype=np.float32), f"{prefix}_bias")
        graph = b.build(b.op("Relu", b.op("Add", x, bias)))
        texts.append(str(lower(graph).func))
    assert texts[0] == texts[1]


def test_params_are_inputs_then_constants_then_outputs() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", (2, 3))
    y = b.op("Add", x, b.constant(np.ones(3, np.float32), "bias"))
    low = lower(b.build(y))
    assert [p.name for p in low.func.params] == ["p0", "c0", "o0"]
    assert low.inputs == ("x",)
    assert [c.source for c in low.constants] == ["bias"]
    assert low.outputs == (y,)


def test_one_element_constants_are_literals() -> None:
    b = GraphBuilder()
    low = lower(b.build(b.op("Mul", b.input("x", "float32", (2, 3)), np.array([2.5], np.float32))))
    assert low.constants == ()
    assert "float32(2.5)" in str(low.func)


def test_a_chain_with_an_inner_output() -> None:
    b = GraphBuilder()
    a = b.op("Exp", b.input("x", "float32", (2, 3)))
    total = b.op("ReduceSum", a, np.array([1]), keepdims=1)
    graph = b.build(a, b.op("Div", a, total))
    require_twin(graph, {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)})


def test_an_unread_output_leaves_no_stage() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", (2, 3))
    y, _, _ = b.ops("LayerNormalization", x, np.ones(3, np.float32), outputs=("y", "m", "s"), axis=-1)
    names = str(lower(b.build(y)).func)
    assert "mean_out" not in names
    assert "p1" not in names


def test_shared_weight_has_one_key() -> None:
    keys = []
    for _ in range(2):
        b = GraphBuilder()
        x = b.input("x", "float32", (4, 1, 3))
        w, r = np.ones((1, 5, 3), np.float32), np.ones((1, 5, 5), np.float32)
        (y,) = b.ops("RNN", x, b.constant(w, "w"), b.constant(r, "r"), hidden_size=5)
        keys.append([(c.source, c.key) for c in lower(b.build(y)).constants])
    assert keys[0] == keys[1]
    assert len({k for k, _ in keys[0]}) == 2


def test_known_elements_need_no_operand() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", ("n", 4))
    start = b.op("Squeeze", b.op("Slice", b.op("Shape", x), np.array([0]), np.array([1])), np.array([0]))
    r = b.op("Range", np.array(0), start, np.array(1))
    graph = b.build(r)
    node = graph.producers()[r]
    assert native_refusal(graph, node, TARGET) is None


def test_narrow_floats_are_computed_in_float32() -> None:
    b = GraphBuilder()
    graph = b.build(b.op("Softmax", b.input("x", "float16", (3, 5)), axis=-1))
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float16)
    require_twin(graph, {"x": x}, tolerance=2e-3)


def test_refuses_an_operator_without_rule() -> None:
    b = GraphBuilder()
    graph = b.build(b.op("NonZero", b.input("x", "float32", (3,))))
    assert not can_lower(graph.nodes[0])
    with pytest.raises(UnsupportedError, match="no native implementation"):
        lower(graph)


def test_refuses_strings() -> None:
    b = GraphBuilder()
    graph = b.build(b.op("Equal", b.input("x", "string", (3,)), b.input("y", "string", (3,))))
    with pytest.raises(UnsupportedError, match="element type string, native code has none"):
        lower(graph)


def test_refuses_padding_axes_that_are_not_constant() -> None:
    b = GraphBuilder()
    x, axes = b.input("x", "float32", (3, 4)), b.input("axes", "int64", (1,))
    pads = b.constant(np.array([1, 1], np.int64))
    graph = b.build(b.op("Pad", x, pads, "", axes))
    assert "axes (input 3) must be a constant" in (native_refusal(graph, graph.nodes[0], TARGET) or "")
