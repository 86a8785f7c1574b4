"""Attention computed at a tile of queries: numbers on awkward sizes, where the scores live, and what is no chain."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret as interpret_graph
from tilewright.graph_ir.ir import Graph
from tilewright.schedule.default import default_trace
from tilewright.schedule.rules.gemm_chain import find_chain
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import loops_around
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, Func, walk
from tilewright.tests.graph_ir.fused.partitioned import groups_of
from tilewright.tests.lowering.lowered import TARGET, lower
from tilewright.tests.schedule.kernels import packed_matmul

Dim = int | str
SMALL = dataclasses.replace(TARGET, l2_bytes=1 << 19, threads=2)


def attention(
    b: Dim, s: Dim, t: Dim, d: int, dv: int, mask: tuple[Dim, ...] = (), causal: int = 0, heads: bool = False,
    zero: int = 0,
) -> Graph:  # fmt: skip
    """Two heads; with ``heads``, operands and result are [batch, position, head, element]."""
    x = GraphBuilder("attention")
    operands = []
    for name, n, width in (("q", s, d), ("k", t, d), ("v", t, dv)):
        if heads:
            operands.append(x.op("Transpose", x.input(name, "float32", (b, n, 2, width)), perm=(0, 2, 1, 3)))
        else:
            operands.append(x.input(name, "float32", (b, 2, n, width)))
    if mask:
        operands.append(x.input("mask", "float32", mask))
    out = x.op("FusedAttention", *operands, scale=0.3, causal=causal, nan_rows_to_zero=zero)
    return x.build(x.op("Transpose", out, perm=(0, 2, 1, 3)) if heads else out)


def scopes(func: Func) -> dict[str, str]:
    return {s.buffer.name: s.buffer.scope for s in walk(func.body) if isinstance(s, Alloc)}


CASES: list[tuple[Graph, dict[str, int]]] = [
    (attention(1, 12, 12, 8, 16), {}),
    (attention(1, 13, 37, 5, 9, heads=True), {}),
    (attention(2, 7, 17, 5, 3, (2, 1, 1, 17)), {}),
    (attention(1, 11, 11, 8, 8, (11, 11), causal=1), {}),
    (attention(1, 5, 19, 8, 8, causal=1), {}),
    (attention(1, 1, 1, 4, 4), {}),
    (attention(1, 4, 130, 4, 40), {}),
    (attention("b", "s", "t", 8, 8, ("b", 1, "s", "t"), heads=True), {"b": 2, "s": 7, "t": 19}),
    (attention("b", "s", "s", 8, 8, causal=1), {"b": 1, "s": 13}),
    (attention("b", "s", "t", 8, 8), {"b": 1, "s": 0, "t": 3}),
    (attention(1, "s", 16, 8, 8), {"s": 1}),
    *[(attention(1, 7, "t", 24, 64, (1, "t")), {"t": t}) for t in (1, 8, 33, 64, 97)],
    (attention("b", 1, "t", 9, 32), {"b": 2, "t": 50}),
    (attention(1, 13, 37, 5, 9, (13, 37), zero=1), {}),
    (attention("b", "s", "t", 8, 8, ("b", 1, "s", "t"), zero=1), {"b": 2, "s": 7, "t": 19}),
]


@pytest.mark.parametrize(("graph", "dims"), CASES, ids=[str(k) for k in range(len(CASES))])
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers(graph: Graph, dims: dict[str, int], threads: int) -> None:
    low = lower(graph)
    target = detect_host().with_threads(threads)
    after = default_trace(low.func, target).apply(low.func)
    rng = np.random.default_rng(1)
    feed = {
        i: rng.standard_normal([d.evaluate(dims) for d in graph.values[i].shape]).astype(np.float32)
        for i in graph.inputs
    }
    inputs = [feed[i] for i in low.inputs]
    want = np.asarray(interpret_graph(graph, feed)[graph.outputs[0]])
    (plain,) = interpret(low.func, inputs, dims)
    np.testing.assert_allclose(plain, want, rtol=2e-5, atol=2e-6)
    (got,) = build(after, target)(inputs, dims, threads)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("t", [17, 64])
def test_scores_stay_in_a_local_buffer(t: int) -> None:
    low = lower(attention(1, 20, t, 8, 8, heads=True))
    kept = scopes(default_trace(low.func, SMALL).apply(low.func))
    assert set(kept) >= {"masked", "weights", "scores", "mixed", "pack", "pack_1"}
    assert set(kept.values()) == {"local"}


def test_symbolic_sizes_have_local_buffers_and_no_tests_in_products() -> None:
    low = lower(attention("b", "s", "t", 8, 8, ("b", 1, "s", "t"), heads=True))
    after = default_trace(low.func, SMALL).apply(low.func)
    assert set(scopes(after)) >= {"masked", "weights", "scores", "mixed", "pack", "pack_1"}
    assert set(scopes(after).values()) == {"local"}
    for product in ("scores", "mixed"):
        assert all(x.extent.is_const for x in loops_around(after, product) if x.kind in ("unrolled", "vectorized"))
    for stage in ("score_max_rf", "weights", "weight_sum_rf"):
        assert all(x.extent.is_const for x in loops_around(after, stage) if x.kind in ("unrolled", "vectorized"))


def test_keys_and_values_are_packed_in_the_loop_over_heads() -> None:
    low = lower(attention(2, 20, 64, 8, 8, heads=True))
    after = default_trace(low.func, SMALL).apply(low.func)
    (heads,) = [x for x in loops_around(after, "pack") if x.kind == "parallel"]
    assert heads.extent == 4
    assert heads in loops_around(after, "pack_1")
    assert heads in loops_around(after, "mixed")
    assert any(x.kind == "opaque" for x in loops_around(after, "pack")), "keys are turned in squares"


@pytest.mark.parametrize(
    ("queries", "t", "packed"),
    [(20, 1000, {"pack", "pack_1"}), (20, 4000, {"pack", "pack_1"}), (6, 1000, set()), (6, 4000, {"pack"})],
)
def test_large_keys_and_values_are_packed_before(queries: int, t: int, packed: set[str]) -> None:
    """Values that one tile of six queries reads are not packed, and leave the room to the keys."""
    low = lower(attention(1, queries, t, 64, 64))
    after = default_trace(low.func, SMALL).apply(low.func)
    assert {n for n, scope in scopes(after).items() if scope == "global"} == packed
    build(after, detect_host())


def test_values_that_one_tile_reads_are_not_packed() -> None:
    low = lower(attention(1, 6, "t", 64, 64))
    after = default_trace(low.func, TARGET).apply(low.func)
    assert "pack_1" not in scopes(after)
    turned = [x for x in loops_around(after, "pack") if x.kind == "opaque"]
    assert turned, "keys are turned in squares, but for those behind the last whole panel"
    assert not any(x.kind == "opaque" for x in loops_around(after, "pack_t"))


def test_a_row_without_visible_keys_is_nan() -> None:
    graph = attention(1, 4, 20, 4, 4, (4, 20))
    low = lower(graph)
    mask = np.zeros((4, 20), np.float32)
    mask[1] = -np.inf
    q, k, v = (np.ones(s, np.float32) for s in ((1, 2, 4, 4), (1, 2, 20, 4), (1, 2, 20, 4)))
    feed = {"q": q, "k": k, "v": v, "mask": mask}
    (got,) = build(default_trace(low.func, detect_host()).apply(low.func))([feed[i] for i in low.inputs])
    assert np.isnan(got[:, :, 1]).all()
    np.testing.assert_allclose(got[:, :, [0, 2, 3]], 1, rtol=1e-6)


@pytest.mark.parametrize("t", [16, 20])
def test_rows_that_are_nan_weigh_nothing_if_so_wanted(t: int) -> None:
    graph = attention(1, 7, t, 4, 4, (7, t), zero=1)
    low = lower(graph)
    rng = np.random.default_rng(2)
    feed = {n: rng.standard_normal(s).astype(np.float32) for n, s in (
        ("q", (1, 2, 7, 4)), ("k", (1, 2, t, 4)), ("v", (1, 2, t, 4)), ("mask", (7, t)))}  # fmt: skip
    feed["mask"][1] = -np.inf
    feed["mask"][2, 3] = np.nan
    feed["mask"][3, 5] = np.inf
    feed["mask"][5, :3] = -np.inf
    after = default_trace(low.func, detect_host()).apply(low.func)
    assert set(scopes(after).values()) == {"local"}
    (got,) = build(after)([feed[i] for i in low.inputs])
    with np.errstate(invalid="ignore"):
        want = np.asarray(interpret_graph(graph, feed)[graph.outputs[0]])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    assert (got[:, :, 1:4] == 0).all()
    feed["v"][0, 0, 0, 0] = np.inf  # 0 times infinity, as written
    (got,) = build(after)([feed[i] for i in low.inputs])
    assert np.isnan(got[0, 0, 1, 0])
    assert (got[0, 0, 1, 1:] == 0).all()


def test_heads_are_read_where_they_are() -> None:
    (group,) = groups_of(attention(1, 20, 20, 8, 8, heads=True))
    assert [n.op for n in group.nodes].count("Transpose") == 4


def test_what_is_no_chain() -> None:
    matmul = Schedule(packed_matmul(8, 32, 8))
    assert find_chain(matmul, "C") is None
    a, b = placeholder("A", (8, 8), dtypes.float32), placeholder("B", (8, 8), dtypes.float32)
    k, r = reduce_axis(8, "k"), reduce_axis(8, "r")
    first = compute("first", (8, 8), lambda i, j: sum_over(a[i, k] * b[k, j], k))
    second = compute("second", (8, 8), lambda i, j: sum_over(first[i, r] * b[r, j], r))
    out = compute("out", (8, 8), lambda i, j: second[i, j] + 1.0)
    products = Schedule(build_func("products", [a, b], [out], [first, second]))
    assert find_chain(products, "out") is None  # nothing is reduced along the rows between them
    assert find_chain(Schedule(lower(attention(1, 8, 8, 8, 8)).func), "o0") is not None
