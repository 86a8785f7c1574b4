"""Weights whose errors cancel: all next to what they were, smaller errors of sums, special numbers as before."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.lowering.precision.balanced_rounding import balanced


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def nearest(w: np.ndarray) -> np.ndarray:
    found: np.ndarray = w.astype(ml_dtypes.bfloat16).astype(np.float32)
    return found


SHAPES = [(5, 7, 3, 3), (40, 300, 3, 3), (64, 64, 1, 1), (2, 3, 9), (300, 40, 2, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_weight_is_next_to_what_it_was(shape: tuple[int, ...]) -> None:
    w = weights(*shape) * np.logspace(-3, 3, shape[0], dtype=np.float32).reshape(-1, *(1,) * (len(shape) - 1))
    got = balanced(w)
    assert (got.dtype, got.shape) == (ml_dtypes.bfloat16, shape)
    bits = (w.view(np.uint32) >> 16).astype(np.int64)  # towards zero
    assert set((got.view(np.uint16) - bits).reshape(-1)) <= {0, 1}


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_errors_cancel_over_taps_and_filters(shape: tuple[int, ...]) -> None:
    w = weights(*shape)
    own, plain = (r.astype(np.float64) - w for r in (balanced(w), nearest(w)))
    assert (own**2).sum() < 1.15 * (plain**2).sum()
    assert (own.sum((2, 3)) ** 2).sum() < 0.3 * (plain.sum((2, 3)) ** 2).sum()
    assert (own.sum((1, 2, 3)) ** 2).sum() < 0.05 * (plain.sum((1, 2, 3)) ** 2).sum()


def test_results_behind_a_relu_are_nearer() -> None:
    w = weights(32, 64 * 9).reshape(32, 64, 3, 3)
    x = np.maximum(np.random.default_rng(2).standard_normal((500, 64, 3, 3)), 0)
    want = np.einsum("ncij,ocij->no", x, w.astype(np.float64))
    own, plain = (np.einsum("ncij,ocij->no", x, r.astype(np.float64)) - want for r in (balanced(w), nearest(w)))
    assert np.sqrt(np.mean(own**2)) < 0.95 * np.sqrt(np.mean(plain**2))


def test_what_bfloat16_holds_stays() -> None:
    w = nearest(weights(8, 16, 3, 3))
    np.testing.assert_array_equal(balanced(w).astype(np.float32), w)


@pytest.mark.filterwarnings("error")
def test_special_numbers_are_those_of_a_cast() -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-39, -1e-45], np.float32)
    w = np.repeat(special, 9).reshape(1, 9, 3, 3)
    np.testing.assert_array_equal(balanced(w).astype(np.float32), nearest_quietly(w))
    np.testing.assert_array_equal(np.signbit(balanced(w)), np.signbit(nearest_quietly(w)))


def nearest_quietly(w: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return nearest(w)


@pytest.mark.parametrize("shape", [(0, 3, 3, 3), (3, 0, 3, 3), (3, 3, 0, 3), (1, 1, 1, 1)])
def test_small_and_empty_ones(shape: tuple[int, ...]) -> None:
    assert balanced(np.full(shape, 1.0039, np.float32)).shape == shape
