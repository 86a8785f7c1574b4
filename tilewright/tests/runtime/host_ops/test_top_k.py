"""The best k of the runtime against the reference definition, which sorts everything."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.reference import evaluate
from tilewright.runtime.host_ops.top_k import top_k


def check(x: np.ndarray, k: int, axis: int = -1, largest: int = 1) -> None:
    """Both definitions give the same values, types and indices."""
    attrs = {"axis": axis, "largest": largest, "sorted": 1}
    inputs = [x, np.array([k], np.int64)]
    values, indices = map(np.asarray, top_k(attrs, inputs))
    want_values, want_indices = map(np.asarray, evaluate("TopK", "", attrs, inputs, 2))
    assert values.dtype == x.dtype
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(values, want_values)
    np.testing.assert_array_equal(indices, want_indices)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.int8, np.uint8, ml_dtypes.bfloat16])
def test_with_many_equal_elements(dtype: type, largest: int) -> None:
    rng = np.random.default_rng(3)
    for n, k in ((1, 1), (7, 1), (7, 7), (100, 3), (100, 0), (333, 64), (500, 20)):
        x = rng.integers(0, max(2, n // 3), (5, n)).astype(dtype)
        check(x, k, largest=largest)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_any_axis(axis: int) -> None:
    x = np.random.default_rng(axis + 9).standard_normal((40, 41, 42)).astype(np.float32)
    for k in (1, 5, 30):
        check(x, k, axis)


def test_extreme_values() -> None:
    lows, highs = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    check(np.array([[0, lows, highs, -1, lows, highs, 5, 6, 7, 8]], np.int64), 2)
    check(np.array([[0, lows, highs, -1, lows, highs, 5, 6, 7, 8]], np.int64), 2, largest=0)
    x = np.tile(np.array([[1, -np.inf, np.inf, 0.0, -0.0, np.nan, 2, np.nan]], np.float32), (2, 3))
    for largest in (0, 1):
        check(x, 4, largest=largest)
        check(np.where(np.isnan(x), 0, x), 4, largest=largest)
    check(np.zeros((0, 9), np.float32), 2)
    check(np.zeros((3, 0), np.float32), 0)
    check(np.zeros((3, 1000), np.float32), 7)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_rows_that_are_as_bad_as_can_be(dtype: type, largest: int) -> None:
    worst = [np.inf, -np.inf][largest] if dtype is np.float32 else [np.iinfo(dtype).max, np.iinfo(dtype).min][largest]
    x = np.full((3, 200), worst, dtype)
    check(x, 6, largest=largest)
    x[1, [150, 7, 60]] = 3
    check(x, 6, largest=largest)


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="expected k from 0 to the 3 elements of axis -1, got 4"):
        top_k({}, [np.zeros((2, 3), np.float32), np.array([4])])
