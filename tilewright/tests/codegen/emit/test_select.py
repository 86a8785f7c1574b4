"""Selects with real branches, and modules that break LLVM's rules."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import compile_object
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Buffer, Const, Func, Index, Load, Loop, Op, Select, Store
from tilewright.tests.codegen.helpers import emitted, nest

F32 = dtypes.float32


@pytest.mark.parametrize("divisor", [0.0, 4.0])
def test_a_scalar_branch_beside_a_vector_branch(divisor: float) -> None:
    a, s, c = Buffer("A", F32, (const(8),)), Buffer("S", F32, (const(1),)), Buffer("C", F32, (const(8),))
    scalar, element = Load("S", (const(0),), F32), Load("A", (var("x"),), F32)
    zero = Op("equal", (scalar, Const(0.0, F32)), dtypes.bool_)
    value = Select(zero, scalar, Op("div", (element, scalar), F32))
    data = np.arange(8, dtype=np.float32)
    (got,) = build(Func("f", (a, s, c), 1, (), nest(value, c, 8)))([data, np.array([divisor], np.float32)])
    np.testing.assert_array_equal(got, data / divisor if divisor else np.zeros(8))


def test_a_module_that_breaks_the_rules_is_refused() -> None:
    text = """
    define i32 @f(i1 %c) {
    entry:
      br i1 %c, label %a, label %b
    a:
      %x = add i32 1, 2
      br label %b
    b:
      ret i32 %x
    }
    """
    with pytest.raises(InternalError, match="codegen: LLVM rejects the module"):
        compile_object(text, parse_target(None))


@pytest.mark.parametrize("rows", [2, 3])
def test_conditions_on_literals_are_decided_at_once(rows: int) -> None:
    a, c = Buffer("A", F32, (const(rows), const(8))), Buffer("C", F32, (const(rows), const(8)))
    y, x = var("y"), var("x")
    first = Op("less", (Index(y, dtypes.int64), Const(1, dtypes.int64)), dtypes.bool_)
    flipped = Op("logical_and", (first, Op("logical_not", (first,), dtypes.bool_)), dtypes.bool_)
    element = Load("A", (y, x), F32)
    value = Select(flipped, Const(7.0, F32), Select(first, element, Op("neg", (element,), F32)))
    body = Loop("y", const(rows), Loop("x", const(8), Store("C", (y, x), value), "vectorized"), "unrolled")
    func = Func("f", (a, c), 1, (), body)
    text = emitted(func, detect_host(), "f")
    assert not re.search(r"icmp \w+ i64 \d+, \d+$", text, re.MULTILINE)
    assert "phi" not in text
    data = np.arange(8 * rows, dtype=np.float32).reshape(rows, 8)
    (got,) = build(func)([data])
    np.testing.assert_array_equal(got, np.concatenate([data[:1], -data[1:]]))


def concatenation(channels: int, pixels: int, cpu: str | None) -> tuple[Func, str]:
    """``A[c, p]`` for the first channels, ``B[c - channels, p]`` for as many others, in one loop."""
    size = const(2 * channels * pixels)
    a, b, c = (Buffer(n, F32, (s,)) for n, s in (("A", size // 2), ("B", size // 2), ("C", size)))
    x = var("x")
    first = Op("less", (Index(x // pixels, dtypes.int64), Const(channels, dtypes.int64)), dtypes.bool_)
    value = Select(first, Load("A", (x,), F32), Load("B", (x - channels * pixels,), F32))
    func = Func("f", (a, b, c), 1, (), nest(value, c, 16))
    return func, emitted(func, detect_host() if cpu is None else parse_target(f"llvm -mcpu={cpu}"), "f")


@pytest.mark.parametrize(("channels", "pixels"), [(64, 196), (16, 49), (2, 56), (3, 13), (3, 25)])
def test_parts_of_two_tensors(channels: int, pixels: int) -> None:
    """Vectors that lie in one of them are loaded whole; others under a mask, whose address is in the tensor where no
    lane is on: a page that is not there costs a hundred times as much, although nothing is loaded from it."""
    func, text = concatenation(channels, pixels, "znver4")
    whole = channels * pixels % 16 == 0
    assert ("masked.load" in text) != whole
    assert whole or len(re.findall(r"select i1 %\w+, ptr %\w+, ptr %p[01]$", text, re.MULTILINE)) == 2
    assert "udiv" not in text
    data = [np.arange(channels * pixels, dtype=np.float32) + k for k in (0, 1000)]
    (got,) = build(func)(data)
    np.testing.assert_array_equal(got, np.concatenate(data))


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("divisor", [1, 3, 8, 24])
def test_quotients_are_compared(name: str, mirrored: bool, divisor: int) -> None:
    x, n = var("x"), const(77)
    a, c = Buffer("A", F32, (n,)), Buffer("C", F32, (n,))
    sides = (Index(x // divisor, dtypes.int64), Const(2, dtypes.int64))
    test = Op(name, sides[::-1] if mirrored else sides, dtypes.bool_)
    value = Select(test, Load("A", (x,), F32), Const(-1.0, F32))
    data = np.arange(77, dtype=np.float32)
    (got,) = build(Func("f", (a, c), 1, (), nest(value, c, 8)))([data])
    left, right = np.arange(77) // divisor, np.full(77, 2)
    holds = getattr(np, name)(*((right, left) if mirrored else (left, right)))
    np.testing.assert_array_equal(got, np.where(holds, data, -1))
