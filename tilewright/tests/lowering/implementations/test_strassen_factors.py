"""Strassen's factors, and the error estimate."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.lowering.implementations.gemm.strassen_factors import (
    LEFT,
    PRODUCTS,
    RESULT,
    combined_weight,
    estimated_error,
    signed_sum,
)


def weight(depth: int = 40, columns: int = 66) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((depth, columns)).astype(np.float32)


def test_the_factors_compute_a_product() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-9, 9, (4, 6)), rng.integers(-9, 9, (6, 8))
    quarters = [a[:2, :3], a[:2, 3:], a[2:, :3], a[2:, 3:]]
    products = [signed_sum(row, quarters) @ right for row, right in zip(LEFT, combined_weight(b), strict=True)]
    assert len(products) == PRODUCTS
    got = np.block([[signed_sum(RESULT[2 * r + h], products) for h in range(2)] for r in range(2)])
    np.testing.assert_array_equal(got, a @ b)


def test_the_error_is_a_few_units_in_the_last_place() -> None:
    assert 1e-8 < estimated_error(weight()) < 1e-5
    assert estimated_error(np.zeros((4, 6), np.float32)) == 0.0


def test_a_column_beside_a_much_larger_one_loses_more() -> None:
    """A product is shared by both halves: the error is that of the larger one."""
    w = weight()
    w[:, 0] *= 1e3
    assert estimated_error(w) > 30 * estimated_error(weight())


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_results_that_overflow_have_no_small_error() -> None:
    for value in (np.nan, 3e38):
        assert not estimated_error(np.full((8, 8), value, np.float32)) <= 1.0
