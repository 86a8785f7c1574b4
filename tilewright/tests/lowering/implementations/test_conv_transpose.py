"""ConvTranspose against the reference: every kind of phase, constant and computed weights, symbolic sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.arith.expr import product
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, walk
from tilewright.tests.lowering.lowered import TARGET, require_twin

RNG = np.random.default_rng(11)
Shape = tuple[int, ...]

CASES: dict[str, tuple[Shape, Shape, dict[str, object]]] = {  # input, weight (C, OC / group, taps), attributes
    "stride_1": ((1, 2, 4, 5), (2, 3, 3, 3), {"pads": (1, 0, 1, 2)}),
    "windows_side_by_side": ((2, 3, 3, 4), (3, 5, 2, 2), {"strides": (2, 2)}),
    "overlap_by_half": ((1, 3, 5, 4), (3, 4, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "taps_in_some_phases_only": (
        (1, 3, 4, 3), (3, 2, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}
    ),
    "stride_above_kernel": ((1, 2, 3, 3), (2, 3, 2, 1), {"strides": (3, 2)}),
    "uneven": ((2, 2, 1, 7), (2, 3, 5, 2), {"strides": (3, 2), "pads": (2, 0, 1, 1)}),
    "groups": ((1, 4, 3, 5), (4, 3, 3, 2), {"strides": (2, 3), "group": 2, "pads": (0, 1, 1, 0)}),
    "depthwise": ((1, 3, 4, 4), (3, 1, 4, 4), {"strides": (2, 2), "group": 3, "pads": (1, 1, 1, 1)}),
    "dilated": ((1, 2, 3, 4), (2, 3, 2, 3), {"strides": (2, 1), "dilations": (2, 2)}),
    "one_dimension": ((2, 3, 7), (3, 4, 5), {"strides": (2,), "pads": (2, 1)}),
    "three_dimensions": ((1, 2, 2, 3, 2), (2, 2, 2, 3, 2), {"strides": (2, 2, 1), "pads": (0, 1, 0, 0, 1, 0)}),
    "output_shape": ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (3, 2), "output_shape": (10, 8)}),
    "padding_beyond_the_kernel": ((1, 2, 6, 6), (2, 3, 2, 2), {"strides": (2, 2), "pads": (3, 4, 2, 5)}),
}  # fmt: skip


def _weight(shape: Shape) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", CASES)
def test_static(name: str, layout: str) -> None:
    x_shape, w_shape, attrs = CASES[name]
    last = layout == "NHWC"
    shape = (x_shape[0], *x_shape[2:], x_shape[1]) if last else x_shape
    b = GraphBuilder("g")
    x = b.input("x", "float32", shape)
    bias = _weight((w_shape[1] * int(str(attrs.get("group", 1))),))
    y = b.op("ConvTranspose", x, _weight(w_shape), bias, **attrs, **({"data_layout": "NHWC"} if last else {}))
    feed = {"x": _weight(shape)}
    low = require_twin(b.build(b.op("Relu", y)), feed, tolerance=1e-4)
    scheduled = default_trace(low.func, TARGET).apply(low.func)
    args = [feed["x"], *(p.evaluate(b.build(y).constants) for p in low.constants)]
    for a, e in zip(interpret(scheduled, args, {}), interpret(low.func, args, {}), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["overlap_by_half", "taps_in_some_phases_only", "groups", "uneven"])
def test_a_computed_weight(name: str) -> None:
    x_shape, w_shape, attrs = CASES[name]
    b = GraphBuilder("g")
    y = b.op("ConvTranspose", b.input("x", "float32", x_shape), b.input("w", "float32", w_shape), **attrs)
    require_twin(b.build(y), {"x": _weight(x_shape), "w": _weight(w_shape)}, tolerance=1e-4)


@pytest.mark.parametrize("name", ["windows_side_by_side", "overlap_by_half", "taps_in_some_phases_only"])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 2), (7, 13)])
def test_symbolic(name: str, sizes: tuple[int, int]) -> None:
    x_shape, w_shape, attrs = CASES[name]
    b = GraphBuilder("g")
    x = b.input("x", "float32", (x_shape[0], x_shape[1], "h", "w"))
    g = b.build(b.op("ConvTranspose", x, _weight(w_shape), **attrs))
    require_twin(g, {"x": _weight((*x_shape[:2], *sizes))}, {"h": sizes[0], "w": sizes[1]}, 1e-4)


@pytest.mark.parametrize("strides", [(2**20, 2**20), (1, 200), (300, 2)])
def test_strides_far_above_the_kernel(strides: tuple[int, int]) -> None:
    """A phase for each place between two taps would be terabytes of zeros."""
    x, w = _weight((1, 2, 1, 2 if strides[1] < 9 else 1)), _weight((2, 3, 3, 2))
    b = GraphBuilder("g")
    g = b.build(b.op("ConvTranspose", b.input("x", "float32", x.shape), w, strides=strides))
    low = require_twin(g, {"x": x}, tolerance=1e-4)
    assert all(p.evaluate(g.constants).nbytes <= 16 * w.nbytes for p in low.constants)


def test_tiles_of_rows_of_several_dimensions() -> None:
    """12 rows of 7 x 19 x 3: a tile sums these rows, not all of those of the images that it touches."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", (7, 7, 1, 4))
    g = b.build(b.op("ConvTranspose", x, _weight((4, 3, 1, 3)), strides=(3, 1), data_layout="NHWC"))
    low = require_twin(g, {"x": _weight((7, 7, 1, 4))}, tolerance=1e-4)
    scheduled = default_trace(low.func, TARGET).apply(low.func)
    sums = [s.buffer for s in walk(scheduled.body) if isinstance(s, Alloc) and s.buffer.name.startswith("acc")]
    assert sums
    assert all((product(buffer.shape).value() or 0) <= 16 * 8 for buffer in sums)
