"""Vector loads at indices that run up to a limit and stay there: one masked load, whatever limit, lanes and type."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Buffer, Func, Load
from tilewright.tests.codegen.helpers import emitted, nest


def clamped(dtype: DType, vector: int, start: int = 0, limit: IntExpr | None = None) -> Func:
    """``C[x] = A[min(x + start, n - 1)]`` for ``A[n]`` and ``C[m]``."""
    a, c = Buffer("A", dtype, (var("n"),)), Buffer("C", dtype, (var("m"),))
    at = minimum(var("x") + start, var("n") - 1 if limit is None else limit)
    return Func("clamped", (a, c), 1, ("n", "m"), nest(Load("A", (at,), dtype), c, vector))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.float16])
@pytest.mark.parametrize("vector", [4, 8, 16, 24, 64])
def test_every_limit(dtype: DType, vector: int) -> None:
    kernel = {start: build(clamped(dtype, vector, start)) for start in (0, 3)}
    for start, run in kernel.items():
        for n in (1, 2, 5, 8, 17, 70):
            a = (np.arange(n) + 1).astype(dtype.numpy)
            for m in (1, 3, 8, 16, 33, 70):
                (got,) = run([a], {"n": n, "m": m})
                np.testing.assert_array_equal(got, a[np.minimum(np.arange(m) + start, n - 1)])


def test_is_what_the_interpreter_does() -> None:
    func = clamped(dtypes.float32, 8)
    a = np.arange(5, dtype=np.float32)
    (want,) = interpret(func, [a], {"n": 5, "m": 11})
    np.testing.assert_array_equal(build(func)([a], {"n": 5, "m": 11})[0], want)


def test_text() -> None:
    text = emitted(clamped(dtypes.float32, 8), detect_host(), "k")
    assert "llvm.masked.load" in text
    assert "gather" not in text
    assert text.count("load float, ptr") == 1  # the last element, for the lanes beyond the limit


def test_narrow_elements_are_read_one_by_one() -> None:
    """Not every CPU has masked loads of them."""
    assert "llvm.masked.load" not in emitted(clamped(dtypes.int8, 8), detect_host(), "k")


def test_a_limit_that_runs_too_is_another_form() -> None:
    text = emitted(clamped(dtypes.float32, 8, 1, var("x") * 2 + const(0)), detect_host(), "k")
    assert "llvm.masked.load" not in text
