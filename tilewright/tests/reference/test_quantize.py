"""Quantization in the reference: extrema, halves, and a parameter for each row or column."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compile import compile  # noqa: A004
from tilewright.reference import evaluate
from tilewright.tests.frontend.against_ort import Arrays, node_model

U8 = np.uint8


@pytest.mark.parametrize(("x", "scale", "zero", "y"), [
    ([0, 0, 0], 1, 0, [0, 0, 0]), ([1, 3, 4], 4 / 255, 0, [64, 191, 255]), ([-3, 0, -1], 3 / 255, 255, [0, 255, 170]),
    ([-1, 1.55, 0], 0.01, 100, [0, 255, 100]), ([], 1, 0, []),
])  # fmt: skip
def test_dynamic_quantize_linear(x: list[float], scale: float, zero: int, y: list[int]) -> None:
    given = np.array(x, np.float32)
    got = evaluate("DynamicQuantizeLinear", "", {}, [given], 3)
    for a, b in zip(got, (np.array(y, U8), np.float32(scale), np.array(zero, U8)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    model = node_model("DynamicQuantizeLinear", {"x": given}, {}, ["x"], [2, 1, 2], domain="")
    for k, a in enumerate(got):
        np.testing.assert_array_equal(compile(model).run({"x": given})[f"y{k}"], a, strict=True)


def test_qlinear_matmul_rounds_before_it_adds_the_zero_point() -> None:
    a, b = np.array([[1], [3], [5]], U8), np.array([[1]], U8)
    half, none, one = np.float32(0.5), np.array(0, U8), np.array(1, U8)
    (got,) = evaluate("QLinearMatMul", "", {}, [a, half, none, b, np.float32(1), none, np.float32(1), one], 1)
    np.testing.assert_array_equal(got, np.array([[1], [3], [3]], U8), strict=True)  # 0.5, 1.5, 2.5: to even, plus 1


@pytest.mark.parametrize("stack", [(), (2,), (2, 3)])
def test_a_parameter_for_each_row_and_column(stack: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (*stack, 4, 9), "b": (*stack, 9, 5)}
    feed: Arrays = {k: rng.integers(0, 256, s).astype(U8) for k, s in shapes.items()}
    rows, columns = ((*stack, 4, 1), (*stack, 1, 5)) if stack else ((4,), (5,))
    real: Arrays = {k: (rng.random(s) / 9 + 0.01).astype(np.float32) for k, s in (("sa", rows), ("sb", columns))}
    zeros: Arrays = {k: rng.integers(0, 256, s).astype(U8) for k, s in (("za", rows), ("zb", columns), ("zy", rows))}
    constants = real | zeros | {"sy": (rng.random(rows) * 9 + 1).astype(np.float32)}
    inputs = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    everything = feed | constants
    (want,) = evaluate("QLinearMatMul", "", {}, [everything[n] for n in inputs], 1)
    model = node_model("QLinearMatMul", feed, constants, inputs, 2, domain="")
    np.testing.assert_array_equal(compile(model).run(feed)["y0"], want, strict=True)
