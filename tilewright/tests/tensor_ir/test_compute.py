"""The compute language: operators, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import ScheduleError
from tilewright.tensor_ir.compute import (
    Tensor,
    build_func,
    compute,
    constant,
    highest,
    lowest,
    op,
    placeholder,
    reduce_axis,
    reduce_over,
    select,
    sum_over,
    update,
)
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, Block, walk
from tilewright.tensor_ir.verifier import verify

F32 = dtypes.float32


def _x(n: object = 4) -> Tensor:
    return placeholder("X", (n,), F32)  # type: ignore[arg-type]


def test_operators() -> None:
    x = _x()
    y = compute("Y", (4,), lambda i: -(1 - x[i]) * 2 / (x[i] + 0.5))
    z = compute("Z", (4,), lambda i: (x[i] <= 1) | ~((x[i] >= 3) & (2.0 / (x[i] + 1) < 1)))
    a = np.arange(4, dtype=np.float32)
    got = interpret(build_func("f", [x], [y, z]), [a], {})
    np.testing.assert_allclose(got[0], -(1 - a) * 2 / (a + 0.5), rtol=1e-6)
    np.testing.assert_array_equal(got[1], (a <= 1) | ~((a >= 3) & (2 / (a + 1) < 1)))


def test_an_output_may_feed_a_stage() -> None:
    x = _x()
    a = compute("A", (4,), lambda i: x[i] + 1)
    b = compute("B", (4,), lambda i: a[i] * 2)
    f = build_func("f", [x], [b, a], [a])
    verify(f)
    assert not any(isinstance(s, Alloc) for s in walk(f.body))
    got = interpret(f, [np.ones(4, np.float32)], {})
    assert got[0].tolist() == [4] * 4
    assert got[1].tolist() == [2] * 4


def test_a_reduction_over_no_axes_is_its_value() -> None:
    x = _x()
    f = build_func("f", [x], [compute("Y", (4,), lambda i: sum_over(x[i]))])
    verify(f)
    block = next(s for s in walk(f.body) if isinstance(s, Block))
    assert block.init is None


def test_init_may_depend_on_the_axes() -> None:
    x, b = _x(), placeholder("B", (3,), F32)
    r = reduce_axis(4, "r")
    f = build_func("f", [x, b], [compute("Y", (3,), lambda i: reduce_over("add", x[r], [r], b[i]))])
    verify(f)
    got = interpret(f, [np.ones(4, np.float32), np.arange(3, dtype=np.float32)], {})
    assert got[0].tolist() == [4, 5, 6]


def test_dims_are_collected_and_sorted() -> None:
    x = _x(var("n"))
    r = reduce_axis(var("a"), "r")
    f = build_func("f", [x], [compute("Y", (var("m"),), lambda i: sum_over(x[i + r], r))])
    assert f.dims == ("a", "m", "n")


def test_an_output_of_which_updates_write_a_part() -> None:
    x, y = _x(), placeholder("Y", (8,), dtypes.float32)
    change = update("u", y, (4,), lambda i: ((i * 2,), x[i]))
    f = build_func("f", [x], [y], [change])
    assert f.partial == ("Y",)
    verify(f)
    (got,) = interpret(f, [np.arange(4, dtype=np.float32)], {})
    np.testing.assert_array_equal(got, [0, 0, 1, 0, 2, 0, 3, 0])


def test_identities() -> None:
    assert lowest(dtypes.int8) == -128
    assert highest(dtypes.uint8) == 255
    assert lowest(dtypes.bool_) is False
    assert highest(dtypes.int64) == 2**63 - 1


def test_mixed_types_are_refused() -> None:
    x, i = _x(), placeholder("I", (4,), dtypes.int32)
    with pytest.raises(TypeError, match="add: element types differ: float32, int32"):
        x[0] + i[0]
    with pytest.raises(TypeError, match="exp: element type int32 is not accepted"):
        op("exp", i[0])
    with pytest.raises(TypeError, match="add: expected 2 arguments, got 1"):
        op("add", x[0])
    with pytest.raises(TypeError, match="select: element types differ"):
        select(x[0] < 1, x[0], i[0])
    with pytest.raises(TypeError, match="an index must be an integer, got float32"):
        x[x[0]]
    with pytest.raises(TypeError, match="X: expected 1 indices, got 2"):
        x[0, 0]


def test_an_operation_that_is_not_known_is_named() -> None:
    with pytest.raises(TypeError, match=r"op: no scalar operation 'maximum'.*; there are .*max,"):
        op("maximum", _x()[0], 0.0)


def test_bad_functions_are_refused() -> None:
    x = _x()
    a = compute("A", (4,), lambda i: x[i] + 1)
    b = compute("B", (4,), lambda i: a[i] * 2)
    with pytest.raises(ScheduleError, match=r"B reads A, which is neither input nor stage; .* stages=\[A\]"):
        build_func("f", [x], [b])
    with pytest.raises(ScheduleError, match="stage B reads A, which is a later stage"):
        build_func("f", [x], [a], [b, a])
    with pytest.raises(ScheduleError, match="tensor names are not unique: A"):
        build_func("f", [x], [b], [a, a])
    with pytest.raises(ScheduleError, match="a placeholder cannot be a stage"):
        build_func("f", [], [x])
    r = reduce_axis(4, "r")
    twice = [compute(n, (), lambda: sum_over(x[r], r)) for n in ("P", "Q")]
    with pytest.raises(ScheduleError, match="loop names are not unique: r"):
        build_func("f", [x], twice)
    with pytest.raises(ScheduleError, match="dim and loop names are not unique: r"):
        build_func("f", [_x(var("r"))], [compute("P", (), lambda: sum_over(x[r], r))])


def test_nan_literals_compare_equal() -> None:
    assert constant(float("nan"), F32).expr == constant(np.nan, F32).expr


def test_sizes_are_whole_numbers_of_any_library() -> None:
    a = placeholder("A", (np.int64(3), np.uint8(4)), dtypes.float32)
    assert a.shape == placeholder("A", (3, 4), dtypes.float32).shape
    assert reduce_axis(np.int32(4), "k") == reduce_axis(4, "k")
    assert compute("B", np.array([3, 4]), lambda i, j: a[i, j]).shape == a.shape


@pytest.mark.parametrize("size", [3.0, np.float32(3), True, np.True_, "n", None])
def test_other_sizes_are_refused(size: Any) -> None:
    words = f"expected whole numbers or expressions as sizes, got {size!r}"
    for who, make in (
        ("placeholder(A)", lambda: placeholder("A", (2, size), dtypes.float32)),
        ("reduce_axis(k)", lambda: reduce_axis(size, "k")),
        ("compute(B)", lambda: compute("B", (size,), lambda i: constant(1.0, dtypes.float32))),
    ):
        with pytest.raises(TypeError, match=re.escape(f"{who}: {words}")):
            make()
