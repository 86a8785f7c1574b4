"""Resize to sizes known only at run time, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import reference
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import lower

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(7, 11), (4, 5), (13, 3)])
def test_antialias_with_symbolic_sizes(mode: str, exclude_outside: int, rows: int, columns: int) -> None:
    scales = np.array([1, 1, 0.6, 0.4], np.float32)
    attrs = {"mode": mode, "antialias": 1, "exclude_outside": exclude_outside}
    b = GraphBuilder("g")
    g = b.build(b.op("Resize", b.input("x", "float32", (1, 2, "h", "w")), None, scales, **attrs))
    low = lower(g)
    x = RNG.standard_normal((1, 2, rows, columns)).astype(np.float32)
    args = [x, *(p.evaluate(g.constants) for p in low.constants)]
    (want,) = reference.evaluate("Resize", "", attrs, [x, None, scales], 1)
    sizes = {"h": rows, "w": columns, "u0": want.shape[2], "u1": want.shape[3]}
    (got,) = interpret(low.func, args, {d: sizes[d] for d in low.func.dims})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["tf_crop_and_resize", "align_corners"])
@pytest.mark.parametrize("size", [3, 5, 7])
def test_places_are_rounded_as_the_reference_rounds_them(mode: str, size: int) -> None:
    """Where a product and a sum were one operation, places at the last element fell outside: 2 / 3 * 3 - 1 < 1."""
    attrs = {"axes": (2, 3), "coordinate_transformation_mode": mode, "nearest_mode": "floor"}
    b = GraphBuilder("g")
    ends, wanted = b.input("roi", "float32", (4,)), b.input("sizes", "int64", (2,))
    x = RNG.standard_normal((1, 1, size, size)).astype(np.float32)
    graph = b.build(b.op("Resize", b.input("x", "float32", x.shape), ends, None, wanted, **attrs))
    model = tilewright.compile(graph, threads=1, progress=False)
    for roi in ([-0.1, -0.1, 1, 1], [0.2, 0.1, 0.9, 0.8], [0, 0.3, 0.7, 1.1]):
        for n in range(1, 24):
            feed = {"x": x, "roi": np.array(roi, np.float32), "sizes": np.array([n, n + 1])}
            (want,) = reference.evaluate("Resize", "", attrs, [x, feed["roi"], None, feed["sizes"]], 1)
            np.testing.assert_array_equal(model.run(None, feed)[0], want)
