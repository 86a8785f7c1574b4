"""Products with weights of 2 to 8 bits that stay packed: blocks, zero points, one row and many, as they are stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.core.errors import TilewrightError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.plan import LoweredModel
from tilewright.schedule.default import default_trace, explained_default
from tilewright.schedule.primitives.sampling.sample_compute_location import SampleComputeLocation
from tilewright.tensor_ir.analysis.scopes import find_buffer
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
    dtype: str, rows: tuple[Dim, ...] = ("n",), block: int = 32, zero: bool = True, turned: bool = False, axis: int = 0
) -> Graph:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (*rows, 128))
        return b.op("MatMul", x, dequantized(b, integers(dtype, (128, 130)), block, dtype, zero, turned, axis))

    return built(build)


def feed_of(rows: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal((*rows, 128)).astype(np.float32)}


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


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("implementation", ["packed", "packed_by_rows", "dequantized_panels"])
def test_results(implementation: str, case: str, dtype: str) -> None:
    graph = product(dtype, **CASES[case])
    passed = tilewright.compile(graph, stop_after="passes", progress=False)
    assert isinstance(passed, Graph)
    (node,) = (n.name for n in passed.nodes if n.op == "MatMulDequantized")
    model = tilewright.compile(graph, implementations={node: implementation}, progress=False)
    for n in (1, 6, 14, 23):
        dims = tuple(d if isinstance(d, int) else n for d in CASES[case].get("rows", ("n",)))
        feed = feed_of(dims)
        (want,) = interpret(graph, feed).values()
        (got,) = model.run(None, feed)
        assert isinstance(want, np.ndarray)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 40])
def test_a_call_of_few_rows_makes_no_panels(rows: int) -> None:
    lowered = tilewright.compile(product("uint4"), stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    sizes = {b.name: b.shape for a in walk(func.body) if isinstance(a, Alloc) for b in (a.buffer,)}
    made, few = sizes["real"][1].evaluate({"n": rows}), sizes["few"][0].evaluate({"n": rows})
    assert (made, few) == ((128, 0) if rows >= 7 else (0, rows))


@pytest.mark.parametrize(("cpu", "ahead"), [("sapphirerapids", 1), ("znver4", 0)])
def test_a_row_fetches_the_next_panel_where_that_was_measured(cpu: str, ahead: int) -> None:
    target = dataclasses.replace(parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"), l2_bytes=1 << 14)
    lowered = tilewright.compile(product("uint4", rows=(1,)), target=target, stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    trace = str(explained_default(func, target)[0])
    assert f'"acc.ahead", candidates=(0, 1), decision={ahead})' in trace
    assert (", prefetch=" in str(explained_default(func, target)[0].apply(func))) == bool(ahead)


@pytest.mark.parametrize(
    ("rows", "want"), [(1, "packed"), ("n", "packed_by_rows"), (4, "packed"), (200, "dequantized_panels")]
)
def test_many_rows_are_multiplied_with_float32(rows: Dim, want: str) -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (rows, 128))
        return b.op("MatMul", x, dequantized(b, integers("uint4", (128, 512)), 32, "uint4", True, False))

    graph = tilewright.compile(built(build), stop_after="passes", progress=False)
    assert isinstance(graph, Graph)
    (node,) = (n for n in graph.nodes if n.op == "MatMulDequantized")
    assert node.attr("implementation") == want


@pytest.mark.parametrize(("l2_bytes", "where"), [(1 << 20, "o0_n_0"), (1 << 12, "root")])
def test_a_panel_is_made_where_it_is_used_if_a_cache_holds_it(l2_bytes: int, where: str) -> None:
    target = dataclasses.replace(detect_host(), threads=1, l2_bytes=l2_bytes)
    lowered = tilewright.compile(product("uint4", rows=(40,)), target=target, stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    trace = default_trace(func, target)
    (placed,) = (x for x in trace.steps if isinstance(x, SampleComputeLocation))
    assert (placed.block, placed.decision) == ("real", where)
    panels = find_buffer(trace.apply(func), "real").shape[0].value()
    assert panels == (1 if where != "root" else find_buffer(func, "real").shape[0].value())


def test_panels_that_fit_in_no_cache_are_not_made_for_rows_of_a_call() -> None:
    small = dataclasses.replace(detect_host(), l2_bytes=1 << 14, l3_bytes=0)
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
    ("dtype", "kept"), [("int8", "int8"), ("uint8", "int8"), ("int4", "int32"), ("uint4", "int32")]
)
def test_what_is_kept_is_as_small_as_what_is_stored(dtype: str, kept: str) -> None:
    lowered = tilewright.compile(product(dtype), stop_after="lower", progress=False)
    assert isinstance(lowered, LoweredModel)
    (func,) = lowered.funcs.values()
    steps = 128 if kept == "int8" else 128 // 8
    weight = next(p for p in func.params if p.dtype.name == kept and len(p.shape) == 3 and p.shape[1] == steps)
    assert int(weight.shape[0] * weight.shape[2]) >= 130


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
