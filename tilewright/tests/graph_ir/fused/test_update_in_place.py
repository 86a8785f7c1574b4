"""Updates apart from the copy of what they update: what the graph says of them, when they may not be, the verifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core.errors import VerifyError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.fused.update_in_place import IN_PLACE, copies_in_place
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.pipeline import fuse_graph
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.fused.partitioned import Backend, fused

SHAPE = (2, "n", 3)


def cache(b: GraphBuilder) -> tuple[str, str, str]:
    """An input, a row for it, and where that belongs."""
    return b.input("past", "float32", SHAPE), b.input("row", "float32", (2, 1, 3)), b.input("at", "int64", (2,))


def written(b: GraphBuilder, past: str, row: str, at: str) -> str:
    return b.op("TensorScatter", past, b.op("Neg", row), at, axis=1)


def one() -> Graph:
    b = GraphBuilder("g")
    return b.build(written(b, *cache(b)))


def longer() -> Graph:
    """The cache grows by what the sizes ask for."""
    b = GraphBuilder("g")
    past, row, at = cache(b)
    room = b.op("Pad", past, np.array([0, 0, 0, 0, 2, 0]))
    return b.build(written(b, room, row, at))


@pytest.mark.parametrize(("make", "copier"), [(one, "Identity"), (longer, "Pad")])
@pytest.mark.parametrize("disabled", [(), ("fuse",)])
def test_a_copy_and_an_update(make: Callable[[], Graph], copier: str, disabled: tuple[str, ...]) -> None:
    graph = fused(make(), *disabled)
    assert [copier] in [[n.op for n in g.nodes] for g in graph.groups or ()]
    ((copied, pair),) = copies_in_place(graph).items()
    assert pair == (graph.outputs[0], "past")
    (update,) = [n for n in graph.nodes if n.attr(IN_PLACE)]
    assert update.inputs[0] == copied
    rng = np.random.default_rng(0)
    feed = {"past": rng.standard_normal((2, 5, 3), np.float32), "row": np.ones((2, 1, 3), np.float32)}
    feed["at"] = np.array([4, 0])
    (wanted,), (got,) = (interpret(g, feed).values() for g in (make(), graph))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def test_the_text_parses_back() -> None:
    graph = fused(one())
    text = print_graph(graph)
    assert "in_place: 1" in text
    again = parse_graph(text, constants_of(graph))
    verify_graph(again)
    assert print_graph(again) == text


# -- where it may not be ---------------------------------------------------------------------------------------------
def read_later() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    present = written(b, past, row, at)
    return b.build(present, b.op("ReduceSum", b.op("Mul", b.op("Neg", past), present)))


def read_by_itself() -> Graph:
    b = GraphBuilder("g")
    past, _, at = cache(b)
    return b.build(b.op("TensorScatter", past, past, at, axis=1))


def seen_through_a_view() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    flat = b.op("Reshape", past, np.array([2, -1]))
    present = written(b, past, row, at)
    return b.build(present, b.op("ReduceSum", b.op("Mul", flat, b.op("ReduceSum", present))))


def kept_by_the_host() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    return b.build(b.op("SequenceAt", b.op("SequenceConstruct", past, past), np.array(1)), written(b, past, row, at))


def an_output_itself() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    return b.build(written(b, past, row, at), past)


def padding_with_other_readers() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    room = b.op("Pad", past, np.array([0, 0, 0, 0, 2, 0]))
    return b.build(written(b, room, row, at), b.op("Exp", room))


REFUSED: dict[Callable[[], Graph], str] = {
    read_later: "reads 'past' after it", read_by_itself: "what it updates has other readers",
    seen_through_a_view: "reads 'past' after it", kept_by_the_host: "may keep 'past'",
    an_output_itself: "reads 'past' after it", padding_with_other_readers: "what it updates has other readers",
}  # fmt: skip


@pytest.mark.parametrize("make", REFUSED, ids=lambda f: f.__name__)
def test_refusals(make: Callable[[], Graph]) -> None:
    graph, report = fuse_graph(make(), Backend())
    verify_graph(graph)
    (reason,) = report.refusals("update_in_place")
    assert reason.endswith(REFUSED[make])
    assert not copies_in_place(graph)


def test_of_two_updates_the_last_may_be_in_place() -> None:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    first = written(b, past, row, at)
    graph = fused(b.build(first, b.op("TensorScatter", past, b.op("Exp", row), at, axis=1)))
    assert list(copies_in_place(graph).values()) == [(graph.outputs[1], "past")]


def front_padding() -> Graph:
    """Rows in front: with as many cut off behind, sizes are equal and elements are not."""
    b = GraphBuilder("g")
    past, row, at = cache(b)
    return b.build(written(b, b.op("Pad", past, np.array([0, 1, 0, 0, -1, 0])), row, at))


def of_a_temporary() -> Graph:
    b = GraphBuilder("g")
    past, row, at = cache(b)
    return b.build(written(b, b.op("Exp", past), row, at))


def not_an_output() -> Graph:
    b = GraphBuilder("g")
    return b.build(b.op("Exp", written(b, *cache(b))))


@pytest.mark.parametrize("make", [front_padding, of_a_temporary, not_an_output], ids=lambda f: f.__name__)
def test_other_updates_stay_with_their_copies(make: Callable[[], Graph]) -> None:
    assert not copies_in_place(fused(make()))


def test_sums_into_what_was_there_stay_with_their_copies() -> None:
    b = GraphBuilder("g")
    past, row, at = (
        b.input("past", "float32", (4, 3)),
        b.input("row", "float32", (1, 3)),
        b.input("at", "int64", (1, 1)),
    )
    for reduction, count in (("add", 0), ("none", 1)):
        graph = fused(b.build(b.op("ScatterND", past, at, row, reduction=reduction)))
        assert len(copies_in_place(graph)) == count


# -- the verifier ----------------------------------------------------------------------------------------------------
def _read_twice(graph: Graph) -> Graph:
    return graph.replace(outputs=(*graph.outputs, *copies_in_place(graph)))


def _on_the_host(graph: Graph) -> Graph:
    groups = [
        dataclasses.replace(g, runs_as=RunsAs.HOST) if g.nodes[0].op == "Identity" else g for g in graph.groups or ()
    ]
    return graph.replace(groups=tuple(groups))


def _no_output(graph: Graph) -> Graph:
    return graph.replace(outputs=("row",))


@pytest.mark.parametrize(("fault", "message"), [
    (_read_twice, "expected an output of the graph, and to read '.*' alone"),
    (_no_output, "expected an output of the graph, and to read '.*' alone"),
    (_on_the_host, "expected '.*' from a kernel that copies an input of the graph"),
])  # fmt: skip
def test_faults_are_found(fault: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(VerifyError, match=f"invariant 16: node '.*' .TensorScatter.: {message}"):
        verify_graph(fault(fused(one())))
