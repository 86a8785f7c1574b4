"""Rounding, a zero point, limits and the way into an integer as one: the value of the interpreter, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target, why_foreign
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Buffer, Cast, Const, Expr, Func, Load, Op
from tilewright.tests.codegen.helpers import apply_unary, emitted, nest

F32 = dtypes.float32
NUMBERS = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, -0.5, -1.5, -2.5, 126.5, 127.5, 128.5, -127.5, -128.5,
     -129.5, 254.5, 255.5, 256.5, 1e4, 32767.5, 32768.5, -32768.5, 65535.5, 2.0**22 + 0.5, 2.0**24 + 2, 2.0**31,
     -(2.0**31), 2.0**32, -(2.0**33), 3e38, -3e38, 1e-42, *np.arange(-300, 300, 7.3), *np.arange(-20.5, 20)],
    np.float32,
)  # fmt: skip
CASES = [
    (dtypes.uint8, 0, 0, 255), (dtypes.uint8, 128, 0, 255), (dtypes.uint8, 3, 3, 200), (dtypes.uint8, 255, 0, 255),
    (dtypes.int8, 0, -128, 127), (dtypes.int8, -7, -128, 127), (dtypes.int8, 5, 0, 100), (dtypes.int8, -100, -100, -3),
    (dtypes.uint16, 0, 0, 65535), (dtypes.int16, -9, -32768, 32767), (dtypes.uint8, -70000, 0, 255),
    (dtypes.int32, 0, -255, 255), (dtypes.int32, 1 << 20, -5, 1 << 21),
]  # fmt: skip
TARGETS = ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"]


def quantized(x: Expr, zero: int, low: int, high: int, to: DType) -> Expr:
    moved: Expr = Op("round", (x,), F32)
    if zero:
        moved = Op("add", (moved, Const(float(zero), F32)), F32)
    return Cast(Op("clamp", (moved, Const(float(low), F32), Const(float(high), F32)), F32), to)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vector", [None, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]} {c[2]}-{c[3]}")
def test_values(case: tuple[DType, int, int, int], vector: int | None, target: str) -> None:
    where = parse_target(target)
    if why_foreign(where):
        pytest.skip("this machine cannot run it")
    to, zero, low, high = case
    for data in (NUMBERS, np.resize(NUMBERS, 64 * -(-len(NUMBERS) // 64))):  # with a part of a vector, and without
        got = apply_unary(lambda x: quantized(x, zero, low, high, to), data, F32, to, vector, where)
        n = const(data.size)
        value = quantized(Load("A", (var("x"),), F32), zero, low, high, to)
        func = Func("f", (Buffer("A", F32, (n,)), Buffer("C", to, (n,))), 1, (), nest(value, Buffer("C", to, (n,))))
        np.testing.assert_array_equal(got, interpret(func, [data], {})[0])


@pytest.mark.parametrize(
    ("cpu", "vector", "wanted"),
    [("haswell", 32, ("fptosi", "avx2.packssdw", "avx2.packuswb")), ("znver4", 64, ("packuswb.512", "cvtps2dq.512")),
     ("znver4", 16, ("cvtps2dq.512",)), ("x86-64", 16, ("packssdw.128", "cvtps2dq"))],
)  # fmt: skip
def test_instructions(cpu: str, vector: int, wanted: tuple[str, ...]) -> None:
    n, to = const(128), dtypes.uint8
    value = quantized(Load("A", (var("x"),), F32), 7, 0, 255, to)
    body = nest(value, Buffer("C", to, (n,)), vector)
    func = Func("f", (Buffer("A", F32, (n,)), Buffer("C", to, (n,))), 1, (), body)
    text = emitted(func, parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"))
    for name in wanted:
        assert (name in text) == (name != "fptosi")


def test_other_cpus_round_as_before() -> None:
    n, to = const(64), dtypes.uint8
    value = quantized(Load("A", (var("x"),), F32), 0, 0, 255, to)
    func = Func("f", (Buffer("A", F32, (n,)), Buffer("C", to, (n,))), 1, (), nest(value, Buffer("C", to, (n,)), 4))
    text = emitted(func, parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1"))
    assert "roundeven" in text
    assert "fptosi" in text


def test_what_is_not_rounded_is_cut_off() -> None:
    def cut(x: Expr) -> Expr:
        return Cast(Op("clamp", (x, Const(-3.0, F32), Const(100.0, F32)), F32), dtypes.int8)

    data = NUMBERS[2:]
    want = np.clip(data, -3, 100).astype(np.int8)
    np.testing.assert_array_equal(apply_unary(cut, data, F32, dtypes.int8, 16), want)
