"""Reshapes that others undo behind elementwise operators go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.cancel_views import CANCEL_VIEWS
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.rewriting import assert_same_numbers, built, ops

F = np.float32
Build = Callable[[GraphBuilder], "str | tuple[str, ...]"]


def rows(b: GraphBuilder, name: str = "x") -> str:
    return b.input(name, "float32", (6, 4))


def view(b: GraphBuilder, x: str, *shape: int) -> str:
    return b.op("Reshape", x, np.array(shape))


def between(b: GraphBuilder) -> str:
    """x * 0.5 * tanh(x + row), in another view than before and behind."""
    v = view(b, b.op("Neg", rows(b)), 2, 3, 4)
    gate = b.op("Tanh", b.op("Add", v, np.arange(4, dtype=F)))
    return b.op("Neg", view(b, b.op("Mul", b.op("Mul", v, np.full((), 0.5, F)), gate), 6, 4))


def both_sides(b: GraphBuilder) -> str:
    """A sum of two views, seen as rows again."""
    left, right = view(b, rows(b), 2, 3, 4), view(b, rows(b, "y"), 2, 3, 4)
    return b.op("Neg", view(b, b.op("Add", left, right), 6, 4))


def also_read(b: GraphBuilder) -> tuple[str, ...]:
    """Two ways back, and a reader of the view itself."""
    r = b.op("Relu", view(b, rows(b), 2, 3, 4))
    return b.op("Neg", view(b, r, 6, 4)), b.op("Abs", view(b, r, 6, 4)), b.op("ReduceSum", r, np.array([1]))


def other_last_dim(b: GraphBuilder) -> str:
    r = b.op("Mul", view(b, rows(b), 2, 12), np.full((1,), 2.0, F))
    return b.op("Neg", view(b, r, 6, 4))


FIRES: list[tuple[Build, list[str]]] = [
    (between, ["Neg", "Mul", "Add", "Tanh", "Mul", "Neg"]),
    (both_sides, ["Add", "Neg"]),
    (also_read, ["Relu", "Neg", "Abs", "Reshape", "ReduceSum"]),
    (other_last_dim, ["Mul", "Neg"]),
]


@pytest.mark.parametrize(("build", "want"), FIRES)
def test_fires(build: Build, want: list[str]) -> None:
    graph = built(build)
    new = CANCEL_VIEWS.apply(graph, PassContext.for_graph(graph))
    verify_graph(new)
    assert sorted(ops(new)) == sorted(want)
    assert_same_numbers(graph, new, 0.0)


def row_of_another_dim(b: GraphBuilder) -> str:
    r = b.op("Mul", view(b, rows(b), 2, 12), np.arange(12, dtype=F))
    return b.op("Neg", view(b, r, 6, 4))


def full_operand(b: GraphBuilder) -> str:
    r = b.op("Mul", view(b, rows(b), 2, 3, 4), b.input("m", "float32", (2, 3, 4)))
    return b.op("Neg", view(b, r, 6, 4))


def another_way_out(b: GraphBuilder) -> tuple[str, ...]:
    v = view(b, rows(b), 2, 3, 4)
    r = b.op("Relu", v)
    return b.op("Neg", view(b, r, 6, 4)), b.op("ReduceSum", r, np.array([1])), b.op("ReduceMax", v, np.array([1]))


def not_elementwise(b: GraphBuilder) -> str:
    return b.op("Neg", view(b, b.op("Softmax", view(b, rows(b), 2, 3, 4), axis=1), 6, 4))


def only_views(b: GraphBuilder) -> str:
    return b.op("Neg", view(b, view(b, rows(b), 2, 3, 4), 6, 4))


@pytest.mark.parametrize("build", [row_of_another_dim, full_operand, another_way_out, not_elementwise, only_views])
def test_stays(build: Build) -> None:
    graph = built(build)
    assert CANCEL_VIEWS.apply(graph, PassContext.for_graph(graph)) is graph


def test_symbolic_rows() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("n", "s", 4))
        r = b.op("Relu", b.op("Reshape", x, np.array([-1, 4])))
        shape = b.op("Shape", x)
        return b.op("Neg", b.op("Reshape", r, shape))

    graph = built(build)
    new = CANCEL_VIEWS.apply(graph, PassContext.for_graph(graph))
    assert ops(new) == ["Relu", "Neg"]
    assert_same_numbers(graph, new, 0.0)
