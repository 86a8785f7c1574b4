"""Dims of unknown relation that broadcast: what inference puts in front of which operand, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core.assumptions import Ones
from tilewright.core.errors import ModelError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import with_broadcasts
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.ops import OPS
from tilewright.graph_ir.pipeline import run_passes
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph


def _add(b: GraphBuilder) -> str:
    return b.op("Add", b.input("x", "float32", ("n", 4)), b.input("y", "float32", ("m", 4)))


def _graph(make: Callable[[GraphBuilder], str]) -> Graph:
    b = GraphBuilder("g")
    return with_broadcasts(b.build(make(b)))


def test_text() -> None:
    assert (
        print_graph(_graph(_add))
        == """\
graph g broadcasts (x: float32[n, 4], y: float32[m, 4]) -> (Add_0) {
  x.sizes: int64[2] <broadcast(m, n), 1> = CommonSizes(x, y) {axes: [0, 0], dims: [0, 0], operands: [0, 1], rank: 2} \
x.sizes.node
  x.repeated: float32[broadcast(m, n), 4] = BroadcastTo(x, x.sizes) {} x.repeated.node
  y.sizes: int64[2] <broadcast(m, n), 1> = CommonSizes(x, y) {axes: [0, 0], dims: [0, 0], operands: [0, 1], rank: 2} \
y.sizes.node
  y.repeated: float32[broadcast(m, n), 4] = BroadcastTo(y, y.sizes) {} y.repeated.node
  Add_0: float32[broadcast(m, n), 4] = Add(x.repeated, y.repeated) {} n_Add_0
  assume n_Add_0: n <> m;
}"""
    )


CASES: dict[str, tuple[Callable[[GraphBuilder], str], int]] = {
    "unknown": (_add, 2),
    "known": (lambda b: b.op("Add", b.input("x", "float32", ("n", 4)), b.input("y", "float32", (1, 4))), 0),
    "constant": (lambda b: b.op("Add", b.input("x", "float32", ("n", 1)), np.ones((3, 4), np.float32)), 1),
    "never_one": (lambda b: b.op("Add", b.input("x", "float32", ("n + 2",)), b.input("y", "float32", ("m",))), 1),
    "batch": (lambda b: b.op("MatMul", b.input("x", "float32", ("n", 3, 4)), b.input("y", "float32", ("m", 4, 5))), 2),
    "bias": (lambda b: b.op("Gemm", b.input("x", "float32", ("n", 4)), np.ones((4, 3), np.float32),
                            b.input("y", "float32", ("m", 1))), 1),
    "slope": (lambda b: b.op("PRelu", b.input("x", "float32", (2, "n")), b.input("y", "float32", ("m",))), 1),
    "slope_of_one": (lambda b: b.op("PRelu", b.input("x", "float32", (2, 1)), b.input("y", "float32", ("m",))), 0),
    "labels": (lambda b: b.op("Einsum", b.input("x", "float32", ("n", "k")), b.input("y", "float32", ("m", "k")),
                              equation="ij,ij->j"), 2),
    "parameters": (lambda b: b.op("QuantizeLinear", b.input("x", "float32", (2, "n")), b.input("s", "float32", ("m",)),
                                  b.input("z", "uint8", ("p",))), 2),
}  # fmt: skip


@pytest.mark.parametrize(("make", "count"), CASES.values(), ids=CASES)
def test_operands_that_may_be_repeated(make: Callable[[GraphBuilder], str], count: int) -> None:
    graph = _graph(make)
    verify_graph(graph)
    assert sum(n.op == "BroadcastTo" for n in graph.nodes) == count
    assert any(a.ones is not Ones.NEITHER for a in graph.assumptions) == bool(count)


@pytest.mark.parametrize(("make", "count"), CASES.values(), ids=CASES)
def test_a_second_look_changes_nothing(make: Callable[[GraphBuilder], str], count: int) -> None:
    graph = _graph(make)
    again = with_broadcasts(graph)
    assert again.nodes == graph.nodes
    assert again.values == graph.values


@pytest.mark.parametrize("shapes", [((3, 4), (1, 4)), ((1, 4), (3, 4)), ((5, 4), (5, 4)), ((0, 4), (1, 4))])
def test_numbers(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes)
    graph = _graph(_add)
    for g in (graph, run_passes(graph)[0]):
        np.testing.assert_array_equal(interpret(g, {"x": x, "y": y})["Add_0"], x + y)


def test_sizes_that_do_not_fit() -> None:
    feed = {"x": np.ones((2, 4), np.float32), "y": np.ones((3, 4), np.float32)}
    with pytest.raises(ModelError, match="CommonSizes"):
        interpret(_graph(_add), feed)


def test_round_trip() -> None:
    graph = _graph(_add)
    text = print_graph(graph)
    parsed = parse_graph(text, constants_of(graph))
    assert parsed.broadcasts
    assert parsed.assumptions == graph.assumptions
    assert print_graph(parsed) == text


def test_what_must_agree_is_no_broadcast() -> None:
    def make(b: GraphBuilder) -> str:
        return b.op("Concat", b.input("x", "float32", ("n", 4)), b.input("y", "float32", ("m", 4)), axis=1)

    graph = _graph(make)
    assert [n.op for n in graph.nodes] == ["Concat"]
    assert [a.ones for a in graph.assumptions] == [Ones.NEITHER]


def test_inside_a_body() -> None:
    inner = GraphBuilder("body")
    i, going = inner.input("i", "int64", ()), inner.input("going", "bool", ())
    state = inner.input("state", "float32", ("n",))
    body = inner.build(inner.op("Identity", going), inner.op("Add", state, "y"), infer=False)
    assert i
    b = GraphBuilder("g")
    x, _ = b.input("x", "float32", ("n",)), b.input("y", "float32", ("m",))
    graph = with_broadcasts(b.build(b.op("Loop", np.array(3, np.int64), None, x, body=body)))
    done = dict(graph.nodes[0].subgraphs())["body"]
    assert [n.op for n in done.nodes if n.op == "BroadcastTo"] == ["BroadcastTo"] * 2
    assert done.broadcasts
    assert [a.node for a in done.assumptions] == ["n_Add_1"]
    assert graph.assumptions == ()
    verify_graph(graph)


@pytest.mark.parametrize("name", ["CommonSizes", "BroadcastTo"])
def test_operators_are_ours(name: str) -> None:
    assert OPS[name].own
