"""Slices with bounds that only the run knows: places as symbols, sizes as sums of them, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.fused.shape_program import SHAPE_PROGRAM
from tilewright.graph_ir.passes.base import PassContext
from tilewright.lowering.data_dependent_slices import with_sums
from tilewright.lowering.group import lower_group
from tilewright.reference import evaluate
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import loads, walk
from tilewright.tests.lowering.lowered import TARGET, group_of

X = np.arange(7 * 5, dtype=np.float32).reshape(7, 5)


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize(("start", "end"), [(1, 5), (-4, 99), (3, 3), (6, 0)])
def test_numbers(start: int, end: int, step: int) -> None:
    b = GraphBuilder("g")
    x, first, last = b.input("x", "float32", ("h", 5)), b.input("s", "int64", (1,)), b.input("e", "int64", (1,))
    graph = b.build(b.op("Neg", b.op("Slice", x, first, last, np.array([0]), np.array([step]))))
    graph = SHAPE_PROGRAM.apply(graph, PassContext.for_graph(graph))
    group = group_of(graph)
    values = with_sums(group, graph.values)
    low = lower_group(graph.replace(values=dict(values)), group, TARGET)
    (at,) = {d.removeprefix("first_of_") for d in low.func.dims if d.startswith("first_of_")}
    assert ("h" in low.func.dims) == (step != 1), "the size is a sum where there is no gap"
    assert not any(x.buffer != "p0" and x.buffer.startswith("p") for s in walk(low.func.body) if hasattr(s, "value")
                   for x in loads(s.value)), "no bound is loaded"  # fmt: skip
    attrs: dict[str, object] = {}
    bounds = [np.array([start]), np.array([end]), np.array([0]), np.array([step])]
    size, place, rest = (int(v[0]) for v in evaluate("Slice", "sizes", attrs, [X, *bounds], 3))
    dims = {"h": 7, at: size, f"first_of_{at}": place, f"rest_of_{at}": rest}
    (got,) = interpret(low.func, [X], {d: dims[d] for d in low.func.dims})
    np.testing.assert_array_equal(got, -X[start:end:step])


def test_other_groups_stay_as_they_are() -> None:
    b = GraphBuilder("g")
    graph = b.build(b.op("Slice", b.input("x", "float32", ("h", 5)), np.array([1]), np.array([4]), np.array([1])))
    assert SHAPE_PROGRAM.apply(graph, PassContext.for_graph(graph)).nodes == graph.nodes
    assert with_sums(group_of(graph), graph.values) is graph.values
