"""Tiles of an open number of rows: their sums begin in all rows, and what a buffer holds already stays."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.lowering.lowered import TARGET


def _tiles(before: str = "", value: str = "float32(0.0)", room: int = 4) -> Func:
    """Sums of the rows of A, four at a time; ``before``: what is done with the tile first."""
    return parse_func(f"""
def f(m: dim, A: float32[m, 8], C: out(float32[m])):
    for o in range((m + 3)//4):
        t = local(float32[{room}])
{before}
        for i0 in unrolled(min(m - o*4, 4)):
            with block("zero", a=spatial(m, i0 + o*4), b=spatial(m, o*4)):
                t[a - b] = {value}
        for k in range(8):
            for i in unrolled(min(m - o*4, 4)):
                with block("t", a=spatial(m, i + o*4), b=spatial(m, o*4), c=reduce(8, k)):
                    t[a - b] = add(t[a - b], A[a, c])
        for i1 in unrolled(min(m - o*4, 4)):
            with block("C", a=spatial(m, i1 + o*4), b=spatial(m, o*4)):
                C[a] = t[a - b]
""")


def _loop(func: Func, name: str) -> str:
    return next(x.strip() for x in str(prepare(func, TARGET)).splitlines() if f"for {name} in" in x)


@pytest.mark.parametrize("room", [4, 6])
def test_all_rows_of_a_tile_begin(room: int) -> None:
    func = _tiles(room=room)
    assert _loop(func, "i0") == "for i0 in unrolled(4):"
    assert "min(" in _loop(func, "i")
    kernel = build(func)
    for m in (0, 1, 4, 7):
        a = np.arange(m * 8, dtype=np.float32).reshape(m, 8)
        (got,) = kernel([a], {"m": m}, 1)
        np.testing.assert_array_equal(got, a.sum(1))


PUT = """
        for j in unrolled(4):
            with block("put", a=spatial(4, j)):
                t[a] = float32(1.0)
"""


@pytest.mark.parametrize(
    "func",
    [
        _tiles(PUT),  # rows behind the last hold something
        _tiles(value="A[a, 0]"),  # there are no others to begin with
    ],
    ids=["used", "read"],
)
def test_others_begin_as_they_did(func: Func) -> None:
    assert _loop(func, "i0") in str(func)
