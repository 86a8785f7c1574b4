"""Where values lie: operands of Concats, borders of convolutions, outputs; its text, and what the verifier sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.core.errors import InputError, VerifyError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Group, SubView, TensorType, Value
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.pipeline import fuse_graph
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.fused.partitioned import Backend, fused

F = np.float32


def _weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(F)


def _conv(b: GraphBuilder, x: str, channels: tuple[int, int], pad: int = 1) -> str:
    taps = 2 * pad + 1
    weight = _weight(channels[1], channels[0], taps, taps)
    return b.op("Conv", x, weight, pads=(pad,) * 4, data_layout="NHWC")


def dense_block(rows: int | str = 6) -> Graph:
    """Two convolutions that read and extend a growing Concat, one of an input, one of another padding."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2, rows, 6, 3))
    first = b.op("Relu", _conv(b, x, (3, 4)))
    second = b.op("Relu", _conv(b, b.op("Concat", b.op("Neg", x), first, axis=3), (7, 4)))
    joined = b.op("Concat", first, second, x, axis=-1)
    wide = _conv(b, joined, (11, 2), pad=2)
    return b.build(b.op("Add", wide, _conv(b, joined, (11, 2))), b.op("Relu", joined))


def places(graph: Graph) -> dict[str, str]:
    return {n: str(v.place) for n, v in graph.values.items() if v.place is not None}


@pytest.mark.parametrize("rows", [6, "h"])
def test_what_is_joined_and_what_is_bordered(rows: int | str) -> None:
    graph = fused(dense_block(rows))
    (join,) = (g for g in graph.groups or () if g.runs_as is RunsAs.PLACED and len(g.inputs) == 3)
    assert join.inputs[2].endswith("piece2"), "the input of the graph is copied"
    assert places(graph)[join.inputs[1]].endswith(".padded[0, 2, 2, 4]"), "in the Concat, which is in its border"
    convs = [n for n in graph.nodes if n.op == "Conv"]
    assert [n.attr("pads") is not None for n in convs] == [True, False, False, False], "all but the reader of the input"
    feed = {"x": _weight(2, 6, 6, 3)}
    want = interpret(dense_block(rows), feed)
    got = interpret(graph, feed)
    for a, b in zip(want.values(), got.values(), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [6, "h"])
def test_the_text_parses_back(rows: int | str) -> None:
    graph = fused(dense_block(rows))
    text = print_graph(graph)
    again = parse_graph(text, constants_of(graph))
    verify_graph(again)
    assert print_graph(again) == text
    assert " at " in text
    assert places(again) == places(graph)
    assert again.groups == graph.groups


def test_passes_can_be_switched_off() -> None:
    plain = fused(dense_block(), "place_concats", "place_borders", "fuse")
    assert places(plain) == {}
    assert {len(g.nodes) for g in plain.groups or ()} == {1}
    borders = fused(dense_block(), "place_concats")
    assert {v.root.rpartition(".")[2] for v in (x.place for x in borders.values.values()) if v} == {"padded"}
    with pytest.raises(InputError, match="a build can do without, got 'partition'"):
        fuse_graph(dense_block(), Backend(), "partition")


def test_outputs_own_their_memory() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2, 3))
    y = b.op("Neg", x)
    graph = fused(b.build(x, y, b.op("Reshape", y, np.array([3, 2])), y))
    assert [n.op for n in graph.nodes] == ["Neg", "Reshape", "Identity", "Identity", "Identity"]
    assert len(set(graph.outputs)) == 4
    assert graph.outputs[1] == y


# -- what the verifier finds ----------------------------------------------------------------------------------------
def _moved(graph: Graph) -> Graph:
    """A value that lies one channel further than its Concat puts it."""
    name, v = next((n, v) for n, v in graph.values.items() if v.place and v.place.offsets[-1] == 4)
    assert v.place is not None
    place = SubView(v.place.root, (*v.place.offsets[:-1], 3))
    return graph.replace(values={**graph.values, name: dataclasses.replace(v, place=place)})


def _outside(graph: Graph) -> Graph:
    name, v = next((n, v) for n, v in graph.values.items() if v.place)
    assert v.place is not None
    place = SubView(v.place.root, (0, 99, 0, 0))
    return graph.replace(values={**graph.values, name: dataclasses.replace(v, place=place)})


def _with_groups(change: Callable[[list[Group]], list[Group]]) -> Callable[[Graph], Graph]:
    return lambda graph: graph.replace(groups=tuple(change(list(graph.groups or ()))))


def _without_outputs(groups: list[Group]) -> list[Group]:
    return [dataclasses.replace(groups[0], outputs=()), *groups[1:]]


FAULTS: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "moved": (_moved, "invariant 15: group '.*': expected '.*' at "),
    "outside": (_outside, "invariant 14: value '.*': expected a place inside "),
    "lost": (_with_groups(lambda g: g[1:]), "invariant 12: graph 'g': expected a group of node "),
    "twice": (_with_groups(lambda g: [*g, g[0]]), "invariant 12: group '.*': expected node "),
    "late": (_with_groups(lambda g: g[::-1]), "invariant 13: group '.*': expected group '.*', which gives "),
    "hidden": (_with_groups(_without_outputs), "invariant 13: group '.*': expected '.*' among the outputs of "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    change, message = FAULTS[fault]
    graph = fused(dense_block())
    with pytest.raises(VerifyError, match=message):
        verify_graph(change(graph))


def test_a_captured_output_of_a_branch_is_copied() -> None:
    b = GraphBuilder("g")
    c, r = b.input("c", "bool", ()), b.op("Neg", b.input("x", "float32", (2, 3)))
    value = Value(r, TensorType(dtypes.float32, (const(2), const(3))))
    then, other = (Graph(name, (), (r,), (), {r: value}) for name in ("then", "else"))
    graph = fused(b.build(b.op("If", c, then_branch=then, else_branch=other)))
    branches = [g for _, g in graph.nodes[-1].subgraphs()]
    assert [[n.op for n in g.nodes] for g in branches] == [["Identity"]] * 2
    assert all(r not in g.values and r not in g.outputs for g in branches)
