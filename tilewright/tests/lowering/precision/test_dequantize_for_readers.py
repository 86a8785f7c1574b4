"""A quantized value of several readers is stored as it is, and each of them dequantizes it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import run_passes
from tilewright.lowering.precision.dequantize_for_readers import PASS


def gated(last: str = "Mul", kept: bool = False, axis: int | None = None) -> Graph:
    """A squeeze and excitation: the mean of a dequantized value, and the value times a gate made of it."""
    g = GraphBuilder("g")
    x = g.input("x", "float32", (1, 8, 12, 12))
    scale = np.float32(0.02) if axis is None else np.linspace(0.01, 0.03, 8, dtype=np.float32)
    zero = np.uint8(11) if axis is None else np.full(8, 11, np.uint8)
    attrs = {} if axis is None else {"axis": axis}
    q = g.op("QuantizeLinear", g.op("Sin", x), scale, zero, **attrs)
    d = g.op("DequantizeLinear", q, scale, zero, **attrs)
    gate = g.op("Sigmoid", g.op("ReduceMean", d, np.array([2, 3])))
    weight = np.random.default_rng(1).standard_normal((4, 8, 1, 1)).astype(np.float32)
    out = g.op(last, d, gate) if last == "Mul" else g.op(last, d, weight)
    return g.build(out, gate, *([d] if kept else []))


def passed(graph: Graph) -> tuple[int, str]:
    """How many values are dequantized then, and what the pass says."""
    new, report = run_passes(graph, passes=(PASS,))
    return sum(n.op == "DequantizeLinear" for n in new.nodes), report.explain()


@pytest.mark.parametrize("axis", [None, 1])
def test_each_reader_has_its_own(axis: int | None) -> None:
    count, report = passed(gated(axis=axis))
    assert count == 2
    assert "fired dequantize_for_readers" in report


@pytest.mark.parametrize(
    ("graph", "reason"),
    [(gated(kept=True), "is an output of the graph"), (gated("Conv"), "Conv does not dequantize what it reads")],
)
def test_what_is_stored_in_float32_anyway_is_dequantized_once(graph: Graph, reason: str) -> None:
    count, report = passed(graph)
    assert count == 1
    assert reason in report


@pytest.mark.parametrize("axis", [None, 1])
def test_bytes_are_stored_and_the_results_are_the_same(axis: int | None) -> None:
    graph = gated(axis=axis)
    model = tilewright.compile(graph, progress=False)
    stored = [s for s in model.plan.slots.values() if s.kind == "temp" and s.shape == graph.values["x"].shape]
    assert [str(s.dtype) for s in stored] == ["uint8"]
    feed = {"x": np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    got, want = model.run(feed), interpret(graph, feed)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6, atol=1e-6)
