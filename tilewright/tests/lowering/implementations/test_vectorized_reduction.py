"""Convolutions with few output channels: vectors along the input channels, added up at the end."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
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

Shape = tuple[int, ...]
CASES: dict[str, tuple[Shape, Shape, dict[str, object]]] = {  # input (NCHW), weight (OC, IC, taps), attributes
    "three_colours": ((1, 16, 5, 11), (3, 16, 4, 4), {}),
    "one_channel": ((1, 32, 3, 17), (1, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "nine_of_sixteen": ((1, 32, 4, 7), (9, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "batch_and_stride": ((2, 32, 5, 9), (2, 32, 3, 3), {"strides": (2, 2), "pads": (0, 1, 1, 0)}),
    "dilated": ((1, 32, 7, 8), (4, 32, 3, 3), {"dilations": (2, 2)}),
    "a_result_of_one": ((1, 32, 3, 3), (3, 32, 3, 3), {}),
    "one_dimension": ((1, 64, 9), (3, 64, 5), {"pads": (2, 2)}),
    "empty_batch": ((0, 32, 4, 4), (3, 32, 3, 3), {}),
}


def _graph(name: str, layout: str, symbolic: bool) -> tuple[Graph, dict[str, np.ndarray], dict[str, int]]:
    """Convolution, bias and Relu; a feed; and the sizes of its symbolic dimensions."""
    rng = np.random.default_rng(3)
    shape, weight, attrs = CASES[name]
    full = (shape[0], *shape[2:], shape[1]) if layout == "NHWC" else shape
    places = [d for d in range(len(full)) if d not in (0, len(full) - 1 if layout == "NHWC" else 1)]
    dims = {f"s{d}": full[d] for d in places} if symbolic else {}
    b = GraphBuilder("g")
    x = b.input("x", "float32", tuple(var(f"s{d}") if f"s{d}" in dims else n for d, n in enumerate(full)))
    w, bias = rng.standard_normal(weight).astype(np.float32), rng.standard_normal(weight[0]).astype(np.float32)
    y = b.op("Relu", b.op("Conv", x, w, bias, **attrs, **({"data_layout": "NHWC"} if layout == "NHWC" else {})))
    return b.build(y), {"x": rng.standard_normal(full).astype(np.float32)}, dims


def _lanes(low: LoweredGroup) -> list[str]:
    """Vector loops of the default schedule that run over the lanes of partial sums."""
    func = default_trace(low.func, TARGET).apply(low.func)
    return [x.var for x in walk(func.body) if isinstance(x, Loop) and x.kind == "vectorized" and "lane" in x.var]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", CASES)
def test_reference_interpreter_and_machine_code_agree(name: str, layout: str, symbolic: bool) -> None:
    graph, feed, dims = _graph(name, layout, symbolic)
    low = require_twin(graph, feed, dims, tolerance=1e-4)
    assert _lanes(low)
    args = [feed["x"], *(p.evaluate(graph.constants) for p in low.constants)]
    (want,) = interpret(low.func, args, dims)
    func = default_trace(low.func, detect_host().with_threads(2)).apply(low.func)
    verify(func)
    for threads in (1, 2):
        (got,) = build(func)(args, dims, threads=threads)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_sampled_decisions_change_nothing_but_the_order_of_sums() -> None:
    graph, feed, dims = _graph("nine_of_sixteen", "NHWC", symbolic=False)
    low = lower(graph)
    args = [feed["x"], *(p.evaluate(graph.constants) for p in low.constants)]
    (want,) = interpret(low.func, args, dims)
    for seed in range(4):
        s = schedule_by_rule(low.func, TARGET, RandomDecider(np.random.default_rng(seed)))
        verify(s.func)
        (got,) = interpret(s.func, args, dims)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "weight", "attrs"),
    [
        ((1, 32, 5, 5), (7, 32, 3, 3), {}),  # most lanes are useful
        ((1, 3, 9, 9), (3, 3, 7, 7), {}),  # input channels do not fill a vector
        ((1, 16, 5, 5), (3, 16, 1, 1), {}),  # too short a reduction
        ((1, 64, 5, 5), (4, 32, 3, 3), {"group": 2}),
    ],
    ids=["full_enough", "few_inputs", "short", "groups"],
)
def test_others_keep_vectors_of_output_channels(shape: Shape, weight: Shape, attrs: dict[str, object]) -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", shape)
    assert not _lanes(lower(b.build(b.op("Conv", x, np.ones(weight, np.float32), **attrs))))


def test_a_computed_weight_keeps_vectors_of_output_channels() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", "float32", (1, 32, 5, 5)), b.input("w", "float32", (3, 32, 3, 3))
    assert not _lanes(lower(b.build(b.op("Conv", x, w))))
