"""Loops whose step fills the registers: LLVM does not unroll them, and those of two steps are written out."""

from __future__ import annotations

import pytest

from tilewright.codegen.prepare.steps import prepare
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.lowering.lowered import TARGET


def _tile(rows: int, lanes: int, inner: str = "", depth: int = 8) -> Func:
    """A product with a register tile of ``rows`` x ``lanes`` and a loop of ``depth`` steps."""
    return parse_func(f"""
def f(A: float32[{rows}, {depth}], B: float32[{depth}, {lanes}], C: out(float32[{rows}, {lanes}])):
    t = local(float32[{rows}, {lanes}])
    for i0 in unrolled({rows}):
        for j0 in vectorized({lanes}):
            with block("zero", a=spatial({rows}, i0), b=spatial({lanes}, j0)):
                t[a, b] = float32(0.0)
    for k in range({depth}):
        for i in unrolled({rows}):
            for j in {inner or "vectorized"}({lanes}):
                with block("t", a=spatial({rows}, i), b=spatial({lanes}, j), c=reduce({depth}, k)):
                    t[a, b] = add(t[a, b], mul(A[a, c], B[c, b]))
    for i1 in unrolled({rows}):
        for j1 in vectorized({lanes}):
            with block("C", a=spatial({rows}, i1), b=spatial({lanes}, j1)):
                C[a, b] = t[a, b]
""")


def _loop(func: Func, name: str) -> str:
    return next(x.strip() for x in str(prepare(func, TARGET)).splitlines() if f"for {name} in" in x)


@pytest.mark.parametrize(("rows", "lanes"), [(14, 8), (7, 16), (5, 24), (14, 5)])
def test_a_tile_of_all_registers_is_left_as_it_is(rows: int, lanes: int) -> None:
    func = _tile(rows, lanes)
    assert _loop(func, "k") == "for k in range(8, rolled=True):"
    text = emitted(func, TARGET)
    assert text.count("llvm.loop.unroll.disable") == 1
    assert text.count("!llvm.loop !0") == 1


@pytest.mark.parametrize(("rows", "lanes"), [(6, 16), (1, 8)])
def test_others_are_llvms_to_unroll(rows: int, lanes: int) -> None:
    func = _tile(rows, lanes)
    assert _loop(func, "k") == "for k in range(8):"
    assert "llvm.loop" not in emitted(func, TARGET)


def test_a_loop_around_others_is_left_as_it_is() -> None:
    func = _tile(14, 8, "range")
    assert _loop(func, "k") == "for k in range(8):"
    text = emitted(func, TARGET)
    assert text.count("llvm.loop.unroll.disable") == 1  # that of k; those of j inside are innermost


def test_two_steps_of_a_full_tile_are_written_out() -> None:
    func = _tile(14, 8, depth=2)
    assert _loop(func, "k") == "for k in unrolled(2):"
    text = emitted(func, TARGET)
    assert text.count("call <8 x float> @llvm.fma") == 2 * 14
    assert "llvm.loop" not in text


@pytest.mark.parametrize(
    ("hint", "after"), [("", "unrolled(2)"), (', prefetch="B"', 'range(2, prefetch="B", rolled=True)')]
)
def test_two_steps_that_fetch_ahead_are_not_written_out(hint: str, after: str) -> None:
    """Lines are fetched at the start of a step of a loop."""
    func = parse_func(f"""
def f(A: float32[14, 2], B: float32[3, 2, 8], C: out(float32[3, 14, 8])):
    for z in range(3):
        t = local(float32[14, 8])
        for i0 in unrolled(14):
            for j0 in vectorized(8):
                t[i0, j0] = float32(0.0)
        for k in range(2{hint}):
            for i in unrolled(14):
                for j in vectorized(8):
                    with block("t", y=spatial(3, z), a=spatial(14, i), b=spatial(8, j), c=reduce(2, k)):
                        t[a, b] = add(t[a, b], mul(A[a, c], B[y, c, b]))
        for i1 in unrolled(14):
            for j1 in vectorized(8):
                C[z, i1, j1] = t[i1, j1]
""")
    assert _loop(func, "k") == f"for k in {after}:"
