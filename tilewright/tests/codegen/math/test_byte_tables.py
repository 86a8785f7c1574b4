"""Look-ups in tables of 256 bytes: the numbers at all widths, what they are made of, and what is no such look-up."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target, why_foreign
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, of_atom, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Buffer, Cast, Dyn, Expr, Func, Load
from tilewright.tests.codegen.helpers import emitted, nest

ZEN4 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
PERMUTE = "call <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512"


def place(dtype: DType = dtypes.uint8) -> IntExpr:
    byte: Expr = Load("A", (var("x"),), dtype)
    return of_atom(Dyn(Cast(byte if dtype == dtypes.uint8 else Cast(byte, dtypes.uint8), dtypes.int64)))


def looked_up(
    vector: int | None, n: IntExpr | None = None, dtype: DType = dtypes.uint8, to: DType = dtypes.uint8,
    entries: int = 256, at: IntExpr | None = None,
) -> Func:  # fmt: skip
    """``C[x] = T[A[x]]`` for ``A[n]``."""
    n = var("n") if n is None else n
    a, t, c = Buffer("A", dtype, (n,)), Buffer("T", to, (const(entries),)), Buffer("C", to, (n,))
    value = Load("T", (place(dtype) if at is None else at,), to)
    return Func("looked_up", (a, t, c), 1, tuple(sorted(n.free_vars())), nest(value, c, vector))


@pytest.mark.parametrize("vector", [None, 4, 16, 24, 64, 96, 128, 256])
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=nehalem", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_every_byte_at_every_width(vector: int | None, dtype: DType, target: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    run = build(looked_up(vector, dtype=dtype, to=dtypes.int8), parse_target(target))
    table = np.random.default_rng(0).permutation(256).astype(np.uint8).view(np.int8)
    for n in (1, 15, 16, 64, 129, 256):
        a = np.arange(256 - n, 256, dtype=np.uint8)
        (got,) = run([a.view(dtype.numpy), table], {"n": n})
        np.testing.assert_array_equal(got, table[a])


def test_is_what_the_interpreter_does() -> None:
    func = looked_up(16, const(40))
    a, table = np.arange(0, 240, 6, dtype=np.uint8), np.arange(255, -1, -1, dtype=np.uint8)
    (want,) = interpret(func, [a, table], {})
    np.testing.assert_array_equal(build(func)([a, table])[0], np.asarray(want))


@pytest.mark.parametrize(("vector", "permutes"), [(16, 2), (64, 2), (128, 4)])
def test_two_permutations_for_64_bytes(vector: int, permutes: int) -> None:
    text = emitted(looked_up(vector, const(2 * vector)), ZEN4)
    assert text.count(PERMUTE) == permutes
    assert text.count("load <64 x i8>, ptr") >= 4


def test_no_element_is_loaded_by_itself() -> None:
    assert "load i8" not in emitted(looked_up(64, const(128)), ZEN4)


@pytest.mark.parametrize(
    ("cpu", "vector", "shuffle"),
    [
        ("nehalem", 16, "call <16 x i8> @llvm.x86.ssse3.pshuf.b.128"),
        ("haswell", 16, "call <16 x i8> @llvm.x86.ssse3.pshuf.b.128"),
        ("haswell", 32, "call <32 x i8> @llvm.x86.avx2.pshuf.b"),
        ("skylake-avx512", 64, "call <64 x i8> @llvm.x86.avx512.pshuf.b.512"),
    ],
)
def test_sixteen_shuffles_for_a_register(cpu: str, vector: int, shuffle: str) -> None:
    """And fifteen choices between two of what they found."""
    text = emitted(looked_up(vector, const(vector)), parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"))
    assert text.count(shuffle) == 16
    assert text.count("= select ") == 15
    assert "vpermi2var" not in text


def test_other_cpus_load_elements() -> None:
    text = emitted(looked_up(16, const(32)), parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"))
    assert "pshuf" not in text


@pytest.mark.parametrize(
    "func",
    [
        looked_up(16, const(32), entries=255),
        looked_up(16, const(32), to=dtypes.float32),
        looked_up(16, const(32), entries=257, at=place() + 1),
        looked_up(16, const(32), at=of_atom(Dyn(Load("A", (var("x"),), dtypes.int32))), dtype=dtypes.int32),
    ],
    ids=["fewer", "floats", "moved", "int32"],
)
@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
def test_what_is_no_such_table(func: Func, cpu: str) -> None:
    text = emitted(func, parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"))
    assert "vpermi2var" not in text
    assert "pshuf" not in text
