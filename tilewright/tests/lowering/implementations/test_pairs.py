"""Products of bfloat16 two steps at a time: sums in float32, for all geometries, on CPUs with and without the
instruction."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target, why_foreign
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.plan import KernelStep
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.runtime.profile import KernelTime, Peaks
from tilewright.schedule.default import explained_default
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.interpreter import interpret as run_func
from tilewright.tests.lowering.lowered import product_of_bfloat16, require_twin

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
HASWELL = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"
LAST: dict[str, Attribute] = {"data_layout": "NHWC"}
CASES: dict[str, tuple[str, tuple[Dim, ...], tuple[int, ...], dict[str, Attribute]]] = {
    "rows": ("MatMul", (5, 64), (64, 33), {}),
    "many rows": ("MatMul", (50, 16), (16, 48), {}),
    "odd depth": ("MatMul", (2, 3, 7), (7, 18), {}),
    "vector": ("MatMul", (34,), (34, 5), {}),
    "symbolic rows": ("MatMul", ("n", 16), (16, 40), {}),
    "image": ("Conv", (1, 9, 8, 6), (18, 6, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "odd channels": ("Conv", (2, 7, 7, 3), (5, 3, 5, 5), {**LAST, "pads": (2, 2, 2, 2), "strides": (2, 2)}),
    "one channel": ("Conv", (2, 9, 20, 1), (17, 1, 3, 3), LAST),
    "odd channels of a row": ("Conv", (2, 9, 5), (4, 5, 3), {**LAST, "pads": (1, 0)}),
    "odd channels far apart": ("Conv", (1, 9, 9, 3), (5, 3, 3, 3), {**LAST, "dilations": (2, 2)}),
    "odd channels of a symbolic image": ("Conv", ("n", "h", 6, 3), (7, 3, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "planes": ("Conv", (1, 4, 6, 7), (8, 4, 2, 3), {"dilations": (2, 1)}),
    "groups": ("Conv", (1, 6, 5, 12), (12, 4, 3, 3), {**LAST, "group": 3, "pads": (0, 1, 0, 1)}),
    "odd groups": ("Conv", (1, 6, 5, 9), (6, 3, 3, 3), {**LAST, "group": 3}),
    "transposed": ("ConvTranspose", (2, 5, 4, 6), (6, 5, 3, 2), {**LAST, "strides": (2, 1), "pads": (1, 0, 0, 1)}),
    "transposed planes": ("ConvTranspose", (1, 3, 5, 4), (3, 7, 3, 3), {"output_padding": (0, 1), "strides": (1, 2)}),
    "transposed groups": ("ConvTranspose", (1, 4, 5, 6), (6, 4, 2, 2), {**LAST, "strides": (2, 2), "group": 2}),
    "transposed symbolic image": ("ConvTranspose", ("n", "h", 4, 3), (3, 9, 4, 4), {**LAST, "strides": (2, 2)}),
    "symbolic image": ("Conv", ("n", "h", 7, 4), (6, 4, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
}
WAYS = {
    "MatMul": ["dot_product"],
    **{op: ["dot_product", "dot_product_rows"] for op in ("Conv", "ConvTranspose")},
}
DIMS = {"n": 2, "h": 6}


def graph_of(case: str) -> Graph:
    g, y = product_of_bfloat16(*CASES[case])
    return g.build(y)


def feed_of(graph: Graph) -> dict[str, np.ndarray]:
    shape = [d.evaluate(DIMS) for d in graph.values["x"].shape]
    return {"x": np.random.default_rng(2).standard_normal(shape).astype(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("case", CASES)
def test_the_interpreter_says_the_same(case: str) -> None:
    graph = graph_of(case)
    (found,) = alternatives_of(graph, parse_target(HASWELL))
    ways = [i.name for i in found.ways if i.name.startswith("dot_product") and i.refusal(found.facts) is None]
    assert ways == WAYS[graph.nodes[0].op]
    for way in ways:
        require_twin(with_implementations(graph, {graph.nodes[0].name: way}), feed_of(graph), DIMS, 1e-5)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("case", CASES)
def test_machine_code(case: str, target: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    graph = graph_of(case)
    feed = feed_of(graph)
    (want,) = interpret(graph, feed).values()
    for way in WAYS[graph.nodes[0].op] if target == "llvm" else ["dot_product"]:
        choice = {graph.nodes[0].name: way}
        model = tilewright.compile(graph, target=target, implementations=choice, progress=False)
        (got,) = model.run(None, feed)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["odd channels", "one channel", "odd channels of a row"])
@pytest.mark.parametrize("way", WAYS["Conv"])
def test_an_infinity_is_in_no_window_but_its_own(case: str, way: str) -> None:
    """Where an odd number of elements is read in pairs, the element behind them is not multiplied by 0."""
    graph = graph_of(case)
    feed = feed_of(graph)
    places = np.random.default_rng(3).permutation(feed["x"].size)[:3]
    feed["x"].ravel()[places] = [np.inf, -np.inf, np.nan]
    (want,) = interpret(graph, feed).values()
    assert 0 < np.count_nonzero(~np.isfinite(want)) < want.size
    model = tilewright.compile(graph, implementations={graph.nodes[0].name: way}, progress=False)
    (got,) = model.run(None, feed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("shape", [(1, 9, 8, 6), ("n", "h", 7, 5)])
def test_winograd(shape: tuple[Dim, ...], strides: tuple[int, int]) -> None:
    """What is multiplied is rounded once more: interpreter and machine code agree, the definition is close."""
    g = GraphBuilder("g")
    w = (np.random.default_rng(1).standard_normal((18, shape[-1], 3, 3)) / 8).astype(ml_dtypes.bfloat16)
    attrs = {**LAST, "pads": (1, 1, 1, 1), "strides": strides, "output_dtype": dtypes.float32}
    graph = g.build(g.op("Conv", g.input("x", "bfloat16", shape), g.constant(w, "w"), **attrs))
    name = "winograd2_pairs" if strides == (1, 1) else "winograd2_stride2_pairs"
    feed = feed_of(graph)
    graph = with_implementations(graph, {graph.nodes[0].name: name})
    low = require_twin(graph, feed, DIMS, 5e-2)
    assert any(b.dtype == dtypes.bfloat16 for b in buffers(low.func))
    (got,) = tilewright.compile(graph, progress=False).run(None, feed)
    args = [feed[i] for i in low.inputs] + [p.evaluate(graph.constants) for p in low.constants]
    (twin,) = run_func(low.func, args, {d: DIMS[d] for d in low.func.dims})
    np.testing.assert_allclose(got, twin, rtol=1e-4, atol=1e-2)


def test_what_is_not_finite_stays_so() -> None:
    graph = graph_of("rows")
    x = feed_of(graph)["x"]
    x[0, 3], x[1, 4], x[2, 5] = np.inf, -np.inf, np.nan
    model = tilewright.compile(graph, implementations={graph.nodes[0].name: "dot_product"}, progress=False)
    (got,), (want,) = model.run(None, {"x": x}), interpret(graph, {"x": x}).values()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[:2], want[:2])
    np.testing.assert_allclose(got[3:], want[3:], rtol=1e-5, atol=1e-5)


def test_the_inner_loop_is_made_of_the_instruction() -> None:
    target = parse_target(AVX512)
    g = GraphBuilder("g")
    w = g.constant(np.ones((128, 64), ml_dtypes.bfloat16), "w")
    graph = g.build(g.op("MatMul", g.input("x", "bfloat16", (48, 128)), w, output_dtype=dtypes.float32))
    lowered = tilewright.compile(graph, target=target, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    trace, rules = explained_default(func, target)
    assert "register_tiles" in rules.values()
    text = assembly_text(emit_kernel(prepare(trace.apply(func), target), target, "kernel"), target)
    assert sum("vdpbf16ps" in x and "%zmm" in x for x in text.splitlines()) >= target.tile_rows(2)


def test_a_kernel_says_what_it_sums_up() -> None:
    lowered = tilewright.compile(graph_of("many rows"), target=AVX512, stop_after="lower", progress=False)
    (step,) = (s for s in lowered.plan.steps if isinstance(s, KernelStep))
    assert step.product == "dot2"
    assert step.flops is not None
    assert step.flops.evaluate({}) == 2 * 50 * 16 * 48  # of the product; what puts pairs together is no arithmetic
    peaks = Peaks(1e11, 1e10, {"dot2": 2e11})
    times = [KernelTime("k", (), 1.0, 10**12, 8, False, product).limit_seconds(peaks) for product in ("", "dot2")]
    assert times == [10.0, 5.0]


def test_it_is_chosen_where_the_cpu_has_the_instruction() -> None:
    for target, wanted in ((AVX512, "dot_product"), (HASWELL, "packed_gemm")):
        (found,) = alternatives_of(graph_of("many rows"), parse_target(target))
        assert found.standard().name == wanted
