"""A convolution that is computed with a border, for a window over its result in the same function."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.tests.lowering.lowered import require_twin


def pair(shape: tuple[int, int, int, int], channels: int, taps: int, pads: tuple[int, ...], stride: int) -> Graph:
    """A 1x1 convolution, Clip, a depthwise convolution and a bias, with the attribute that fusion sets."""
    rng = np.random.default_rng(2)
    b = GraphBuilder("g")
    w = rng.standard_normal((channels, shape[-1], 1, 1)).astype(np.float32)
    x = b.op("Conv", b.input("x", "float32", shape), w, np.ones(channels, np.float32), data_layout="NHWC", halo=pads)
    x = b.op("Clip", x, np.float32(0), np.float32(6))
    w = rng.standard_normal((channels, 1, taps, taps)).astype(np.float32)
    bias = rng.standard_normal(channels).astype(np.float32)
    return b.build(b.op("Conv", x, w, bias, group=channels, data_layout="NHWC", pads=pads, strides=(stride, stride)))


CASES = [
    ((1, 5, 7, 3), 16, 3, (1, 1, 1, 1), 1), ((2, 6, 6, 4), 8, 3, (0, 1, 2, 1), 2),
    ((1, 7, 5, 2), 20, 5, (2, 2, 2, 2), 1), ((1, 4, 4, 2), 32, 3, (0, 0, 0, 0), 1),
    ((1, 9, 9, 2), 40, 5, (2, 1, 1, 2), 2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_twin(case: tuple[tuple[int, int, int, int], int, int, tuple[int, ...], int]) -> None:
    x = np.random.default_rng(3).standard_normal(case[0]).astype(np.float32)
    require_twin(pair(*case), {"x": x})
