"""Grouped convolutions: the panels of all groups in a row, narrow groups several to a vector."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.kernel import build
from tilewright.core.arith.expr import var
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.group import LoweredGroup
from tilewright.schedule.decisions import RandomDecider
from tilewright.schedule.default import default_trace, schedule_by_rule
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.lowering.lowered import TARGET, lower, require_twin

GROUPS: dict[str, tuple[int, int, int]] = {  # input channels, output channels, groups
    "whole_panels": (6, 32, 2),
    "several_panels": (4, 48, 2),
    "a_vector_and_a_half": (4, 24, 2),
    "a_column_more": (4, 34, 2),
    "less_than_a_vector": (9, 15, 3),
    "two_in_a_vector": (8, 16, 4),
    "four_in_a_vector": (8, 8, 4),
    "three_of_nine_in_a_vector": (18, 18, 9),
    "a_prime_number_of_narrow_groups": (10, 10, 5),
    "three_filters_a_channel": (4, 12, 4),
    "a_vector_and_a_half_a_channel": (2, 24, 2),
}


def _graph(
    name: str, layout: str, symbolic: bool = False, computed: bool = False
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolution, bias and Relu, and a feed."""
    rng = np.random.default_rng(7)
    ic, oc, group = GROUPS[name]
    sizes = (2, ic, 5, 7) if layout == "NCHW" else (2, 5, 7, ic)
    b = GraphBuilder("g")
    place = 3 if layout == "NCHW" else 2
    x = b.input("x", "float32", tuple(var("w") if symbolic and d == place else n for d, n in enumerate(sizes)))
    w = rng.standard_normal((oc, ic // group, 3, 2)).astype(np.float32)
    weight = b.input("k", "float32", w.shape) if computed else w
    bias = rng.standard_normal(oc).astype(np.float32)
    y = b.op("Conv", x, weight, bias, group=group, pads=(1, 0, 1, 1), strides=(2, 1), data_layout=layout)
    feed = {"x": rng.standard_normal(sizes).astype(np.float32)}
    return b.build(b.op("Relu", y)), (feed | {"k": w} if computed else feed)


def _vectors(low: LoweredGroup) -> list[str]:
    """Vector loops of the default schedule that run over the columns of a panel."""
    func = default_trace(low.func, TARGET).apply(low.func)
    return [x.var for x in walk(func.body) if isinstance(x, Loop) and x.kind == "vectorized" and "acc_ni" in x.var]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", GROUPS)
def test_reference_interpreter_and_machine_code_agree(name: str, layout: str) -> None:
    graph, feed = _graph(name, layout)
    low = require_twin(graph, feed, tolerance=1e-4)
    assert _vectors(low)
    args = [feed["x"], *(p.evaluate(graph.constants) for p in low.constants)]
    (want,) = interpret(low.func, args, {})
    func = default_trace(low.func, TARGET.with_threads(2)).apply(low.func)
    verify(func)
    for threads in (1, 2):
        (got,) = build(func)(args, {}, threads=threads)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["whole_panels", "a_column_more", "two_in_a_vector"])
def test_a_symbolic_width(name: str) -> None:
    graph, feed = _graph(name, "NHWC", symbolic=True)
    low = require_twin(graph, feed, {"w": 7}, tolerance=1e-4)
    assert _vectors(low)


@pytest.mark.parametrize("name", ["whole_panels", "a_column_more", "two_in_a_vector"])
def test_a_computed_weight(name: str) -> None:
    graph, feed = _graph(name, "NHWC", computed=True)
    require_twin(graph, feed, tolerance=1e-4)


@pytest.mark.parametrize("name", ["several_panels", "a_column_more", "less_than_a_vector"])
def test_sampled_decisions_change_nothing_but_the_order_of_sums(name: str) -> None:
    graph, feed = _graph(name, "NHWC")
    low = lower(graph)
    args = [feed["x"], *(p.evaluate(graph.constants) for p in low.constants)]
    (want,) = interpret(low.func, args, {})
    for seed in range(4):
        s = schedule_by_rule(low.func, TARGET, RandomDecider(np.random.default_rng(seed)))
        verify(s.func)
        (got,) = interpret(s.func, args, {})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
