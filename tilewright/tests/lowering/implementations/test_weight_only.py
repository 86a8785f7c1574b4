"""Products with weights of 2 to 8 bits that stay packed: blocks, zero points, one row and many, as they are stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core.arith.expr import product as product_of
from tilewright.core.errors import InputError, TilewrightError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.schedule.primitives.sampling.sample_compute_location import SampleComputeLocation
from tilewright.tensor_ir.analysis.scopes import find_buffer, loops_around
from tilewright.tensor_ir.ir import Alloc, walk
from tilewright.tests.graph_ir.rewriting import apply, built, ops
from tilewright.tests.lowering.lowered import require_twin

TYPES = {"int8": np.int8, "uint8": np.uint8, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}


def integers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[dtype]
    found: np.ndarray = np.random.default_rng(seed).integers(low, high, shape).astype(TYPES[dtype])
    return found


def dequantized(b: GraphBuilder, w: np.ndarray, block: int, dtype: str, zero: bool, turned: bool, axis: int = 0) -> str:
    """A dequantized matrix of ``w``; ``block`` 0: a scale for each index of ``axis``; ``turned``: stored transposed."""
    k, n = w.shape
    shape: tuple[int, ...] = (k // block, n) if block else (w.shape[axis],)
    scale = np.random.default_rng(1).uniform(0.01, 0.02, shape).astype(np.float32)
    zeros = integers(dtype, shape, 2) if zero else None
    if turned:
        w, scale, zeros = (x if x is None or x.ndim < 2 else np.ascontiguousarray(x.T) for x in (w, scale, zeros))
    attrs: dict[str, Any] = {"block_size": block} if block else {}
    x = b.op("DequantizeLinear", b.constant(w, "w"), scale, zeros, axis=1 - axis if turned else axis, **attrs)
    return b.op("Transpose", x, perm=(1, 0)) if turned else x


def product(
    dtype: str, rows: tuple[Dim, ...] = ("n",), block: int = 32, zero: bool = True, turned: bool = False,
    axis: int = 0, k: int = 128, n: int = 130,
) -> Graph:  # fmt: skip
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (*rows, k))
        return b.op("MatMul", x, dequantized(b, integers(dtype, (k, n)), block, dtype, zero, turned, axis))

    return built(build)


def feed_of(rows: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal((*rows, 128)).astype(np.float32)}


def node_of(graph: Graph) -> str:
    """The name of the only MatMulDequantized."""
    passed = tilewright.compile(graph, stop_after="passes", progress=False)
    (name,) = (n.name for n in passed.nodes if n.op == "MatMulDequantized")
    return name


WAYS = ["packed", "packed_by_rows", "dequantized_panels", "fixed_point", "fixed_point_by_rows"]
CASES: dict[str, dict[str, Any]] = {
    "blocks": {"block": 16},
    "no zero points": {"zero": False},
    "turned": {"turned": True, "block": 64},
    "columns": {"block": 0, "axis": 1},
    "one scale a row": {"block": 0, "axis": 0},
    "odd blocks": {"block": 1},
    "batches": {"rows": (2, "n")},
    "vector": {"rows": ()},
}


def require_results(
    graph: Graph, model: tilewright.CompiledModel, rows: tuple[Dim, ...], counts: tuple[int, ...]
) -> None:
    """For so many rows, what the definition gives."""
    for n in counts:
        feed = feed_of(tuple(d if isinstance(d, int) else n for d in rows))
        (want,) = interpret(graph, feed).values()
        (got,) = model.run(None, feed)
        assert isinstance(want, np.ndarray)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("implementation", WAYS)
def test_results(implementation: str, case: str, dtype: str) -> None:
    graph = product(dtype, **CASES[case])
    node = node_of(graph)
    if implementation.startswith("fixed_point") and case in ("odd blocks", "one scale a row"):
        with pytest.raises(InputError, match="blocks that are not whole words"):
            tilewright.compile(graph, implementations={node: implementation}, progress=False)
        return
    model = tilewright.compile(graph, implementations={node: implementation}, progress=False)
    require_results(graph, model, CASES[case].get("rows", ("n",)), (1, 6, 14, 23))


def cpu_named(name: str) -> Target:
    """A CPU with products of bytes (znver4), or without (znver3)."""
    return parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={name}")


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 18, 19, 40])
@pytest.mark.parametrize(("cpu", "least"), [("znver3", 7), ("znver4", 19)])
def test_a_call_of_few_rows_makes_no_panels(cpu: str, least: int, rows: int) -> None:
    lowered = tilewright.compile(product("uint4"), target=cpu_named(cpu), stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    sizes = {b.name: b.shape for a in walk(func.body) if isinstance(a, Alloc) for b in (a.buffer,)}
    made, few = sizes["real"][1].evaluate({"n": rows}), sizes["few"][0].evaluate({"n": rows})
    assert (made, few) == ((128, 0) if rows >= least else (0, rows))


@pytest.mark.parametrize(
    ("rows", "cpu", "want"),
    [
        (1, "znver3", "packed"), ("n", "znver3", "packed_by_rows"), (4, "znver3", "packed"),
        (1, "znver4", "fixed_point"), ("n", "znver4", "fixed_point_by_rows"), (4, "znver4", "fixed_point"),
        (200, "znver3", "dequantized_panels"), (200, "znver4", "dequantized_panels"),
    ],
)  # fmt: skip
def test_many_rows_are_multiplied_with_float32(rows: Dim, cpu: str, want: str) -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (rows, 128))
        return b.op("MatMul", x, dequantized(b, integers("uint4", (128, 512)), 32, "uint4", True, False))

    graph = tilewright.compile(built(build), target=cpu_named(cpu), stop_after="passes", progress=False)
    assert isinstance(graph, Graph)
    (node,) = (n for n in graph.nodes if n.op == "MatMulDequantized")
    assert node.attr("implementation") == want


@pytest.mark.parametrize(("l2_bytes", "where"), [(1 << 20, "o0_n_0"), (1 << 12, "root")])
def test_a_panel_is_made_where_it_is_used_if_a_cache_holds_it(l2_bytes: int, where: str) -> None:
    target = dataclasses.replace(cpu_named("znver3"), threads=1, l2_bytes=l2_bytes)
    graph = product("uint4", rows=(40,))
    pinned = {node_of(graph): "dequantized_panels"}
    lowered = tilewright.compile(graph, target=target, implementations=pinned, stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    trace = default_trace(func, target)
    (placed,) = (x for x in trace.steps if isinstance(x, SampleComputeLocation))
    assert (placed.block, placed.decision) == ("real", where)
    panels = find_buffer(trace.apply(func), "real").shape[0].value()
    assert panels == (1 if where != "root" else find_buffer(func, "real").shape[0].value())


def test_panels_that_fit_in_no_cache_are_not_made_for_rows_of_a_call() -> None:
    small = dataclasses.replace(cpu_named("znver3"), l2_bytes=1 << 14, l3_bytes=0)
    graph = tilewright.compile(product("uint4"), target=small, stop_after="passes", progress=False)
    assert [n.attr("implementation") for n in graph.nodes if n.op == "MatMulDequantized"] == ["packed"]


@pytest.mark.parametrize("dtype", ["int8", "uint4"])
def test_the_rule_and_the_interpreter(dtype: str) -> None:
    graph = product(dtype, rows=(3,), turned=True)
    new, ctx = apply(graph, "turned_weight", "packed_weight")
    assert {f.what for f in ctx.log.fired} == {"turned_weight", "packed_weight"}
    assert ops(new) == ["MatMulDequantized"]
    require_twin(new, feed_of((3,)), tolerance=1e-4)


@pytest.mark.parametrize(
    ("dtype", "cpu", "kept", "steps"),
    [
        ("int8", "znver3", "int8", 128), ("uint8", "znver3", "int8", 128), ("int4", "znver3", "int32", 16),
        ("uint4", "znver3", "int32", 16), ("int8", "znver4", "int32", 32), ("uint8", "znver4", "int32", 32),
        ("int4", "znver4", "int32", 16), ("uint4", "znver4", "int32", 16),
    ],
)  # fmt: skip
def test_what_is_kept_is_as_small_as_what_is_stored(dtype: str, cpu: str, kept: str, steps: int) -> None:
    lowered = tilewright.compile(product(dtype), target=cpu_named(cpu), stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    weight = next(p for p in func.params if p.dtype.name == kept and len(p.shape) == 3 and p.shape[1] == steps)
    assert int(weight.shape[0] * weight.shape[2]) >= 130


@pytest.mark.parametrize("rows", [1, 3, "n"])
@pytest.mark.parametrize("dtype", ["int8", "uint4"])
def test_rows_in_fixed_point_read_words_one_row_behind_the_other(dtype: str, rows: Dim) -> None:
    target = cpu_named("znver4")
    lowered = tilewright.compile(product(dtype, (rows,)), target=target, stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    after = default_trace(func, target).apply(func)
    sums = find_buffer(after, "whole")
    assert (sums.scope, str(product_of(sums.shape[:-1]))) == ("local", "3")
    around = [x.var for x in loops_around(after, "whole") if x.kind == "serial"]
    assert (around[-2][0], around[-1][0]) == ("g", "j"), "the words of a group, and inside of it those of a row"


def test_where_words_are_fetched_a_group_is_one_expression() -> None:
    target = cpu_named("sapphirerapids")
    graph = product("uint4", (1,))
    pinned = {node_of(graph): "fixed_point"}
    lowered = tilewright.compile(graph, target=target, implementations=pinned, stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    assert not any(isinstance(s, Alloc) and s.buffer.name == "whole" for s in walk(func.body))


def test_bytes_that_hold_four_bits_are_packed() -> None:
    def build(b: GraphBuilder) -> str:
        w = dequantized(b, integers("uint4", (128, 130)).astype(np.uint8), 32, "uint4", False, True)
        return b.op("MatMul", b.input("x", "float32", (4, 128)), w)

    lowered = tilewright.compile(built(build), stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    assert any(p.dtype.name == "int32" and p.shape[1] == 16 for p in func.params if len(p.shape) == 3)


def test_small_weights_and_uneven_blocks_are_dequantized_at_build_time() -> None:
    def build(b: GraphBuilder) -> str:
        scale = np.full((5, 130), 0.1, np.float32)
        w = b.op("DequantizeLinear", b.constant(integers("int8", (130, 130)), "w"), scale, axis=0, block_size=32)
        return b.op("MatMul", b.input("x", "float32", (4, 130)), w)

    graph = tilewright.compile(built(build), stop_after="passes", progress=False)
    assert ops(graph) == ["MatMul"]
    small = built(lambda b: b.op("MatMul", b.input("x", "float32", (4, 8)), dequantized(b, integers("int8", (8, 8)), 4, "int8", True, False)))  # fmt: skip  # noqa: E501
    assert ops(tilewright.compile(small, stop_after="passes", progress=False)) == ["MatMul"]


def test_it_cannot_be_computed_with_a_weight_of_the_run() -> None:
    b = GraphBuilder("g")
    w, s = b.input("w", "int8", (128, 130)), b.constant(np.ones((4, 130), np.float32), "s")
    graph = b.build(b.op("MatMulDequantized", b.input("x", "float32", (4, 128)), w, s))
    with pytest.raises(TilewrightError, match="not constant"):
        tilewright.compile(graph, progress=False)


def fixed_point_model(k: int = 128, n: int = 130, rows: int = 3, dtype: str = "uint4") -> tuple[Any, np.ndarray]:
    """A compiled product in fixed point, and the dequantized weight in float64."""
    q, scale = integers(dtype, (k, n)), np.random.default_rng(1).uniform(0.01, 0.02, (k // 32, n)).astype(np.float32)
    zeros = integers(dtype, (k // 32, n), 2)
    b = GraphBuilder("g")
    w = b.op("DequantizeLinear", b.constant(q, "w"), scale, zeros, axis=0, block_size=32)
    graph = b.build(b.op("MatMul", b.input("x", "float32", (rows, k)), w))
    model = tilewright.compile(graph, implementations={node_of(graph): "fixed_point"}, progress=False)
    wide = (q.astype(np.float64) - np.repeat(zeros.astype(np.float64), 32, 0)) * np.repeat(
        scale.astype(np.float64), 32, 0
    )
    return model, wide


@pytest.mark.parametrize("size", [1e-37, 1e-20, 1.0, 1e30])
@pytest.mark.parametrize("dtype", TYPES)
def test_fixed_point_is_as_exact_as_float32(dtype: str, size: float) -> None:
    model, wide = fixed_point_model(dtype=dtype)
    x = np.random.default_rng(4).standard_normal((3, 128)).astype(np.float32) * np.float32(size)
    x[1] = np.abs(x[1])
    x[2, ::32] *= 1000
    (got,) = model.run(None, {"x": x})
    error, weights = np.abs(got - x.astype(np.float64) @ wide), np.abs(wide)
    largest = np.abs(x).reshape(3, 4, 32).max(2).repeat(32, 1).astype(np.float64)
    assert (error <= 2.0**-22 * (largest @ weights) + 1e-36).all()
    assert (error[:2] <= 4e-7 * (np.abs(x[:2]).astype(np.float64) @ weights) + 1e-36).all()


def test_fixed_point_of_extreme_rows() -> None:
    model, wide = fixed_point_model()
    x = np.zeros((3, 128), np.float32)
    x[1] = np.float32(3.4e38) / 4096
    x[2, 40] = np.inf
    (got,) = model.run(None, {"x": x})
    assert (got[0] == 0).all()
    np.testing.assert_allclose(got[1], x[1].astype(np.float64) @ wide, rtol=1e-5)
    assert np.isnan(got[2]).all()
