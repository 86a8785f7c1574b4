"""Loops whose step fills the registers: LLVM does not unroll them, and those of two steps are written out."""

from __future__ import annotations

import pytest

from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.lowering.lowered import TARGET


def _tile(rows: int, lanes: int, inner: str = "", depth: int = 8) -> str:
    """LLVM IR of a product with a register tile of ``rows`` x ``lanes`` and a loop of ``depth`` steps."""
    return emitted(
        parse_func(f"""
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
"""),
        TARGET, "f",
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "lanes"), [(14, 8), (7, 16), (5, 24), (14, 5)])
def test_a_tile_of_all_registers_is_left_as_it_is(rows: int, lanes: int) -> None:
    text = _tile(rows, lanes)
    assert text.count("llvm.loop.unroll.disable") == 1
    assert text.count("!llvm.loop !0") == 1


@pytest.mark.parametrize(("rows", "lanes"), [(6, 16), (1, 8)])
def test_others_are_llvms_to_unroll(rows: int, lanes: int) -> None:
    assert "llvm.loop" not in _tile(rows, lanes)


def test_a_loop_around_others_is_left_as_it_is() -> None:
    text = _tile(14, 8, "range")
    assert text.count("llvm.loop.unroll.disable") == 1  # that of k; those of j inside are innermost


def test_two_steps_of_a_full_tile_are_written_out() -> None:
    text = _tile(14, 8, depth=2)
    assert text.count("call <8 x float> @llvm.fma") == 2 * 14
    assert "llvm.loop" not in text
