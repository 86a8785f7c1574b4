"""Reductions over long outer axes: two sweeps, and norms that use them once a channel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.analysis.scopes import blocks_in, loops_around
from tilewright.tests.lowering.lowered import lower, require_twin

SHAPES = [(1, 16, 16, 3), (2, 17, 19, 5), (1, 16, 1, 4), (1, 31, 16, 1), (1, 16, 17, 9)]


def reduction(op: str, shape: tuple, keep: int) -> Graph:
    b = GraphBuilder()
    x = b.input("x", "float32", shape)
    return b.build(b.op(op, x, b.constant(np.array([1, 2], np.int64), "axes"), keepdims=keep))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd"])
def test_reductions(op: str, shape: tuple[int, ...], keep: int) -> None:
    x = np.random.default_rng(0).uniform(0.97, 1.03, shape).astype(np.float32)
    require_twin(reduction(op, shape, keep), {"x": x}, tolerance=1e-4)


@pytest.mark.parametrize("n", [1, 7, 20])
def test_symbolic_sizes(n: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, n, 3, 5)).astype(np.float32)
    require_twin(reduction("ReduceSum", (2, "n", 3, 5), 1), {"x": x}, {"n": n}, 1e-4)


@pytest.mark.parametrize(
    ("shape", "sweeps"), [((1, 16, 16, 8), 2), ((1, 3, 3, 8), 1), ((1, 16, 3, 8), 1), ((1, "n", "n", 8), 2)], ids=str
)
def test_a_long_reduction_takes_two_sweeps_and_a_short_one_does_not(shape: tuple, sweeps: int) -> None:
    func = lower(reduction("ReduceSum", shape, 1)).func
    assert sum(any(a.kind == "reduce" for a in b.axes) for b in blocks_in(func.body)) == sweeps


@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (2, -1, 0, 1)])
def test_axes_in_any_order_are_summed_as_they_lie(axes: tuple[int, ...]) -> None:
    """In the order that the node gives, rows of the image would be summed element by element, ten times as long."""

    def normalized(order: tuple[int, ...]) -> Graph:
        b = GraphBuilder()
        return b.build(b.op("MeanVarianceNormalization", b.input("x", "float32", (2, 3, 16, 17)), axes=order))

    assert str(lower(normalized(axes)).func) == str(lower(normalized((0, 1, 2, 3))).func)


@pytest.mark.parametrize("size", [5, 16, 19])
def test_instance_norm_over_channels_last_keeps_its_statistics_outside_the_pixels(size: int) -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", (2, size, size, 9))
    scale = np.linspace(0.5, 2, 9, dtype=np.float32)
    y = b.op("InstanceNormalization", x, b.constant(scale, "s"), b.constant(scale - 1, "b"), data_layout="NHWC")
    graph = b.build(y)
    low = lower(graph)
    feed = np.random.default_rng(0).standard_normal((2, size, size, 9)).astype(np.float32)
    mean, var = feed.mean((1, 2), keepdims=True), feed.var((1, 2), keepdims=True)
    want = (feed - mean) / np.sqrt(var + 1e-5) * scale + (scale - 1)
    after = default_trace(low.func, detect_host().with_threads(2)).apply(low.func)
    last = {x.var for x in loops_around(after, "o0")}
    statistics = {x.var for x in loops_around(after, "inv_std")}
    assert not last & statistics
    args = [feed, *(p.evaluate(graph.constants) for p in low.constants)]
    for threads in (1, 2):
        np.testing.assert_allclose(build(after)(args, {}, threads)[0], want, rtol=1e-4, atol=1e-5)


def bright_first_row(x: np.ndarray) -> None:
    x[:, 0] += 1000


def bright_diagonal(x: np.ndarray) -> None:
    for k in range(16):
        x[:, k * x.shape[1] // 16, k * x.shape[2] // 16] += 30


def far_from_zero(x: np.ndarray) -> None:
    x += 30000


def constant_pixels(x: np.ndarray) -> None:
    x[:] = 12345.678


def one_bright_pixel(x: np.ndarray) -> None:
    x[:, 0, 0] = 1e4


@pytest.mark.parametrize(
    "change", [bright_first_row, bright_diagonal, far_from_zero, constant_pixels, one_bright_pixel]
)
@pytest.mark.parametrize("shape", [(2, 16, 16, 5), (1, 224, 24, 3)], ids=str)
def test_instance_norm_in_one_sweep_is_exact(shape: tuple[int, ...], change: Callable[[np.ndarray], None]) -> None:
    """Against float64. Memory is read once for the statistics: squares of differences to the mean of a diagonal."""
    b = GraphBuilder()
    ones, zeros = np.ones(shape[-1], np.float32), np.zeros(shape[-1], np.float32)
    x = b.input("x", "float32", shape)
    graph = b.build(b.op("InstanceNormalization", x, ones, zeros, data_layout="NHWC"))
    func = lower(graph).func
    assert [x.name for x in blocks_in(func.body) if any(a.kind == "reduce" for a in x.axes)] == [
        "pivot_sum", "powers", "offset_sum", "square_sum",
    ]  # fmt: skip
    feed = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    change(feed)
    wide = feed.astype(np.float64)
    want = (wide - wide.mean((1, 2), keepdims=True)) / np.sqrt(wide.var((1, 2), keepdims=True) + 1e-5)
    after = default_trace(func, detect_host()).apply(func)
    (got,) = build(after)([feed, ones, zeros])
    spacing = np.spacing(np.abs(feed).max()) / np.sqrt(wide.var((1, 2), keepdims=True) + 1e-5)
    assert (np.abs(got - want) <= 2 * spacing + 2e-5 * np.abs(want) + 1e-6).all()
