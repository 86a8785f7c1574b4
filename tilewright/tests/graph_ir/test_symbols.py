"""Symbols that inference made: what a rewrite tells of them holds wherever they occur."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.assumptions import Assumption
from tilewright.core.errors import ModelError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Constant, Graph, walk_graphs
from tilewright.graph_ir.passes.fold_constants import FOLD_CONSTANTS
from tilewright.graph_ir.passes.resolve_if import RESOLVE_IF
from tilewright.graph_ir.pipeline import run_passes
from tilewright.graph_ir.symbols import assumptions_with, graph_with, symbols_in
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.rewriting import apply, ops

F = np.float32


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def padded(b: GraphBuilder, side: int) -> str:
    """An input padded at the end of its rows to a multiple of 3.5, by arithmetic that only floats hold."""
    x = b.input("x", "float32", (2, side, 3))
    size = b.op("Cast", b.op("Gather", b.op("Shape", x), i64(1)), to=dtypes.float32)
    whole = b.op("Mul", b.op("Ceil", b.op("Div", size, F(3.5))), F(3.5))
    more = b.op("Cast", b.op("Sub", whole, size), to=dtypes.int64)
    return b.op("Pad", x, b.op("Concat", i64(0, 0, 0, 0), more, i64(0), axis=0))


def windows(side: int) -> Graph:
    """Rows padded to a multiple of 3.5, then twice as many."""
    b = GraphBuilder("windows")
    r = b.op("Relu", padded(b, side))
    return b.build(b.op("Concat", r, b.op("Neg", r), axis=1))


@pytest.mark.parametrize(("side", "rows"), [(14, 14), (13, 14), (1, 3)])
def test_pads_that_become_known_tell_the_sizes_behind_them(side: int, rows: int) -> None:
    graph = windows(side)
    assert symbols_in(graph.values)
    done, _ = apply(graph, "fold_constants")
    assert not symbols_in(done.values)
    assert str(done.values[done.outputs[0]].type) == f"float32[2, {2 * rows}, 3]"
    assert [n.op for n in done.nodes] == ["Pad", "Relu", "Neg", "Concat"]


def test_a_pad_of_nothing_leaves_no_symbols() -> None:
    """The rule alone: the size behind the Pad is still the symbol that inference gave it."""
    graph = windows(14)
    pad = next(n for n in graph.nodes if n.op == "Pad")
    zeros = {pad.inputs[1]: Constant(i64(0, 0, 0, 0, 0, 0))}
    start = graph.nodes.index(pad)
    kept = {*pad.inputs, *(o for n in graph.nodes[start:] for o in n.outputs)}
    values = {k: v for k, v in graph.values.items() if k in kept}
    graph = graph.replace(nodes=graph.nodes[start:], values=values, constants=zeros)
    assert symbols_in(graph.values)
    done, _ = apply(graph, "pad_nothing")
    assert "Pad" not in ops(done)
    assert not symbols_in(done.values)


def test_sizes_through_several_rounds_of_arithmetic() -> None:
    """Each size is known only when what stands before it is folded."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 30))
    for _ in range(4):
        half = b.op("Mul", b.op("Cast", b.op("Shape", x), to=dtypes.float32), np.array([1, 0.5], F))
        x = b.op("Slice", x, i64(0, 0), b.op("Cast", half, to=dtypes.int64))
    done, _ = apply(b.build(b.op("Relu", x)), "fold_constants")
    assert str(done.values[done.outputs[0]].type) == "float32[1, 1]"


def test_sizes_of_a_body_follow_those_around_it() -> None:
    b = GraphBuilder("g")
    condition, p = b.input("c", "bool", ()), padded(b, 14)
    branches = {}
    for key, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        inner = GraphBuilder(key)
        branches[key] = inner.build(*inner.ops(op, p, outputs=(key,)), infer=False)
    graph = b.build(b.op("If", condition, **branches))
    assert all(symbols_in(g.values) for g in walk_graphs(graph))
    done, _ = apply(graph, "simplify")
    done, _ = run_passes(graph, passes=(FOLD_CONSTANTS,))
    verify_graph(done)
    assert not any(symbols_in(g.values) for g in walk_graphs(done))


def test_sizes_made_in_a_branch_stay_there() -> None:
    """A decided If has the sizes of its branch; the symbol of a size that the branch makes means nothing outside."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", (3, 4))
    branches = {}
    for key in ("then_branch", "else_branch"):
        inner = GraphBuilder(key)
        (places,) = inner.ops("NonZero", x, outputs=(f"{key}_places",))
        branches[key] = inner.build(*inner.ops("Concat", places, places, outputs=(key,), axis=1), infer=False)
    chosen = b.op("If", np.array(True), **branches)
    graph = b.build(b.op("Neg", chosen))
    inside = {s for g in walk_graphs(graph) if g is not graph for s in symbols_in(g.values)}
    assert inside.isdisjoint(symbols_in(graph.values))
    done, _ = run_passes(graph, passes=(FOLD_CONSTANTS, RESOLVE_IF))
    verify_graph(done)


def test_sizes_that_cannot_agree_are_told() -> None:
    """Only arithmetic in floats shows that the sum is of 4 and 3 rows."""
    b = GraphBuilder("g")
    x, y = b.input("x", "float32", (8,)), b.input("y", "float32", (3,))
    half = b.op("Cast", b.op("Mul", b.op("Cast", b.op("Shape", x), to=dtypes.float32), F(0.5)), to=dtypes.int64)
    graph = b.build(b.op("Add", b.op("Slice", x, i64(0), half), y))
    with pytest.raises(ModelError, match="expected dimensions that agree, got 4 and 3"):
        run_passes(graph, passes=(FOLD_CONSTANTS,))


def test_assumptions_follow() -> None:
    n, u = var("n"), var("u0")
    given = (Assumption(n, u, "a"), Assumption(u, const(4), "b"))
    assert assumptions_with(given, {"u0": const(4)}) == (Assumption(n, const(4), "a"),)


def test_a_graph_without_the_symbols_stays_the_same_object() -> None:
    graph = windows(14)
    assert graph_with(graph, {"other": const(1)}) is graph
