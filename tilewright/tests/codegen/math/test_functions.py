"""Accuracy of the inline math functions against numpy and scipy in higher precision."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
import scipy.special

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core import dtypes
from tilewright.tests.codegen.helpers import apply_binary, apply_op

REFERENCE = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": scipy.special.erf, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))),
}  # fmt: skip
BOUND32 = {"exp": 1.7, "log": 2, "tanh": 6, "sigmoid": 7, "erf": 6, "sin": 2, "cos": 2}
RANGE32 = {"sin": 2.0**40, "cos": 2.0**40, "tan": 2.0**40}
_UNDERFLOW = 0x10
"""FE_UNDERFLOW of x86."""
RANGE64 = {"sin": 2.0**30, "cos": 2.0**30, "tan": 2.0**30}


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance of ``got`` from the wider ``expected`` in units of the last place of got's type."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)
        spacing = np.spacing(np.abs(rounded)).astype(expected.dtype)
        error = np.abs(got.astype(expected.dtype) - expected) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # an overflow may be decided either way within one unit of the limit
    return np.where(same, 0, np.where(np.isfinite(got) & np.isfinite(rounded), error, np.inf))


def samples(kind: type, limit: float) -> np.ndarray:
    """Values over the whole range: every magnitude, denormals, specials, and dense ones around 0, 1 and the
    thresholds."""
    rng = np.random.default_rng(7)
    bits = {np.float32: np.uint32, np.float64: np.uint64}[kind]
    raw = rng.integers(0, np.iinfo(bits).max, 40000, dtype=bits, endpoint=True).view(kind)
    raw = raw[~(np.abs(raw) > limit)]
    dense = np.concatenate(
        [
            rng.uniform(-1, 1, 20000), rng.uniform(-12, 12, 20000), rng.uniform(-110, 110, 20000),
            rng.uniform(-750, 750, 5000), 1 + rng.uniform(-1e-3, 1e-3, 3000), np.linspace(-4.1, 4.1, 8001),
        ]
    ).astype(kind)  # fmt: skip
    tiny = np.finfo(kind).tiny
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, tiny / 4, 1, -1, 0.5, -0.5, 2, limit], kind)
    return np.concatenate([raw, dense, special])


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_float32(name: str) -> None:
    x = samples(np.float32, RANGE32.get(name, float(np.finfo(np.float32).max)))
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(np.float64))
    got = apply_op(name, x, dtypes.float32)
    error = ulps(got, expected)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND32.get(name, 1), (x[worst], got[worst], expected[worst], error[worst])
    zero = (x == 0) & ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_float64(name: str) -> None:
    x = samples(np.float64, RANGE64.get(name, float(np.finfo(np.float64).max)))
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](wide if name != "erf" else x).astype(np.longdouble)
    got = apply_op(name, x, dtypes.float64, vector=4)
    error = ulps(got, expected)
    worst = int(np.argmax(error))
    bound = {"exp": 2, "log": 2, "erf": 3, "sin": 2, "cos": 2}.get(name, 4)
    assert error[worst] <= bound, (x[worst], got[worst], expected[worst], error[worst])


@pytest.mark.parametrize(
    ("dtype", "kind", "bound"), [(dtypes.float32, np.float32, 1), (dtypes.float64, np.float64, 16)]
)
def test_pow(dtype: dtypes.DType, kind: type, bound: float) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(0, 10, 5000), np.exp(rng.uniform(-80, 80, 5000)), rng.uniform(-5, 5, 2000)])
    y = np.concatenate([rng.uniform(-20, 20, 5000), rng.uniform(-1, 1, 5000), rng.integers(-9, 9, 2000)])
    edge = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 0.5, 3, -3, 1e-30])
    ex, ey = (v.ravel() for v in np.meshgrid(edge, edge))
    x, y = np.concatenate([x, ex]).astype(kind), np.concatenate([y, ey]).astype(kind)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        plain = np.power(x, y)
    got = apply_binary("pow", x, y, dtype)
    error = ulps(got, expected)
    error[np.isinf(plain) & (got == plain)] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (x[worst], y[worst], got[worst], expected[worst])


@pytest.mark.skipif(sys.platform != "linux" or "x86" not in detect_host().triple, reason="flags of x86 by libm")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_exp_of_masked_scores_does_not_underflow(dtype: dtypes.DType) -> None:
    """A result that underflows takes a hundred cycles on some CPUs, and half of the scores of causal attention are
    masked."""
    libm = ctypes.CDLL("libm.so.6")

    def underflows(*x: float) -> bool:
        values = np.array(x * 8, dtype.numpy)
        apply_op("exp", values, dtype)  # compiled and loaded
        libm.feclearexcept(_UNDERFLOW)
        got = apply_op("exp", values, dtype)
        flag = bool(libm.fetestexcept(_UNDERFLOW))
        assert not got.any()
        return flag

    assert underflows(-800.0 if dtype == dtypes.float64 else -110.0)
    assert not underflows(-np.inf, -1e4, float(np.finfo(dtype.numpy).min))


@pytest.mark.parametrize("vector", [None, 2, 3, 16])
def test_any_number_of_lanes(vector: int | None) -> None:
    x = np.linspace(-5, 5, 37, dtype=np.float32)
    np.testing.assert_allclose(apply_op("tanh", x, dtypes.float32, vector), np.tanh(x), rtol=1e-6)
