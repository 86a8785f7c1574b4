"""Vectors whose elements alternate in memory: which are stored as one, and that the values are right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.dtypes import DType
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Expr, Func, Load, Loop, Op
from tilewright.tests.codegen.helpers import emitted

F32 = dtypes.float32
C, X = var("c"), var("x")


def kernel(copies: int, value: Expr, gap: int = 0, lanes: int = 8, dtype: DType = F32) -> Func:
    """``B[x, c] = value`` with the copies over c written out; ``gap``: channels of B that are left as they are."""
    a = Buffer("A", dtype, (const(copies), const(lanes)))
    b = Buffer("B", dtype, (const(lanes), const(copies + gap)))
    axes = (Axis("c", const(copies)), Axis("x", const(lanes)))
    block = Block("B", axes, (var("i"), var("j")), "B", (X, C), value)
    body = Loop("i", const(copies), Loop("j", const(lanes), block, "vectorized"), "unrolled")
    return Func("f", (a, b), 1, (), body)


def plane(dtype: DType = F32) -> Load:
    return Load("A", (C, X), dtype)


def stored(func: Func) -> list[int]:
    """Lanes of the stores, in order; 1 for a single element."""
    text = emitted(func, detect_host(), "f")
    return [int(n or 1) for n in re.findall(r"store (?:<(\d+) x )?(?:float|double|i8|i64|i32)", text)]


@pytest.mark.parametrize("copies", [2, 3, 4])
@pytest.mark.parametrize("lanes", [4, 8])
def test_they_are_stored_as_one(copies: int, lanes: int) -> None:
    func = kernel(copies, plane(), lanes=lanes)
    assert f"unrolled({copies}, interleaved=True)" in str(prepare(func, detect_host()))
    assert copies * lanes in stored(func)


@pytest.mark.parametrize(
    "func",
    [
        kernel(5, plane()), kernel(3, plane(), gap=1), kernel(3, plane(), lanes=2), kernel(1, plane()),
        kernel(2, Op("add", (plane(), Load("B", (X, C), F32)), F32)),
    ],
    ids=["too many", "gap", "short", "one", "read"],
)  # fmt: skip
def test_others_are_stored_one_by_one(func: Func) -> None:
    assert "interleaved" not in str(prepare(func, detect_host()))
    assert max(stored(func)) <= 8


CASES = {
    **{f"{n} planes": kernel(n, plane()) for n in (2, 3, 4, 5)},
    "sum": kernel(3, Op("add", (plane(), Load("A", (const(1), X), F32)), F32)),
    "same in all lanes": kernel(3, Load("A", (C, const(2)), F32)),
    "bytes": kernel(3, plane(dtypes.int8), dtype=dtypes.int8),
    "bool": kernel(4, plane(dtypes.bool_), dtype=dtypes.bool_),
    "double": kernel(3, plane(dtypes.float64), lanes=4, dtype=dtypes.float64),
}


@pytest.mark.parametrize("func", CASES.values(), ids=list(CASES))
def test_values(func: Func) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, [int(d) for d in func.params[0].shape]).astype(func.params[0].dtype.numpy)
    (got,) = build(func, detect_host())([a])
    (want,) = interpret(func, [a], {})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("size", [(5, 64), (3, 50), (2, 7)])
def test_planes_to_channels_by_default(channels: int, size: tuple[int, int]) -> None:
    x = placeholder("X", (1, channels, *size), F32)
    func = build_func("f", [x], [compute("Y", (1, *size, channels), lambda n, h, w, c: x[n, c, h, w])])
    trace = default_trace(func, detect_host())
    scheduled = trace.apply(func)
    if size[1] >= 32:
        assert detect_host().lanes(4) * channels in stored(scheduled)
    a = np.random.default_rng(0).standard_normal((1, channels, *size)).astype(np.float32)
    (got,) = build(scheduled, detect_host())([a])
    np.testing.assert_array_equal(got, a.transpose(0, 2, 3, 1))
