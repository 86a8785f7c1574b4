"""Narrow elements as words: loaded where they are neighbours in memory, interleaved where they are bytes of several
vectors, the same values in every form."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target, why_foreign
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Cast, Const, Expr, Func, Index, Load, Loop, Op, Select
from tilewright.tests.codegen.helpers import emitted, nest

I32, U8 = dtypes.int32, dtypes.uint8
COLUMNS = 192
TARGETS = ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512", "llvm"]


def row(r: int, step: int = 1, dtype: dtypes.DType = U8) -> Expr:
    return Cast(Load("A", (const(r), var("x") * step if step else const(5)), dtype), I32)


def bordered(r: int) -> Expr:
    """Row ``r`` in the first two blocks of 64, a constant behind them."""
    inside = Op("less", (Index(var("block"), dtypes.int64), Const(2, dtypes.int64)), dtypes.bool_)
    return Select(inside, row(r), Const(9, I32))


def joined(*parts: Expr) -> Expr:
    out = parts[0]
    for k, x in enumerate(parts[1:], 1):
        out = Op("bit_or", (out, Op("shift_left", (x, Const(8 * k, I32)), I32)), I32)
    return out


FORMS = {
    "four rows": joined(*map(row, range(4))),
    "two rows": Op("bit_or", (row(0), Op("shift_left", (row(3), Const(16, I32)), I32)), I32),
    "one row and one for all": Op("bit_or", (row(2), Op("shift_left", (row(1, 0), Const(16, I32)), I32)), I32),
    "three": joined(*map(row, range(3))),
    "a constant": joined(row(0), Const(200, I32), row(2), row(3)),
    "one for all": joined(row(0), row(1, 0), row(2), row(1, 0)),
    "neighbours": joined(*(Cast(Load("A", (const(0), var("x") + k), U8), I32) for k in range(4))),
    "turned": joined(row(3), row(2), row(1), row(0)),
}


def element(buffer: str, dtype: dtypes.DType, k: int, step: int) -> Expr:
    """Element ``k`` of word ``x``."""
    load = Load(buffer, (var("x") * step + k,), dtype)
    return Op("bits", (load,), I32) if dtype == dtypes.bfloat16 else Cast(load, I32)


def within(k: int, step: int, end: int, x: Expr) -> Expr:
    """``x`` where element ``k`` of a word is before ``end``, else 0."""
    at = Index(var("x") * step + k, dtypes.int64)
    return Select(Op("less", (at, Const(end, dtypes.int64)), dtypes.bool_), x, Const(0, I32))


def neighbours(dtype: dtypes.DType, end: int | None = None, moved: int = 0, alike: bool = False) -> Expr:
    """Words of neighbours, of those before ``end``, ``moved`` added to each; ``alike``: the first one everywhere."""
    per = 4 if dtype.bits == 8 else 2
    parts = [element("A", dtype, k, 0 if alike else per) for k in range(per)]
    if moved:
        parts = [Op("add", (x, Const(moved, I32)), I32) for x in parts]
    if end is not None:
        parts = [within(k, per, end, x) for k, x in enumerate(parts)]
    out = parts[0]
    for k, x in enumerate(parts[1:], 1):
        out = Op("bit_or", (out, Op("shift_left", (x, Const(32 // per * k, I32)), I32)), I32)
    return out


NEIGHBOURS = {
    "pairs": (dtypes.bfloat16, None, 0, False),
    "bytes": (U8, None, 0, False),
    "signed bytes": (dtypes.int8, None, 128, False),
    "shorts": (dtypes.uint16, None, 0, False),
    "pairs to 61": (dtypes.bfloat16, 61, 0, False),
    "bytes to 99": (U8, 99, 0, False),
    "signed bytes to 99": (dtypes.int8, 99, 128, False),
    "bytes for all": (U8, None, 0, True),
    "signed bytes for all": (dtypes.int8, None, 128, True),
    "pairs for all": (dtypes.bfloat16, None, 0, True),
}


def words_in_memory(form: str, vector: int | None, extent: int) -> Func:
    dtype = NEIGHBOURS[form][0]
    a, c = Buffer("A", dtype, (const(4 * COLUMNS),)), Buffer("C", I32, (const(extent),))
    return Func("words", (a, c), 1, (), nest(neighbours(*NEIGHBOURS[form]), c, vector))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vector", [None, 8, 16])
@pytest.mark.parametrize("form", NEIGHBOURS)
def test_words_as_they_lie(form: str, vector: int | None, target: str) -> None:
    where = parse_target(target)
    if why_foreign(where):
        pytest.skip("this machine cannot run it")
    dtype = NEIGHBOURS[form][0]
    raw = np.random.default_rng(1).integers(0, 1 << dtype.bits, 4 * COLUMNS)
    a = raw.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    for extent in (128, 75):
        func = words_in_memory(form, vector, extent)
        np.testing.assert_array_equal(build(func, where)([a])[0], interpret(func, [a], {})[0])


def test_a_word_in_memory_is_one_load() -> None:
    target = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
    plain = emitted(words_in_memory("pairs", 16, 128), target)
    assert "load <16 x i32>" in plain
    assert "zext" not in plain
    masked = emitted(words_in_memory("bytes to 99", 16, 128), target)
    assert "llvm.masked.load.v64i8" in masked
    assert "zext" not in masked
    alike = emitted(words_in_memory("bytes for all", 16, 128), target)
    assert "load i32" in alike
    assert "load i8" not in alike
    without = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    assert "llvm.masked.load.v64i8" not in emitted(words_in_memory("bytes to 99", 16, 128), without)


def words(value: Expr, vector: int | None, extent: int) -> Func:
    n: IntExpr = const(extent)
    a, c = Buffer("A", U8, (const(4), const(COLUMNS))), Buffer("C", I32, (n,))
    return Func("words", (a, c), 1, (), nest(value, c, vector))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vector", [None, 8, 16, 32, 64])
@pytest.mark.parametrize("form", FORMS)
def test_values(form: str, vector: int | None, target: str) -> None:
    where = parse_target(target)
    if why_foreign(where):
        pytest.skip("this machine cannot run it")
    a = np.random.default_rng(1).integers(0, 256, (4, COLUMNS)).astype(np.uint8)
    for extent in (128, 75):
        func = words(FORMS[form], vector, extent)
        np.testing.assert_array_equal(build(func, where)([a])[0], interpret(func, [a], {})[0])


@pytest.mark.parametrize("vector", [16, 64])
def test_a_border(vector: int) -> None:
    a = np.random.default_rng(1).integers(0, 256, (4, COLUMNS)).astype(np.uint8)
    a_, c = Buffer("A", U8, (const(4), const(COLUMNS))), Buffer("C", I32, (const(COLUMNS),))
    axes = (Axis("x", const(COLUMNS)), Axis("block", const(3)))
    at = var("io") * 64 + var("im") * vector + var("ii")
    block = Block("store", axes, (at, var("io")), "C", (var("x"),), joined(*map(bordered, range(4))))
    inner = Loop("im", const(64 // vector), Loop("ii", const(vector), block, "vectorized"))
    func = Func("words", (a_, c), 1, (), Loop("io", const(3), inner))
    assert "zext" not in emitted(func, detect_host()) or "avx2" not in detect_host().enabled
    np.testing.assert_array_equal(build(func)([a])[0], interpret(func, [a], {})[0])


def test_bytes_are_interleaved() -> None:
    target = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
    assert "zext" not in emitted(words(FORMS["four rows"], 64, 128), target)
    apart = joined(*(row(k, 2) for k in range(4)))
    assert "zext" in emitted(words(apart, 16, 64), target)


def test_two_bytes_are_interleaved_before_they_are_widened() -> None:
    """Two instructions for 16 of each, where each as 32 bits would take four, a shift and an or."""
    pairs = Op("bit_or", (row(0), Op("shift_left", (row(1), Const(16, I32)), I32)), I32)
    text = emitted(words(pairs, 16, 64), parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"))
    assert "zext <32 x i8>" in text
    assert "shl" not in text


def test_signed_bytes_and_other_shifts_are_no_words() -> None:
    target = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
    odd = Op("bit_or", (row(0), Op("shift_left", (row(1), Const(9, I32)), I32)), I32)
    twice = Op("bit_or", (row(0), row(1)), I32)
    for value in (odd, twice):
        assert "zext" in emitted(words(value, 64, 128), target)
