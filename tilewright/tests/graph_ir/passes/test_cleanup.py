"""Constant folding, dead code, common subexpressions, decided If."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.passes import fold_constants as folding
from tilewright.graph_ir.passes.base import PassContext, with_inputs
from tilewright.tests.graph_ir.rewriting import BY_NAME, apply, built, ops, reasons

F = np.float32


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def test_fold_evaluates_a_cone_of_constants() -> None:
    def build(b: GraphBuilder) -> str:
        c = b.op("Add", b.op("Exp", np.ones(3, F)), np.ones(3, F))
        return b.op("Mul", b.input("x", "float32", ("n", 3)), c)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["Mul"]
    assert len(new.constants) == 1


def test_fold_padding_mask_chain_with_static_length() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (2, 5))
        n = b.op("Gather", b.op("Shape", x), i64(1), axis=0)
        pos = b.op("Range", np.array(0), b.op("Squeeze", n, i64(0)), np.array(1))
        mask = b.op("LessOrEqual", b.op("Unsqueeze", pos, i64(0)), b.op("Unsqueeze", pos, i64(1)))
        return b.op(
            "Add", x, b.op("ReduceSum", b.op("Where", mask, np.zeros((), F), np.full((), -9, F)), i64(0), keepdims=0)
        )

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["Add"]


def test_fold_uses_known_dims_when_others_are_symbolic() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n", 5))
        return b.op("Cast", b.op("Mul", b.op("Gather", b.op("Shape", x), i64(1), axis=0), i64(3)), to=dtypes.float32)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == []
    assert [c.array.tolist() for c in new.constants.values()] == [[15.0]]


def test_fold_refuses_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "GROWTH_BYTES", 1000)

    def build(b: GraphBuilder) -> str:
        big = b.op("Expand", b.op("Exp", np.ones((1, 1), F)), i64(40, 40))
        return b.op("Mul", b.input("x", "float32", (40, 40)), big)

    new, ctx = apply(built(build), "fold_constants")
    assert ops(new) == ["Expand", "Mul"]
    assert "larger than its operands" in reasons(ctx)


def test_fold_transposes_by_view() -> None:
    w = np.ones((300, 400), F)
    graph = built(lambda b: b.op("MatMul", b.input("x", "float32", ("n", 400)), b.op("Transpose", w)))
    new, _ = apply(graph, "fold_constants")
    assert ops(new) == ["MatMul"]
    assert any(np.shares_memory(c.array, w) for c in new.constants.values())


def test_fold_leaves_random_numbers_alone() -> None:
    graph = built(lambda b: b.op("RandomUniform", shape=(3,), dtype=dtypes.float32))
    new = BY_NAME["fold_constants"].apply(graph, PassContext.for_graph(graph))
    assert new is graph


def test_output_that_is_constant_keeps_its_name() -> None:
    graph = built(lambda b: b.op("Exp", np.ones(3, F)))
    new, _ = apply(graph, "fold_constants")
    assert new.outputs == graph.outputs
    assert ops(new) == []


def test_drop_dead() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n",))
        b.op("Add", b.op("Exp", x), np.ones(1, F))
        return b.op("Neg", x)

    new, _ = apply(built(build), "drop_dead")
    assert ops(new) == ["Neg"]
    assert not new.constants


def test_share_common_subexpressions_and_constants() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n",))
        return b.op("Mul", b.op("Exp", b.op("Add", x, np.ones(1, F))), b.op("Exp", b.op("Add", x, np.ones(1, F))))

    new, _ = apply(built(build), "share_common")
    assert ops(new) == ["Add", "Exp", "Mul"]
    assert len(new.constants) == 1


def test_share_common_takes_one_size_of_several_values() -> None:
    def build(b: GraphBuilder) -> str:
        x, y = (b.input(n, "float32", ("n", 3)) for n in "xy")
        sizes = [b.op("Shape", v, start=0, end=1) for v in (x, b.op("Exp", y))]
        ends = [b.op("Squeeze", s, np.array([0])) for s in sizes]
        ranges = [b.op("Range", np.array(0), e, np.array(1)) for e in ends]
        return b.op("Mul", *ranges)

    new, _ = apply(built(build), "share_common")
    assert ops(new) == ["Shape", "Squeeze", "Range", "Mul"]


def test_share_common_rewrites_a_reader_of_many_operands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each of its operands, a Concat of 50,000 took minutes."""
    made: list[str] = []

    def counted(node: Node, inputs: tuple[str, ...]) -> Node:
        made.append(node.op)
        return with_inputs(node, inputs)

    def build(b: GraphBuilder) -> str:
        x = b.op("Neg", b.input("x", "float32", ("n",)))
        return b.op("Concat", *(b.op("Mul", x, np.full(1, k % 3, F)) for k in range(60)), axis=0)

    monkeypatch.setattr("tilewright.graph_ir.passes.editor.with_inputs", counted)
    new, _ = apply(built(build), "share_common")
    assert sorted(ops(new)) == ["Concat", "Mul", "Mul", "Mul", "Neg"]
    assert len(new.constants) == 3
    assert made.count("Concat") == 1


def test_share_common_keeps_different_attributes_and_outputs() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        x = b.input("x", "float32", ("n", 3))
        return b.op("Softmax", x, axis=0), b.op("Softmax", x, axis=1), b.op("Softmax", x, axis=1)

    graph = built(build)
    new, ctx = apply(graph, "share_common")
    assert new is graph
    assert "keeps its own node" in reasons(ctx)


def branch(name: str, op: str, captured: str) -> Graph:
    b = GraphBuilder(name)
    y = b.ops(op, captured, outputs=(f"{name}_y",))[0]
    return b.build(y, infer=False)


def test_resolve_if() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n",))
        then, other = branch("then", "Exp", x), branch("other", "Neg", x)
        return b.op("If", np.array(False), then_branch=then, else_branch=other)

    new, _ = apply(built(build), "resolve_if")
    assert ops(new) == ["Neg", "Identity"]


def test_resolve_if_refuses_a_computed_condition() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n",))
        c = b.input("c", "bool", ())
        return b.op("If", c, then_branch=branch("then", "Exp", x), else_branch=branch("other", "Neg", x))

    graph = built(build)
    new, ctx = apply(graph, "resolve_if")
    assert new is graph
    assert "not constant" in reasons(ctx)


def test_rules_rename_what_a_subgraph_captures() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.op("Identity", b.input("x", "float32", ("n",)))
        c = b.input("c", "bool", ())
        return b.op("If", c, then_branch=branch("then", "Exp", x), else_branch=branch("other", "Neg", x))

    new, _ = apply(built(build), "identity")
    assert ops(new) == ["If"]
