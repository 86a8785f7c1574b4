"""Convolutions whose output rows are short: all pixels are rows of one product."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.arith.expr import var
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.group import LoweredGroup
from tilewright.tensor_ir.ir import Alloc, walk
from tilewright.tests.lowering.lowered import lower, require_twin


def conv(x: tuple[Dim, ...], oc: int, taps: tuple[int, ...], group: int = 1, **attrs: Attribute) -> Graph:
    rng = np.random.default_rng(5)
    b = GraphBuilder("g")
    name = b.input("x", "float32", x)
    w = rng.standard_normal((oc, int(str(x[-1])) // group, *taps)).astype(np.float32)
    bias = rng.standard_normal(oc).astype(np.float32)
    return b.build(b.op("Conv", name, w, bias, group=group, data_layout="NHWC", **attrs))


def accumulator(low: LoweredGroup) -> tuple[str, ...]:
    """The shape of the results before they are finished."""
    (found,) = (s.buffer for s in walk(low.func.body) if isinstance(s, Alloc) and s.buffer.name == "acc")
    return tuple(map(str, found.shape))


@pytest.mark.parametrize(
    ("shape", "taps", "attrs"),
    [
        ((1, 7, 7, 3), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((2, 7, 5, 2), (3, 3), {"pads": (0, 1, 2, 0), "strides": (2, 1)}),
        ((1, 14, 9, 2), (1, 1), {"strides": (2, 2)}),
        ((3, 9, 11, 1), (3, 2), {"dilations": (2, 3)}),
        ((1, 1, 1, 4), (1, 1), {"strides": (3, 3)}),
        ((0, 5, 5, 2), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((2, 8, 3), (3,), {"pads": (1, 1)}),
        ((1, 3, 4, 5, 2), (2, 1, 3), {"strides": (1, 2, 1)}),
    ],
)
def test_twin(shape: tuple[int, ...], taps: tuple[int, ...], attrs: dict[str, Attribute]) -> None:
    for oc in (1, 5, 17):
        graph = conv(shape, oc, taps, **attrs)
        x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
        low = require_twin(graph, {"x": x}, tolerance=1e-4)
        assert len(accumulator(low)) == 3 or oc == 17, accumulator(low)


@pytest.mark.parametrize(
    ("shape", "group", "expected"),
    [
        ((1, 14, 14, 16), 1, ("49", "1", "16")),
        ((1, 24, 24, 16), 1, ("1", "12", "12", "1", "16")),  # whole tiles
        ((1, 14, 196, 16), 1, ("1", "7", "98", "1", "16")),  # long rows
        ((1, 14, 14, 16), 2, ("49", "2", "8")),
        ((1, var("h"), 14, 16), 1, None),
    ],
)
def test_where_rows_are_joined(shape: tuple[Dim, ...], group: int, expected: tuple[str, ...] | None) -> None:
    low = lower(conv(shape, 16, (1, 1), group, strides=(2, 2)))
    assert (len(accumulator(low)) == 5) if expected is None else (accumulator(low) == expected)
