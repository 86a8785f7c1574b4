"""Branches that give one value in two ranks: one rank where all readers broadcast, two where somebody could tell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.api.standard import assert_as_standard
from tilewright.tests.graph_ir.rewriting import apply, built, ops, reasons

F = np.float32


def branch(name: str, value: str) -> Graph:
    b = GraphBuilder(name)
    return b.build(*b.ops("Neg", value, outputs=(f"{name}_y",)), infer=False)


def chosen(b: GraphBuilder, small: str, large: str) -> str:
    return b.op("If", b.input("c", "bool", ()), then_branch=branch("then", small), else_branch=branch("other", large))


def one_or_list(b: GraphBuilder) -> str:
    return chosen(b, b.input("a", "float32", ()), b.input("b", "float32", (1,)))


def ranks(graph: Graph) -> list[int | None]:
    """Ranks of the outputs of nodes, None where a call tells."""
    shapes = [getattr(graph.values[o].type, "shape", None) for n in graph.nodes for o in n.outputs]
    return [None if s is None else len(s) for s in shapes]


def test_a_number_or_a_list_of_one() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n",))
        return b.op("Exp", b.op("Add", b.op("Mul", x, one_or_list(b)), x))

    graph = built(build)
    assert ranks(graph) == [None] * 4
    new, ctx = apply(graph, "equal_ranks")
    assert ranks(new) == [1] * 4
    assert [f.what for f in ctx.log.fired] == ["equal_ranks"]
    assert [[n.op for n in g.nodes] for _, g in new.nodes[0].subgraphs()] == [["Neg"], ["Neg", "Unsqueeze"]]


def test_matrices_and_stacks_of_one() -> None:
    def build(b: GraphBuilder) -> str:
        e = chosen(b, b.input("a", "float32", ("n", 3)), b.input("b", "float32", (1, "n", 3)))
        return b.op("Where", b.op("Less", e, y := b.input("y", "float32", (4, "n", 3))), e, y)

    new, _ = apply(built(build), "equal_ranks")
    assert ranks(new) == [3, 3, 3]


@pytest.mark.parametrize(
    "read",
    [
        lambda b, e: e,
        lambda b, e: b.op("Shape", e),
        lambda b, e: b.op("Mul", e, np.array(2, F)),
        lambda b, e: b.op("Mul", e, e),
    ],
    ids=["output", "shape", "smaller", "itself"],
)
def test_who_could_tell_keeps_both_ranks(read: Callable[[GraphBuilder, str], str]) -> None:
    graph = built(lambda b: read(b, one_or_list(b)))
    new, ctx = apply(graph, "equal_ranks")
    assert new is graph
    assert "is 0 or 1" in reasons(ctx)


def test_branches_of_one_rank_stay() -> None:
    def build(b: GraphBuilder) -> str:
        return b.op("Mul", chosen(b, b.input("a", "float32", (1,)), b.input("b", "float32", (3,))), np.ones(3, F))

    graph = built(build)
    new, ctx = apply(graph, "equal_ranks")
    assert new is graph
    assert not ctx.log.fired


def test_it_is_native_then() -> None:
    text = """g (float[n] x, int64[1] d) => (y) {
        one = Constant<value_int = 1>()
        c = Equal(d, one)
        e = If (c) <
            then_branch = t () => (a) { a = Constant<value_float = 2.5>() },
            else_branch = f () => (b) { r = CastLike(d, x)  b = Reciprocal(r) }
        >
        y = Mul(x, e)
    }"""
    x = np.arange(3, dtype=F)
    assert_as_standard(text, [{"x": x, "d": np.array([d])} for d in (1, 4)])


def test_after_it_nothing_is_left_of_unknown_rank() -> None:
    graph, report = run_passes(built(lambda b: b.op("Mul", b.input("x", "float32", ("n",)), one_or_list(b))))
    assert report.fired("equal_ranks") == 1
    assert ops(graph) == ["If", "Mul"]
    assert None not in ranks(graph)
