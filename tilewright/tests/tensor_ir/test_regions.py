"""Which nests write other parts of a buffer than each other."""

from __future__ import annotations

import pytest

from tilewright.tensor_ir.analysis.regions import write_apart
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.ir import Seq
from tilewright.tensor_ir.text import parse_func

TWO = """
def f(A: float32[{rows}, 4], B: out(float32[{rows}, 4])):
    for i in parallel({first}):
        for j in range(4):
            with block("B", i_=spatial({first}, i), j_=spatial(4, j)):
                B[{index}, j_] = A[i_, j_]
    for i2 in range({second}):
        for j2 in range(4):
            with block("B2", i2_=spatial({second}, i2), j2_=spatial(4, j2)):
                B[i2_ + {start}, j2_] = A[i2_, j2_]
"""


def apart(**sizes: object) -> bool:
    func = parse_func(TWO.format(**{"index": "i_", **sizes}))
    assert isinstance(func.body, Seq)
    first, second = func.body.stmts
    shapes = {b.name: b.shape for b in buffers(func)}
    found = write_apart(first, second, "B", shapes)
    assert write_apart(second, first, "B", shapes) == found
    return found


def test_a_loop_and_its_tail() -> None:
    assert apart(rows=13, first=12, second=1, start=12)


def test_one_row_in_both() -> None:
    assert not apart(rows=13, first=12, second=2, start=11)


def test_rows_between_each_other_count_as_shared() -> None:
    assert not apart(rows=24, first=12, second=1, start=5, index="i_*2")


@pytest.mark.parametrize(("rows", "first", "start"), [("n", "(n//6)*6", "(n//6)*6"), ("n", "n", "0")])
def test_a_symbolic_size_is_not_known_in_numbers(rows: str, first: str, start: str) -> None:
    assert not apart(rows=rows, first=first, second="(n % 6)", start=start)
