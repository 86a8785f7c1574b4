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
