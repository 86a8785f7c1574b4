"""Which products read bfloat16, what else reads their operands, and how far off the results are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tilewright.core import dtypes
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Node
from tilewright.lowering.precision.choose_precision import reduced_nodes, split_nodes
from tilewright.tests.lowering.implementations.test_weight_only import product

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
RNG = np.random.default_rng(3)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def residual() -> Graph:
    """Two 1x1 convolutions, the second added to what the first reads."""
    g = GraphBuilder("residual")
    x = g.op("Relu", g.op("Conv", g.input("x", "float32", (1, 32, 12, 12)), weight(32, 32, 1, 1)))
    y = g.op("Conv", x, weight(32, 32, 1, 1), weight(32))
    return g.build(g.op("Relu", g.op("Add", y, x)))


def pooled() -> Graph:
    g = GraphBuilder("pooled")
    x = g.op("Conv", g.input("x", "float32", (1, 16, 16, 16)), weight(32, 16, 1, 1))
    pool = g.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    return g.build(g.op("Conv", pool, weight(32, 32, 1, 1)), g.op("Conv", x, weight(16, 32, 1, 1)))


def layers() -> Graph:
    g = GraphBuilder("layers")
    x = g.op("LayerNormalization", g.input("x", "float32", ("n", 64)), np.ones(64, np.float32))
    y = g.op("MatMul", g.op("Relu", g.op("MatMul", x, weight(64, 96))), weight(96, 64))
    return g.build(g.op("Add", y, x))


def reduced(graph: Graph, target: str = AVX512) -> Graph:
    found: Graph = tilewright.compile(graph, target=target, precision="bf16", stop_after="passes", progress=False)
    return found


def products(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op in ("Conv", "MatMul")]


@pytest.mark.parametrize("build", [residual, pooled, layers])
def test_products_read_and_store_bfloat16(build: Callable[[], Graph]) -> None:
    graph = reduced(build())
    for n in products(graph):
        assert [graph.values[i].dtype for i in n.inputs[:2]] == [dtypes.bfloat16] * 2
        assert graph.values[n.outputs[0]].dtype == dtypes.float32
    lowered = tilewright.compile(build(), target=AVX512, precision="bf16", stop_after="lower", progress=False)
    stored = [p for f in lowered.funcs.values() for p in f.params if p.name.startswith(("p", "o"))]
    between = [p.dtype for p in stored if p.dtype != dtypes.float32]
    assert between
    assert set(between) == {dtypes.bfloat16}


def test_a_named_implementation_says_which_precision_a_product_has() -> None:
    first, second = (n.name for n in products(residual()))
    names = {first: "dot_product_rows", second: "implicit_gemm"}
    graph = tilewright.compile(
        residual(), target=AVX512, precision="bf16", implementations=names, stop_after="passes", progress=False
    )
    assert {n.name: n.attr("implementation") for n in products(graph)} == names
    assert reduced_nodes(graph) == (first,)


def test_what_is_named_to_stay_reads_float32_beside_a_product_of_bfloat16() -> None:
    g = GraphBuilder("beside")
    x = g.op("Relu", g.input("x", "float32", (1, 32, 28, 28)))
    graph = g.build(g.op("Conv", x, weight(64, 32, 1, 1)), g.op("Conv", x, weight(32, 32, 3, 3), pads=(1, 1, 1, 1)))
    first, second = (n.name for n in products(graph))
    done = tilewright.compile(
        graph, target=AVX512, precision="bf16", implementations={second: "winograd4"}, stop_after="passes",
        progress=False,
    )  # fmt: skip
    assert reduced_nodes(done) == (first,)
    (stays,) = (n for n in products(done) if n.name == second)
    assert {done.values[i].dtype for i in stays.inputs[:2]} == {dtypes.float32}


@pytest.mark.parametrize("build", [residual, pooled, layers])
def test_results_are_close(build: Callable[[], Graph]) -> None:
    graph = build()
    shape = [d.evaluate({"n": 9}) for d in graph.values["x"].shape]
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    results = tilewright.compile(graph, precision="bf16", progress=False).run(feed)
    for name, want in interpret(graph, feed).items():
        assert isinstance(want, np.ndarray)
        assert np.sqrt(np.mean((results[name] - want) ** 2) / np.mean(want**2)) < 1e-2


def test_one_rounded_copy_is_stored_for_all_readers() -> None:
    graph = reduced(residual())
    first = next(n for n in graph.nodes if n.op == "Relu")
    readers = [n for n in graph.nodes if first.outputs[0] in n.inputs]
    assert [n.op for n in readers] == ["Cast"]
    assert sorted(n.op for n in graph.nodes if readers[0].outputs[0] in n.inputs) == ["Cast", "Conv"]


def test_a_graph_output_stays_as_it_is() -> None:
    g = GraphBuilder("output")
    x = g.op("Relu", g.input("x", "float32", (8, 64)))
    graph = reduced(g.build(x, g.op("MatMul", x, weight(64, 64))))
    assert graph.values[graph.outputs[0]].dtype == dtypes.float32
    assert [graph.values[i].dtype for i in products(graph)[0].inputs] == [dtypes.bfloat16] * 2


def test_nothing_changes_where_it_is_not_faster() -> None:
    for cpu in ("x86_64-unknown-linux-gnu -mcpu=haswell", "aarch64-linux-gnu -mcpu=generic"):
        values = reduced(residual(), f"llvm -mtriple={cpu}").values.values()
        assert not any(v.dtype == dtypes.bfloat16 for v in values)
    g = GraphBuilder("depthwise")
    graph = g.build(g.op("Conv", g.input("x", "float32", (1, 32, 12, 12)), weight(32, 1, 3, 3), group=32))
    assert not any(v.dtype == dtypes.bfloat16 for v in reduced(graph).values.values())


def test_explain_names_the_nodes() -> None:
    model = tilewright.compile(residual(), target=AVX512, precision="bf16", progress=False)
    assert model.explain().count("bfloat16 at ") >= 2 or "bfloat16" in model.explain()


def test_precision_is_one_of_those_known() -> None:
    with pytest.raises(InputError, match="precision"):
        tilewright.compile(residual(), precision="int3", progress=False)  # type: ignore[call-overload]


def test_explain_says_why_a_node_stays() -> None:
    g = GraphBuilder("depthwise")
    x = g.op("Conv", g.input("x", "float32", (1, 32, 12, 12)), weight(32, 1, 3, 3), group=32)
    graph = g.build(g.op("Conv", x, weight(64, 32, 1, 1)))
    text = tilewright.compile(graph, target=AVX512, precision="bf16", progress=False).explain()
    first, second = (n.name for n in graph.nodes)
    assert f"fired bfloat16 x1: {second}" in text
    assert f"refused bfloat16 at {first}: " in text


def embedded(also_read: bool) -> Graph:
    """Rows of a table, and a product of what becomes of them (a product of the rows themselves would be one with the
    table, made by the build); the table perhaps read as a whole, too."""
    g = GraphBuilder("embedded")
    table = g.constant(weight(2048, 64), "table")
    x = g.op("Gather", table, g.input("ids", "int64", ("n",)))
    y = g.op("MatMul", g.op("Relu", x), weight(64, 96))
    outputs = [g.op("Add", table, g.input("row", "float32", (64,)))] if also_read else []
    return g.build(g.op("Relu", y), *outputs)


def test_tables_that_rows_are_taken_from_are_stored_in_bfloat16() -> None:
    exact = embedded(also_read=False)
    graph = reduced(exact)
    (gather,) = (n for n in graph.nodes if n.op == "Gather")
    assert graph.constants[gather.inputs[0]].dtype == dtypes.bfloat16.numpy
    feed = {"ids": np.array([3, 0, 2047, -1])}
    for a, b in zip(interpret(exact, feed).values(), interpret(graph, feed).values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05, atol=0.02)
        assert not np.array_equal(a, b)


def test_a_table_that_something_else_reads_stays() -> None:
    graph = reduced(embedded(also_read=True))
    (gather,) = (n for n in graph.nodes if n.op == "Gather")
    assert graph.constants[gather.inputs[0]].dtype == np.float32


def test_weights_of_few_bits_stay_and_rows_are_rounded_where_there_are_tiles() -> None:
    graph = product("uint4", rows=(64,), k=512, n=512)
    tiles = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids"
    (node,) = (n for n in reduced(graph, tiles).nodes if n.op == "MatMulDequantized")
    values = reduced(graph, tiles).values
    assert [values[i].dtype for i in node.inputs[:3]] == [dtypes.bfloat16, dtypes.uint4, dtypes.float32]
    assert values[node.outputs[0]].dtype == dtypes.float32
    assert reduced_nodes(reduced(graph, tiles)) == (node.name,)
    assert reduced_nodes(reduced(graph)) == ()  # as fast on float32, without tiles


RAPIDS = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids"


def passed(graph: Graph, precision: object, target: str = RAPIDS) -> Graph:
    found: Graph = tilewright.compile(  # type: ignore[call-overload]
        graph, target=target, precision=precision, stop_after="passes", progress=False
    )
    return found


def two_layers() -> Graph:
    """Both products read the same, and so does a sum."""
    g = GraphBuilder("two_layers")
    x = g.op("Relu", g.input("x", "float32", (128, 512)))
    y = g.op("MatMul", x, weight(512, 512))
    return g.build(g.op("Add", g.op("Mul", y, g.op("MatMul", x, weight(512, 512))), x))


def test_operands_of_two_numbers_each_keep_their_type() -> None:
    graph = passed(two_layers(), "bf16x3")
    assert split_nodes(graph) == tuple(n.name for n in products(graph))
    assert {n.attr("implementation") for n in products(graph)} == {"split_tiles"}
    assert {v.dtype for v in graph.values.values()} == {dtypes.float32}
    assert reduced_nodes(graph) == ()


def test_operands_are_two_numbers_only_where_that_is_faster() -> None:
    for target in (AVX512, "llvm -mtriple=aarch64-linux-gnu -mcpu=generic"):
        assert split_nodes(passed(two_layers(), "bf16x3", target)) == ()
    g = GraphBuilder("small")
    graph = g.build(g.op("MatMul", g.input("x", "float32", (8, 16)), weight(16, 16)))
    assert split_nodes(passed(graph, "bf16x3")) == ()
    text = tilewright.compile(graph, target=RAPIDS, precision="bf16x3", progress=False).explain()
    assert f"refused bf16x3 at {graph.nodes[0].name}: estimated to take" in text


def test_a_product_of_two_numbers_beside_one_of_bfloat16_reads_what_that_one_rounds() -> None:
    """It splits what it reads all the same: its weight is not rounded."""
    graph = two_layers()
    first, second = (n.name for n in products(graph))
    found = passed(graph, {first: "bf16", second: "bf16x3"})
    a, b = (next(n for n in found.nodes if n.name == name) for name in (first, second))
    assert [found.values[i].dtype for i in (*a.inputs, *b.inputs)] == [*[dtypes.bfloat16] * 2, *[dtypes.float32] * 2]
    assert (reduced_nodes(found), split_nodes(found)) == ((first,), (second,))


def test_a_node_that_cannot_be_of_two_numbers_is_an_error() -> None:
    graph = two_layers()
    (relu,) = (n.name for n in graph.nodes if n.op == "Relu")
    for node, target in ((relu, RAPIDS), (products(graph)[0].name, AVX512)):
        with pytest.raises(InputError, match=f"node '{node}'.* expected for bf16x3 a Conv"):
            passed(graph, {node: "bf16x3"}, target)
