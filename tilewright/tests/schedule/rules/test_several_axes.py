"""Reductions and elementwise blocks over several axes that lie together: one loop, in vectors whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tests.schedule.helper import check

TARGET = detect_host().with_threads(2)
SIZES = [(31, 13), (20, 20), (5, 7), (1, 33), (3, 16)]


def mean_and_rest(h: int, w: int) -> Func:
    """Y[n, i, j] = X[n, i, j] - sum over the image n"""
    x = placeholder("X", (3, h, w), dtypes.float32)
    r, q = reduce_axis(h, "r"), reduce_axis(w, "q")
    total = compute("S", (3,), lambda n: sum_over(x[n, r, q], r, q))
    y = compute("Y", (3, h, w), lambda n, i, j: x[n, i, j] - total[n])
    return build_func("mean_and_rest", [x], [y], [total])


def scaled(*image: int) -> Func:
    """Y[n, ...] = max(X[n, ...] * W[n], 0)"""
    x, w = placeholder("X", (3, *image), dtypes.float32), placeholder("W", (3,), dtypes.float32)
    y = compute("Y", (3, *image), lambda n, *i: op("max", x[(n, *i)] * w[n], 0.0))
    return build_func("scaled", [x, w], [y])


def _vectors(func: Func) -> list[str]:
    after = default_trace(func, TARGET).apply(func)
    return [x.var for x in walk(after.body) if isinstance(x, Loop) and x.kind == "vectorized"]


@pytest.mark.parametrize(("h", "w"), SIZES)
def test_a_sum_over_two_axes_is_one_loop(h: int, w: int) -> None:
    func = mean_and_rest(h, w)
    trace = default_trace(func, TARGET).to_text()
    assert 'fuse(("r", "q"))' in trace
    assert any(v.startswith("r_q_f") for v in _vectors(func))
    check(func, trace)


@pytest.mark.parametrize("image", [*SIZES, (4, 5, 7)])
def test_elements_of_several_axes_go_in_vectors(image: tuple[int, ...]) -> None:
    func = scaled(*image)
    assert any(v.startswith("Y_") for v in _vectors(func))
    check(func, default_trace(func, TARGET).to_text())


def test_the_range_of_a_tensor_of_symbolic_sizes_is_found_in_vectors() -> None:
    """The largest and smallest number of what is quantized when the model runs."""
    g = GraphBuilder("quantized")
    graph = g.build(*g.ops("DynamicQuantizeLinear", g.input("x", "float32", ("b", "s", 24)), outputs=3))
    lowered = tilewright.compile(graph, target=TARGET, stop_after="lower", progress=False)
    vectors = [v for f in lowered.funcs.values() for v in _vectors(f)]
    assert sum("r0" in v and "_f_1" in v for v in vectors) >= 2
    x = np.random.default_rng(0).standard_normal((3, 7, 24)).astype(np.float32)
    y, scale, zero = tilewright.compile(graph, progress=False).run(None, {"x": x})
    low, high = min(x.min(), 0), max(x.max(), 0)
    np.testing.assert_allclose(scale, (high - low) / 255, rtol=1e-6)
    assert zero == np.rint(-low / scale)
    np.testing.assert_allclose(y, np.clip(np.rint(x / scale) + zero, 0, 255), atol=1)
