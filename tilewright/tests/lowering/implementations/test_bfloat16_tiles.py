"""Products with weights of few bits in matrix tiles of bfloat16: rows in parts, groups with scales, few rows, many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import with_implementations
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.schedule.decisions import RandomDecider
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.tensor_ir.analysis.scopes import find_buffer
from tilewright.tensor_ir.interpreter import interpret as run_func
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles
from tilewright.tests.graph_ir.rewriting import built
from tilewright.tests.lowering import lowered
from tilewright.tests.lowering.implementations.test_tiles import RAPIDS, rapids
from tilewright.tests.lowering.implementations.test_weight_only import (
    CASES,
    TYPES,
    dequantized,
    feed_of,
    integers,
    node_of,
    product,
    require_results,
)

__all__ = ["tiles"]

WAYS = ["bfloat16_tiles", "bfloat16_tiles_by_rows"]
OTHERS = ("odd blocks", "one scale a row", "vector")


def passed(graph: Graph, target: Target) -> Graph:
    done = tilewright.compile(graph, target=target, stop_after="passes", progress=False)
    assert isinstance(done, Graph)
    return done


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", [c for c in CASES if c not in OTHERS])
@pytest.mark.parametrize("way", WAYS)
def test_results(tiles: State, way: str, case: str, dtype: str) -> None:
    graph, target = product(dtype, **CASES[case]), with_tiles().with_threads(2)
    model = tilewright.compile(graph, target=target, implementations={node_of(graph): way}, progress=False)
    require_results(graph, model, CASES[case].get("rows", ("n",)), (1, 16, 40))
    tiles.require_clean()


def test_a_long_block_is_several_groups(tiles: State) -> None:
    """A panel of 1,024 steps would be none that a thread has for itself."""
    graph, target = product("uint8", rows=(16,), block=0, axis=1, k=1024, n=32), with_tiles().with_threads(2)
    pinned = {node_of(graph): "bfloat16_tiles"}
    done = tilewright.compile(graph, target=target, implementations=pinned, stop_after="lower", progress=False)
    assert isinstance(done, LoweredModel)
    (func,) = done.funcs.values()
    assert find_buffer(func, "panels").shape[1:3] == (2, 16)
    feed = {"x": np.random.default_rng(3).standard_normal((16, 1024)).astype(np.float32)}
    (want,) = interpret(graph, feed).values()
    (got,) = tilewright.compile(graph, target=target, implementations=pinned, progress=False).run(None, feed)
    assert isinstance(want, np.ndarray)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    ("case", "message"), [("odd blocks", "not whole words"), ("vector", "1 rows, expected at least")]
)
def test_what_has_no_place_in_tiles(case: str, message: str) -> None:
    graph = product("uint4", **CASES[case])
    with pytest.raises(InputError, match=message):
        tilewright.compile(
            graph, target=parse_target(RAPIDS), implementations={node_of(graph): "bfloat16_tiles"}, progress=False
        )


@pytest.mark.parametrize("implementation", [*WAYS, "fixed_point", "packed_by_rows", "dequantized_panels"])
def test_rows_of_bfloat16(tiles: State, implementation: str) -> None:
    """By any implementation the same products of rounded rows, in sums of float32."""
    graph, target = product("uint4"), with_tiles().with_threads(2)
    options: dict[str, Any] = {"target": target, "precision": {node_of(graph): "bf16"}, "progress": False}
    done = tilewright.compile(graph, stop_after="passes", **options)
    (node,) = (n for n in done.nodes if n.op == "MatMulDequantized")
    assert done.values[node.inputs[0]].dtype == dtypes.bfloat16
    pinned = with_implementations(done, {node.name: implementation})
    for n in (1, 20):
        (got,) = tilewright.compile(pinned, target=target, progress=False).run(None, feed_of((n,)))
        (want,) = interpret(done, feed_of((n,))).values()
        assert isinstance(want, np.ndarray)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
        (exact,) = interpret(graph, feed_of((n,))).values()
        assert 1e-5 < np.abs(got - exact).max() / np.abs(exact).max() < 1e-2


def lowered_func(graph: Graph, target: Target, way: str, precision: str = "fp32") -> Func:
    """The product alone, in a precision and by an implementation."""
    node = node_of(graph)
    options: dict[str, Any] = {"target": target, "precision": {node: precision}, "progress": False}
    done = tilewright.compile(graph, stop_after="passes", **options)
    lowered_model = tilewright.compile(
        with_implementations(done, {node: way}), target=target, stop_after="lower", progress=False
    )
    assert isinstance(lowered_model, LoweredModel)
    return next(f for f in lowered_model.funcs.values() if "matmul" in f.name)


@pytest.mark.parametrize(("way", "case"), [(WAYS[0], "blocks"), (WAYS[0], "columns"), (WAYS[1], "turned")])
def test_the_formulas(monkeypatch: pytest.MonkeyPatch, way: str, case: str) -> None:
    target = parse_target(RAPIDS)
    monkeypatch.setattr(lowered, "TARGET", target)
    graph = passed(product("uint8", **CASES[case]), target)
    rows = tuple(17 if d == "n" else d for d in CASES[case].get("rows", ("n",)))
    lowered.require_twin(with_implementations(graph, {node_of(graph): way}), feed_of(rows), {"n": 17}, 1e-4)


@pytest.mark.parametrize(
    ("way", "rows", "precision", "seed"),
    [
        ("bfloat16_tiles", 33, "bf16", 0), ("bfloat16_tiles", 33, "bf16", 1),
        ("bfloat16_tiles", "n", "bf16", 2), ("bfloat16_tiles_by_rows", "n", "bf16", 4),
    ],
)  # fmt: skip
def test_any_decisions(way: str, rows: Dim, precision: str, seed: int) -> None:
    """A schedule of the search space computes what the function does, by the interpreter."""
    target = parse_target(RAPIDS)
    func = lowered_func(product("int4", rows=(rows,), block=64, zero=seed % 2 == 0), target, way, precision)
    s = schedule_by_rule(func, target, RandomDecider(np.random.default_rng(seed)))
    verify(s.func)
    assert "opaque" in str(s)
    rng = np.random.default_rng(seed)
    dims = dict.fromkeys(func.dims, 33)
    args = []
    for b in func.params[: -func.outputs]:
        shape = [d.evaluate(dims) for d in b.shape]
        low, high = (-9, 10) if b.dtype.is_float else (-(1 << 31), 1 << 31)
        args.append(rng.integers(low, high, shape).astype(b.dtype.numpy))
    (want,), (got,) = (run_func(f, args, dims) for f in (func, s.func))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


def scheduled(rows: Dim, k: int, n: int) -> str:
    """The default schedule of a product with blocks of 32."""

    def build(b: GraphBuilder) -> str:
        w = dequantized(b, np.zeros((k, n), TYPES["uint4"]), 32, "uint4", False, False)
        return b.op("MatMul", b.input("x", "float32", (rows, k)), w)

    on = rapids()
    func = lowered_func(built(build), on, "bfloat16_tiles")
    trace, rules = explained_default(func, on)
    assert "grouped_tiles" in rules.values()
    return str(trace.apply(func))


def test_a_panel_is_made_once_for_the_row_tiles_that_stay_in_a_cache() -> None:
    assert "panels = local(int32[1, 28, 1, 16, 32])" in scheduled(256, 896, 896)  # one for all of its groups
    assert "panels = local(int32[1, 1, 1, 16, 32])" in scheduled(256, 4864, 896)  # one for each group and row tile
    assert "panels = local(int32[1, 28, 1, 16, 32])" in scheduled("n", 896, 896)
    assert "panels = local(int32[1, 1, 1, 16, 32])" in scheduled("n", 4864, 896)
    assert "panels = local(int32[1, 1, 1, 16, 32])" in scheduled(32, 896, 896)


def chosen(rows: Dim, cpu: str, k: int = 896, n: int = 896) -> str:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (rows, k))
        return b.op("MatMul", x, dequantized(b, integers("uint4", (k, n)), 32, "uint4", True, False))

    graph = passed(built(build), parse_target(cpu))
    (node,) = (n for n in graph.nodes if n.op == "MatMulDequantized")
    return str(node.attr("implementation"))


def test_they_are_chosen_where_they_pay() -> None:
    assert chosen(256, RAPIDS) == "bfloat16_tiles"
    assert chosen(32, RAPIDS) == "bfloat16_tiles"
    assert chosen(1, RAPIDS) == chosen(2, RAPIDS) == "fixed_point"
    assert chosen("n", RAPIDS) == "bfloat16_tiles_by_rows"
    assert chosen("n", f"{RAPIDS} -mattr=-amx-bf16") == "fixed_point_by_rows"


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", TYPES)
def test_three_parts_are_as_exact_as_float32(tiles: State, dtype: str, size: float) -> None:
    k, n, rows = 128, 130, 40
    q, scale = integers(dtype, (k, n)), np.random.default_rng(1).uniform(0.01, 0.02, (k // 32, n)).astype(np.float32)
    zeros = integers(dtype, (k // 32, n), 2)
    b = GraphBuilder("g")
    w = b.op("DequantizeLinear", b.constant(q, "w"), scale, zeros, axis=0, block_size=32)
    graph = b.build(b.op("MatMul", b.input("x", "float32", (rows, k)), w))
    pinned: dict[str, Any] = {"implementations": {node_of(graph): "bfloat16_tiles"}}
    model = tilewright.compile(graph, target=with_tiles().with_threads(1), progress=False, **pinned)
    wide = (q.astype(np.float64) - zeros.astype(np.float64).repeat(32, 0)) * scale.astype(np.float64).repeat(32, 0)
    x = np.random.default_rng(4).standard_normal((rows, k)).astype(np.float32) * np.float32(size)
    x[1] = np.abs(x[1])
    x[2, ::32] *= 1000
    x[3] = 0
    (got,) = model.run(None, {"x": x})
    error = np.abs(got - x.astype(np.float64) @ wide)
    assert (error <= 4e-7 * (np.abs(x).astype(np.float64) @ np.abs(wide))).all()
    x[5, 40], x[6, 3] = np.inf, np.nan
    (got,) = model.run(None, {"x": x})
    assert np.isnan(got[5:7]).all()
    assert np.isfinite(np.delete(got, [5, 6], 0)).all()
