"""Arithmetic on quantized numbers: the shorter values are the same ones, of every kind of number."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.prepare.fold_quantized import fold_quantized, simplify_quantized
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, of_atom, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Cast, Const, Dyn, Expr, Func, Load, Loop, Op, walk_expr

F32, I32 = dtypes.float32, dtypes.int32
X = Load("X", (var("i"),), F32)
NUMBERS = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.49, 126.5, 127.5, 128.5, -127.5, -128.5, 254.5,
     255.5, 1e4, -1e4, 2.0**22 + 0.5, 2.0**24, 2.0**24 + 2, -(2.0**24), 2.0**31, 3e38, -3e38,
     *np.arange(-260, 260, 7.3)],
    np.float32,
)  # fmt: skip


def op(name: str, *args: Expr) -> Expr:
    return Op(name, args, args[0].dtype)


def number(x: float, dtype: DType = F32) -> Const:
    return Const(x if dtype.kind == "f" else int(x), dtype)


def quantized(zero: int, dtype: DType) -> Expr:
    """As QuantizeLinear is lowered."""
    low, high = (-128, 127) if dtype.kind == "i" else (0, 255)
    moved = op("add", op("round", X), Cast(number(zero, dtype), F32))
    return Cast(Cast(op("clamp", moved, number(low), number(high)), I32), dtype)


def dequantized(q: Expr, zero: int) -> Expr:
    return Cast(op("sub", Cast(q, I32), Cast(number(zero, q.dtype), I32)), F32)


def run(value: Expr) -> np.ndarray:
    count = const(len(NUMBERS))
    block = Block("Y", (Axis("i", count),), (var("k"),), "Y", (var("i"),), value)
    func = Func("f", (Buffer("X", F32, (count,)), Buffer("Y", value.dtype, (count,))), 1, (), Loop("k", count, block))
    (found,) = interpret(func, [NUMBERS], {})
    return np.asarray(found)


def operations(e: Expr) -> int:
    return sum(1 for x in walk_expr(e) if isinstance(x, Op | Cast))


@pytest.mark.parametrize(
    ("dtype", "zero"), [(dtypes.uint8, z) for z in (0, 1, 77, 128)] + [(dtypes.int8, z) for z in (-3, 0, 77)]
)
def test_what_is_quantized_and_dequantized(dtype: DType, zero: int) -> None:
    other = zero - 2 if zero > 1 else zero + 1
    for e in (dequantized(quantized(zero, dtype), zero), dequantized(quantized(zero, dtype), other)):
        short = simplify_quantized(e)
        np.testing.assert_array_equal(run(short), run(e))
        assert not np.signbit(run(short)[run(short) == 0]).any()
        assert not any(isinstance(x, Cast) for x in walk_expr(short))
        assert operations(short) < operations(e)


@pytest.mark.parametrize("limits", [(128, 255), (0, 40), (90, 91), (255, 255)])
def test_clipped_bytes(limits: tuple[int, int]) -> None:
    q = quantized(128, dtypes.uint8)
    clipped = op("min", op("max", q, number(limits[0], dtypes.uint8)), number(limits[1], dtypes.uint8))
    for e in (clipped, dequantized(clipped, 128)):
        short = simplify_quantized(e)
        np.testing.assert_array_equal(run(short), run(e))
        assert not any(isinstance(x, Op) and x.name in ("min", "max") for x in walk_expr(short))


@pytest.mark.parametrize(
    "e",
    [
        Cast(Cast(op("clamp", X, number(0), number(255)), I32), dtypes.uint8),  # not rounded
        Cast(op("clamp", op("round", X), number(0.5), number(9)), I32),  # a limit between integers
        op("add", op("clamp", op("round", X), number(0), number(255)), number(0.25)),
        op(
            "sub", Cast(op("clamp", op("round", X), number(0), number(255)), dtypes.uint8), number(9, dtypes.uint8)
        ),  # wraps
        Cast(Cast(op("clamp", op("round", X), number(0), number(300)), I32), dtypes.uint8),  # wraps
        op("add", op("clamp", op("round", X), number(0), number(1 << 20)), number(1 << 20)),  # may round
    ],
)
def test_what_stays(e: Expr) -> None:
    assert simplify_quantized(e) == e


def test_functions_without_quantized_numbers_are_themselves() -> None:
    count = const(4)
    block = Block("Y", (Axis("i", count),), (var("k"),), "Y", (var("i"),), op("round", X))
    func = Func("f", (Buffer("X", F32, (count,)), Buffer("Y", F32, (count,))), 1, (), Loop("k", count, block))
    assert fold_quantized(func, detect_host()) is func


def test_inside_an_index_the_byte_stays_one() -> None:
    def looked_up(q: Expr) -> Load:
        return Load("T", (of_atom(Dyn(Cast(q, dtypes.int64))),), dtypes.uint8)

    again = quantized(3, dtypes.uint8)
    short = simplify_quantized(looked_up(again))
    assert short == looked_up(simplify_quantized(again))
    assert isinstance(simplify_quantized(again), Cast)
    assert simplify_quantized(short) == short
