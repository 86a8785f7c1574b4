"""Products of narrow floats read wide operands: which do, what else reads those, and that no result changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import PassReport, run_passes
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.lowering.precision.widen_operands import PASS, widen_operands

PLAIN = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"
PAIRS = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"


def weight(*shape: int) -> np.ndarray:
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return (values / np.sqrt(np.prod(shape[1:]))).astype(np.float16)


def chain(dtype: str = "float16") -> Graph:
    """A product, what is added to its result, and a product of that."""
    g, kind = GraphBuilder("chain"), dtypes.from_name(dtype).numpy
    x = g.op("MatMul", g.input("x", dtype, ("n", 5)), weight(5, 7).astype(kind))
    y = g.op("MatMul", g.op("Relu", x), weight(7, 6).astype(kind))
    return g.build(g.op("Add", y, weight(6).astype(kind)))


def residual() -> Graph:
    g = GraphBuilder("residual")
    x = g.op("Conv", g.input("x", "float16", ("n", 3, 5, 5)), weight(4, 3, 3, 3), weight(4), pads=(1, 1, 1, 1))
    y = g.op("Conv", g.op("Relu", x), weight(4, 4, 1, 1))
    return g.build(g.op("Add", y, g.op("Relu", x)), g.op("Softmax", x))


def moved() -> Graph:
    """What two products read is joined, turned and reshaped before."""
    g = GraphBuilder("moved")
    x = g.input("x", "float16", ("n", 6))
    a, b = g.op("Exp", x), g.op("Neg", x)
    joined = g.op("Transpose", g.op("Concat", a, b, axis=1), perm=(1, 0))
    y = g.op("MatMul", weight(4, 12), joined)
    return g.build(y, g.op("MatMul", g.op("Reshape", a, np.array([-1, 2])), weight(2, 3)))


def attention() -> Graph:
    g = GraphBuilder("attention")
    x = g.op("Relu", g.input("x", "float16", (2, "s", 4)))
    q, k, v = (g.op("MatMul", x, weight(4, 4)) for _ in range(3))
    return g.build(g.op("FusedAttention", q, k, v, scale=0.5))


def widened(graph: Graph, target: str = PLAIN) -> tuple[Graph, PassReport]:
    new, report = run_passes(graph, passes=(widen_operands(parse_target(target)),))
    verify_graph(new)
    return new, report


def feed_of(graph: Graph) -> dict[str, np.ndarray]:
    (x,) = graph.inputs
    value = graph.values[x]
    shape = [d.evaluate({"n": 3, "s": 5}) for d in value.shape]
    return {x: np.random.default_rng(0).standard_normal(shape).astype(value.dtype.numpy)}


def test_text() -> None:
    graph, report = widened(chain())
    assert "\n".join(line for line in print_graph(graph).splitlines() if " const " not in line) == GOLDEN
    assert report.fired(PASS) == 2


GOLDEN = """\
graph chain (x: float16[n, 5]) -> (Add_3) {
  x.wide: float32[n, 5] = Cast(x) {to: @float32} x.wide.node
  MatMul_0.wide: float32[n, 7] = MatMul(x.wide, c_0.wide) {} n_MatMul_0
  MatMul_0_1: float16[n, 7] = Cast(MatMul_0.wide) {to: @float16} MatMul_0.node
  Relu_1: float16[n, 7] = Relu(MatMul_0_1) {} n_Relu_1
  Relu_1.wide: float32[n, 7] = Cast(Relu_1) {to: @float32} Relu_1.wide.node
  MatMul_2.wide: float32[n, 6] = MatMul(Relu_1.wide, c_1.wide) {} n_MatMul_2
  MatMul_2_1: float16[n, 6] = Cast(MatMul_2.wide) {to: @float16} MatMul_2.node
  Add_3: float16[n, 6] = Add(MatMul_2_1, c_2) {} n_Add_3
}"""


@pytest.mark.parametrize("build", [chain, lambda: chain("bfloat16"), residual, moved, attention])
def test_results_are_the_same(build: Callable[[], Graph]) -> None:
    graph = build()
    new, report = widened(graph)
    assert report.fired(PASS) >= 2
    again = parse_graph(print_graph(new), constants_of(new))
    feed = feed_of(graph)
    before, after, compiled = interpret(graph, feed), interpret(again, feed), tilewright.compile(graph).run(feed)
    for want, got, third in zip(before.values(), after.values(), compiled.values(), strict=True):
        assert isinstance(want, np.ndarray)
        assert isinstance(got, np.ndarray)
        # the reference rounds a product once as well, but sums in another order
        steps = np.finfo(np.float16).eps if want.dtype == np.float16 else 2.0**-7
        for result in (got, third):
            assert result.dtype == want.dtype
            np.testing.assert_allclose(result.astype(float), want.astype(float), rtol=4 * steps, atol=4 * steps)


def test_products_read_float32_and_it_is_stored_once() -> None:
    lowered = tilewright.compile(residual(), target=PLAIN, stop_after="lower", progress=False)
    between = [p for f in lowered.funcs.values() for p in f.params if p.name.startswith("p") and p.name != "p0"]
    assert not [p for p in between if p.dtype == dtypes.float16]
    graph, _ = widened(residual())
    for n in graph.nodes:
        if n.op == "Conv":
            assert {graph.values[i].dtype for i in n.inputs} == {dtypes.float32}


def test_moves_stand_behind_the_cast() -> None:
    graph, _ = widened(moved())
    casts = [n for n in graph.nodes if n.op == "Cast" and graph.values[n.inputs[0]].dtype == dtypes.float16]
    assert sorted(graph_producer(graph, n.inputs[0]) for n in casts) == ["Exp", "Neg"]
    assert {graph.values[n.outputs[0]].dtype for n in graph.nodes if n.op in ("Concat", "Transpose", "Reshape")} == {
        dtypes.float32
    }


def graph_producer(graph: Graph, name: str) -> str:
    return next(n.op for n in graph.nodes if name in n.outputs)


def test_a_table_of_constants_stays_narrow() -> None:
    g = GraphBuilder("embedding")
    rows = g.op("Gather", weight(50, 8), g.input("x", "int64", (4,)))
    graph, report = widened(g.build(g.op("MatMul", rows, weight(8, 3))))
    assert report.fired(PASS) == 1
    assert {graph.values[n.outputs[0]].dtype for n in graph.nodes if n.op == "Gather"} == {dtypes.float16}


def test_an_output_that_a_product_reads_keeps_its_type() -> None:
    g = GraphBuilder("output")
    x = g.op("Relu", g.input("x", "float16", (3, 5)))
    graph, report = widened(g.build(x, g.op("MatMul", x, weight(5, 4))))
    assert report.fired(PASS) == 1
    assert {graph.values[o].dtype for o in graph.outputs} == {dtypes.float16}


def test_what_a_subgraph_reads_stays() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (bool c, float16[3,5] x, float16[5,4] w) => (float16[3,4] y, float16[3,5] z) {
        r = Relu(x)
        y = MatMul(r, w)
        z = If(c) <then_branch = t () => (float16[3,5] a) { a = Neg(r) },
                   else_branch = e () => (float16[3,5] b) { b = Abs(r) }>
    }"""  # fmt: skip # noqa: E501
    x, w = weight(3, 5), weight(5, 4)
    y, z = tilewright.compile(onnx.parser.parse_model(text)).run(None, {"c": np.array(True), "x": x, "w": w})
    r = np.maximum(x, 0)
    np.testing.assert_array_equal(z, -r)
    np.testing.assert_allclose(y, (r.astype(float) @ w.astype(float)), rtol=2e-3, atol=1e-4)


def test_a_cache_is_not_copied() -> None:
    g = GraphBuilder("cache")
    q, new = g.input("q", "float16", (1, 2, 1, 4)), g.input("new", "float16", (1, 2, 1, 4))
    keys = g.op("Concat", g.input("past", "float16", (1, 2, "t", 4)), new, axis=2)
    y = g.op("FusedAttention", q, keys, keys, scale=0.5)
    graph = g.build(y, keys)
    same, report = widened(graph)
    assert same is graph
    assert report.refusals(PASS) == (f"{keys} is kept from call to call, and would be copied in each",)


def test_a_cpu_that_multiplies_bfloat16_does_so() -> None:
    graph = chain("bfloat16")
    same, report = widened(graph, PAIRS)
    assert same is graph
    assert report.refusals(PASS) == ("the target multiplies bfloat16",) * 2
    assert widened(chain(), PAIRS)[1].fired(PASS) == 2


def test_a_model_of_float16_may_be_reduced_further() -> None:
    graph = tilewright.compile(chain(), target=PAIRS, precision="bf16", stop_after="passes", progress=False)
    assert "bfloat16" in print_graph(graph)
