"""Results are compared as schedules may change them: sums up to rounding, everything else exactly."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.autotune.measure.accuracy import Tolerance, compare, tolerance_of
from tilewright.core import dtypes
from tilewright.tensor_ir.compute import build_func, compute, max_over, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func
from tilewright.tests.autotune.measure.measuring import matmul

CLOSE = Tolerance(1e-4, flips=False)


def reduction(dtype: dtypes.DType, length: int, combine: object = sum_over) -> Func:
    a = placeholder("A", (4, length), dtype)
    k = reduce_axis(length, "k")
    return build_func("f", [a], [compute("C", (4,), lambda i: combine(a[i, k], k))])  # type: ignore[operator]


def test_tolerance_follows_length_and_type() -> None:
    short, long = (tolerance_of(reduction(dtypes.float32, n), {}) for n in (4, 4000))
    assert 1e-6 < short.relative < long.relative < 1e-3
    assert tolerance_of(reduction(dtypes.float64, 4000), {}).relative < 1e-12
    assert tolerance_of(reduction(dtypes.float16, 4), {}).relative > 1e-3


def test_integers_may_flip_only_after_sums_of_floats() -> None:
    assert tolerance_of(matmul(), {}).flips
    assert not tolerance_of(reduction(dtypes.int32, 40), {}).flips
    assert not tolerance_of(reduction(dtypes.float32, 40, max_over), {}).flips


def test_sums_in_another_order_pass() -> None:
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    forward = np.add.accumulate(x, axis=1)[:, -1]
    backward = np.add.accumulate(x[:, ::-1], axis=1)[:, -1]
    error, wrong = compare([forward], [backward], tolerance_of(reduction(dtypes.float32, 4096), {}))
    assert wrong is None
    assert error > 0


def test_a_missing_term_does_not_pass() -> None:
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    tolerance = tolerance_of(reduction(dtypes.float32, 4096), {})
    _, wrong = compare([x[:, :-1].sum(1)], [x.sum(1)], tolerance)
    assert wrong is not None
    assert "differ by more than" in wrong


def test_special_values_must_be_in_place() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert compare([expected.copy()], [expected], CLOSE) == (0.0, None)
    for place, value in ((0, 0.0), (1, np.nan), (2, np.inf), (3, np.nan), (3, np.inf)):
        got = expected.copy()
        got[place] = value
        error, wrong = compare([got], [expected], CLOSE)
        assert error == np.inf
        assert wrong is not None
        assert f"[{place}]" in wrong


def test_cancelled_sums_are_judged_by_what_was_summed() -> None:
    expected = np.array([1.0, 1e-7], np.float32)
    assert compare([np.array([1.0, 2e-7], np.float32)], [expected], CLOSE)[1] is None
    assert compare([np.array([1.0, 1e-3], np.float32)], [expected], CLOSE)[1] is not None


def test_all_zero() -> None:
    zero = np.zeros(4, np.float32)
    assert compare([zero], [zero], CLOSE) == (0.0, None)
    assert compare([zero + 1], [zero], CLOSE)[1] is not None


@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8"])
def test_integers_are_exact(dtype: str) -> None:
    expected = np.zeros(5000, dtype)
    got = expected.copy()
    got[17] = 1
    assert compare([got], [expected], CLOSE)[1] == "output 0: 1 of 5000 elements differ; the first, [17], is " + (
        f"{got[17]}, expected {expected[17]}"
    )
    assert compare([got], [expected], Tolerance(1e-4, flips=True))[1] is None
    assert compare([got[:20]], [expected[:20]], Tolerance(1e-4, flips=True))[1] is not None


def test_quantized_on_the_way() -> None:
    a = placeholder("A", (4,), dtypes.float32)
    func = build_func("f", [a], [compute("C", (4,), lambda i: op("round", a[i] * 50) / 50.0)])
    tolerance = tolerance_of(func, {})
    assert tolerance.steps
    expected = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    one, many, far = (expected.copy() for _ in range(3))
    one[17] += 0.02
    many[:100] += 0.02
    far[17] += 10
    assert [compare([g], [expected], tolerance)[1] is None for g in (one, many, far)] == [True, False, False]
    assert not tolerance_of(matmul(), {}).steps


def test_empty_and_second_outputs() -> None:
    empty = np.zeros((0, 3), np.float32)
    one = np.ones(3, np.float32)
    assert compare([empty, one], [empty, one], CLOSE) == (0.0, None)
    assert str(compare([empty, one * 2], [empty, one], CLOSE)[1]).startswith("output 1: 3 of 3 elements")
