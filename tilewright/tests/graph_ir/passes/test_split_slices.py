"""Slices beside each other become one Split: which are parts, which are left, and where the sizes must be proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.split_slices import SPLIT_SLICES
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.rewriting import assert_same_numbers, built, ops, reasons

END = (1 << 63) - 1
Build = Callable[[GraphBuilder], Sequence[str]]


def slices(*bounds: tuple[int, ...], shape: Sequence[Dim] = (3, 8), axis: int = 1) -> Build:
    """A Slice of ``x`` for each start, end and perhaps step."""

    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", shape)
        parts = [b.op("Slice", x, *(np.array([v]) for v in (s, e, axis, *step))) for s, e, *step in bounds]
        return [b.op("Neg", p) for p in parts]

    return build


def halves(b: GraphBuilder) -> list[str]:
    """Both halves of what two values of one open size are joined to, as sizes computed of shapes tell them."""
    x = b.input("x", "float32", ("n", 3))
    both = b.op("Concat", x, b.op("Neg", x), axis=0)
    n = b.op("Shape", x, start=0, end=1)
    first = b.op("Slice", both, np.array([0]), n, np.array([0]))
    second = b.op("Slice", both, n, np.array([END]), np.array([0]))
    return [b.op("Exp", first), b.op("Abs", second)]


FIRES: dict[str, tuple[Build, list[int] | None]] = {
    "all": (slices((0, 2), (2, 5), (5, END)), [2, 3, 3]),
    "in any order": (slices((5, 8), (0, 2), (2, 5), axis=-1), [2, 3, 3]),
    "from the end": (slices((-8, -3), (-3, 100)), [5, 3]),
    "open sizes beside": (slices((0, 4), (4, 8), shape=("n", 8, "m")), [4, 4]),
    "a rest": (slices((0, 2), (2, 5)), [2, 3, 3]),
    "a gap": (slices((0, 3), (5, 8)), [3, 2, 3]),
    "overlapping ones stay": (slices((0, 4), (2, 6), (4, 8)), [4, 4]),
    "steps stay": (slices((0, 4), (0, END, 2), (4, 8)), [4, 4]),
    "empty ones stay": (slices((0, 4), (4, 4), (4, 8)), [4, 4]),
    "halves": (halves, None),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRES)
def test_fires(case: str) -> None:
    build, sizes = FIRES[case]
    graph = built(build)
    ctx = PassContext.for_graph(graph)
    new = SPLIT_SLICES.apply(graph, ctx)
    verify_graph(new)
    assert [f.what for f in ctx.log.fired] == ["split_slices"]
    (split,) = (n for n in new.nodes if n.op == "Split")
    assert len(new.nodes) < len(graph.nodes)
    if sizes is None:
        assert split.attr("num_outputs") == 2
    else:
        assert new.constants[split.inputs[1]].array.tolist() == sizes
    text = print_graph(new)
    assert print_graph(parse_graph(text, constants_of(new))) == text
    assert_same_numbers(graph, new, 0.0, (0, 1, 7))


def thirds(b: GraphBuilder) -> list[str]:
    """A third and the rest."""
    x = b.input("x", "float32", ("n", 3))
    three = b.op("Concat", x, x, x, axis=0)
    n = b.op("Shape", x, start=0, end=1)
    return [b.op("Exp", b.op("Slice", three, np.array([0]), n)), b.op("Abs", b.op("Slice", three, n, np.array([END])))]


def at_run_time(b: GraphBuilder) -> list[str]:
    x, z = b.input("x", "float32", (8,)), b.input("z", "int64", (1,))
    return [b.op("Neg", b.op("Slice", x, np.array([0]), z)), b.op("Neg", b.op("Slice", x, z, np.array([END])))]


def corners(b: GraphBuilder) -> list[str]:
    x = b.input("x", "float32", (4, 4))
    return [b.op("Slice", x, np.array([s, 0]), np.array([s + 2, 2])) for s in (0, 2)]


REFUSED: dict[str, tuple[Build, str]] = {
    "overlapping": (slices((0, 5), (3, 8)), "the slices overlap"),
    "little of much": (slices((0, 1), (1, 2)), "more would be copied for nobody than is read"),
    "a gap of an open size": (slices((0, 2), (4, END), shape=("n", 8), axis=0), ""),
    "thirds": (thirds, "n*3 is not split into equal parts"),
    "of any size": (slices((0, 2), (2, END), shape=("n",), axis=0), ""),
    "at run time": (at_run_time, ""),
    "one": (slices((0, 2)), ""),
    "two axes": (corners, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, reason = REFUSED[case]
    graph = built(build)
    ctx = PassContext.for_graph(graph)
    assert SPLIT_SLICES.apply(graph, ctx) is graph
    assert reason in reasons(ctx) if reason else not ctx.log.refused


@pytest.mark.parametrize("opset", [10, 13, 18])
def test_files(opset: int) -> None:
    """In each form that Split has had."""
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}]> agraph (float[N,6] x) => (float[N,2] y, float[N,4] z)'
        " <int64[1] a = {0}, int64[1] b = {2}, int64[1] c = {6}, int64[1] axis = {1}>"
        " { y = Slice(x, a, b, axis) z = Slice(x, b, c, axis) }"
    )
    small = tilewright.simplify(onnx.parser.parse_model(text))
    onnx.checker.check_model(small, full_check=True)
    assert [n.op_type for n in small.graph.node] == ["Split"]
    assert [o.name for o in small.graph.output] == ["y", "z"]


def test_a_build_reads_slices_where_they_lie() -> None:
    graph = tilewright.compile(built(slices((0, 4), (4, 8))), stop_after="passes", progress=False)
    assert "Split" not in ops(graph)
