"""Copies of a long function or a look-up that are computed at once: which are, and that they compute the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target, why_foreign
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, of_atom, var
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import (
    Axis,
    Block,
    Buffer,
    Cast,
    Const,
    Dyn,
    Expr,
    Func,
    Index,
    Load,
    Loop,
    LoopKind,
    Op,
    Select,
)
from tilewright.tests.codegen.helpers import emitted

F32 = dtypes.float32
Y, X = var("y"), var("x")
ELEMENT = Load("A", (Y, X), F32)
ROW = Load("B", (Y,), F32)


def exp(e: Expr) -> Expr:
    return Op("exp", (e,), F32)


def less(a: Expr, b: Expr) -> Expr:
    return Op("less", (a, b), dtypes.bool_)


def kernel(rows: int, value: Expr, lanes: int = 8, kind: LoopKind = "unrolled") -> Func:
    """``C[y, x] = value`` with the rows written out."""
    a, b = Buffer("A", F32, (const(rows), const(lanes))), Buffer("B", F32, (const(rows),))
    c = Buffer("C", F32, (const(rows), const(lanes)))
    axes = (Axis("y", const(rows)), Axis("x", const(lanes)))
    block = Block("C", axes, (var("i"), var("j")), "C", (Y, X), value)
    body = Loop("i", const(rows), Loop("j", const(lanes), block, "vectorized"), kind)
    return Func("f", (a, b, c), 1, (), body)


def test_the_hint_says_how_many() -> None:
    most = detect_host().costs.joined_calls
    assert f"for i in unrolled(4, joined={most}):" in str(prepare(kernel(4, exp(ELEMENT)), detect_host()))
    for other in (kernel(4, ELEMENT), kernel(4, exp(ELEMENT), kind="serial"), kernel(4, exp(ELEMENT), lanes=12)):
        assert "joined" not in str(prepare(other, detect_host()))


def widths(func: Func) -> list[int]:
    """Lanes of the calls of exp, in order."""
    text = emitted(func, detect_host(), "f")
    return [int(n) for n in re.findall(r"call <(\d+) x float> @tw.exp", text)]


@pytest.mark.parametrize(("rows", "expected"), [(1, [8]), (2, [16]), (3, [16, 8]), (4, [32]), (7, [32, 16, 8])])
def test_copies_are_joined_by_powers_of_two(rows: int, expected: list[int]) -> None:
    assert widths(kernel(rows, exp(ELEMENT))) == expected
    assert widths(kernel(rows, exp(ELEMENT), kind="serial")) == [8]


VALUES: dict[str, Expr] = {
    "one for each row": exp(ROW),
    "the same for all": exp(Const(0.5, F32)),
    "used twice": Op("mul", (ELEMENT, exp(ELEMENT)), F32),
    "added to a product": Op("add", (exp(ELEMENT), Op("mul", (ROW, ELEMENT), F32)), F32),
    "of an index": exp(Cast(Index(Y * 8 + X, dtypes.int64), F32)),
    "of a select": exp(Select(less(ELEMENT, ROW), ELEMENT, Const(-np.inf, F32))),
    "of a function": exp(Op("neg", (exp(ELEMENT),), F32)),
    "compared": Cast(less(exp(ELEMENT), ROW), F32),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
@pytest.mark.parametrize("rows", [3, 4, 6])
@pytest.mark.parametrize("lanes", [4, 8, 12])
def test_they_compute_the_same(value: Expr, rows: int, lanes: int) -> None:
    func = kernel(rows, value, lanes)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((rows, lanes)).astype(np.float32), rng.standard_normal(rows).astype(np.float32)]
    np.testing.assert_allclose(build(func)(data)[0], interpret(func, data, {})[0], rtol=1e-6)


def test_what_may_not_be_read_is_not_read() -> None:
    outside = Load("A", (Y - 1, X), F32)
    value = Select(less(Index(Y, dtypes.int64), Const(1, dtypes.int64)), ROW, exp(outside))
    func = kernel(4, value)
    assert set(widths(func)) <= {8}
    data = [np.ones((4, 8), np.float32), np.ones(4, np.float32)]
    np.testing.assert_allclose(build(func)(data)[0], interpret(func, data, {})[0], rtol=1e-6)


def test_a_copy_that_reads_what_another_writes_waits() -> None:
    assert widths(kernel(4, exp(Load("C", (Y, X), F32)))) == [8] * 4


# -- look-ups --------------------------------------------------------------------------------------------------------
AVX2 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"
U8 = dtypes.uint8


def byte(e: Expr) -> Expr:
    """``e`` as a byte, whatever it is."""
    return Cast(Cast(Op("clamp", (e, Const(0.0, F32), Const(255.0, F32)), F32), dtypes.int32), U8)


def looked_up(of: Expr) -> Expr:
    return Load("T", (of_atom(Dyn(Cast(of, dtypes.int64))),), U8)


def times(e: Expr, factor: float) -> Expr:
    return Op("mul", (e, Const(factor, F32)), F32)


def bytes_kernel(rows: int, value: Expr, lanes: int) -> Func:
    """``C[y, x] = value`` of bytes, with the rows written out; ``T`` is the table."""
    a, b = Buffer("A", F32, (const(rows), const(lanes))), Buffer("B", F32, (const(rows),))
    t, c = Buffer("T", U8, (const(256),)), Buffer("C", U8, (const(rows), const(lanes)))
    axes = (Axis("y", const(rows)), Axis("x", const(lanes)))
    block = Block("C", axes, (var("i"), var("j")), "C", (Y, X), value)
    body = Loop("i", const(rows), Loop("j", const(lanes), block, "vectorized"), "unrolled")
    return Func("f", (a, b, t, c), 1, (), body)


BYTES: dict[str, Expr] = {
    "a look-up": looked_up(byte(times(ELEMENT, 90.0))),
    "of a function": looked_up(byte(times(exp(ELEMENT), 40.0))),
    "of one for each row": looked_up(byte(times(ROW, 90.0))),
    "of a look-up": looked_up(looked_up(byte(times(ELEMENT, 90.0)))),
    "two": Op("bit_or", (looked_up(byte(times(ELEMENT, 90.0))), looked_up(byte(times(ROW, 50.0)))), U8),
    "beside a function": Op("bit_or", (looked_up(byte(times(ELEMENT, 90.0))), byte(exp(ELEMENT))), U8),
    "under a select": Select(less(ELEMENT, ROW), looked_up(byte(times(ELEMENT, 90.0))), Const(7, U8)),
}


@pytest.mark.parametrize("value", BYTES.values(), ids=list(BYTES))
@pytest.mark.parametrize("rows", [3, 6])
@pytest.mark.parametrize("lanes", [8, 12, 16])
@pytest.mark.parametrize("target", ["llvm", AVX2, "llvm -mcpu=x86-64"])
def test_look_ups_find_the_same(value: Expr, rows: int, lanes: int, target: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    func = bytes_kernel(rows, value, lanes)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 3, (rows, lanes)).astype(np.float32), rng.uniform(0, 3, rows).astype(np.float32)
    data = [a, b, rng.permutation(256).astype(np.uint8)]
    np.testing.assert_array_equal(build(func, parse_target(target))(data)[0], interpret(func, data, {})[0])


@pytest.mark.parametrize(("lanes", "shuffles"), [(8, 16), (16, 32), (32, 64)])
def test_copies_fill_a_register_of_bytes(lanes: int, shuffles: int) -> None:
    """Four rows of 8 bytes take one look-up of 32, four of 16 two."""
    text = emitted(bytes_kernel(4, BYTES["a look-up"], lanes), parse_target(AVX2), "f")
    assert text.count("call <32 x i8> @llvm.x86.avx2.pshuf.b") == shuffles


def test_an_index_that_takes_a_function_is_of_one_copy() -> None:
    place = of_atom(Dyn(Cast(byte(times(exp(ELEMENT), 9.0)), dtypes.int64)))
    a, c = (Buffer(name, F32, (const(4), const(8))) for name in "AC")
    t = Buffer("T", F32, (const(300),))
    axes = (Axis("y", const(4)), Axis("x", const(8)))
    block = Block("C", axes, (var("i"), var("j")), "C", (Y, X), exp(Load("T", (place,), F32)))
    func = Func("f", (a, t, c), 1, (), Loop("i", const(4), Loop("j", const(8), block, "vectorized"), "unrolled"))
    assert "joined" not in str(prepare(func, detect_host()))
    rng = np.random.default_rng(0)
    data = [rng.uniform(0, 2, (4, 8)).astype(np.float32), rng.uniform(0, 2, 300).astype(np.float32)]
    np.testing.assert_allclose(build(func)(data)[0], interpret(func, data, {})[0], rtol=1e-6)
