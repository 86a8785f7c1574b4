"""Arrays for measuring: valid for what the function does with them, free of values that change a CPU's speed."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.autotune.measure.inputs import FLAVOURS, index_limits, make_inputs
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder
from tilewright.tensor_ir.ir import Func


def gather(rows: int = 7, offset: bool = False) -> Func:
    table = placeholder("T", (rows, 4), dtypes.float32)
    where = placeholder("W", (50,), dtypes.int64)
    if not offset:
        return build_func("gather", [table, where], [compute("G", (50, 4), lambda i, j: table[where[i].as_index(), j])])
    half = compute("H", (50,), lambda i: op("div", where[i], 2))
    out = compute("G", (50, 4), lambda i, j: table[half[i].as_index(), j])
    return build_func("gather", [table, where], [out], [half])


def elementwise(make: object, dtype: DType = dtypes.float32) -> Func:
    a, b = placeholder("A", (1000,), dtype), placeholder("B", (1000,), dtype)
    return build_func("f", [a, b], [compute("C", (1000,), lambda i: make(a[i], b[i]))])  # type: ignore[operator]


def test_positions_lie_inside() -> None:
    _, where = make_inputs(gather(), {}, 0)
    assert where.min() >= 0
    assert where.max() <= 6
    assert len(np.unique(where)) > 3


def test_positions_through_a_stage() -> None:
    assert index_limits(gather(offset=True), {}) == {"W": 7, "H": 7}


def test_symbolic_extents() -> None:
    table = placeholder("T", (var("n"),), dtypes.float32)
    where = placeholder("W", (9,), dtypes.int32)
    func = build_func("g", [table, where], [compute("G", (9,), lambda i: table[where[i].as_index()])])
    assert index_limits(func, {"n": 3}) == {"W": 3}
    assert make_inputs(func, {"n": 3}, 0)[1].max() < 3


def test_divisors_are_not_zero() -> None:
    assert (make_inputs(elementwise(lambda x, y: op("div", x, y), dtypes.int32), {}, 0)[1] > 0).all()
    a, b = make_inputs(elementwise(lambda x, y: x / y), {}, 0)
    assert b.min() >= 0.5
    assert a.min() < 0


def test_roots_and_logarithms_get_positive_values() -> None:
    a, b = make_inputs(elementwise(lambda x, y: op("sqrt", x + 1.0) + op("log", y)), {}, 0)
    assert a.min() > 0
    assert b.min() > 0


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_tiny_values(flavour: object) -> None:
    for a in make_inputs(elementwise(lambda x, y: x + y), {}, 3, flavour):  # type: ignore[arg-type]
        assert np.abs(a).min() >= 1e-3
        assert np.isfinite(a).all()
        assert len(np.unique(a)) > 900


def test_the_same_seed_gives_the_same_arrays() -> None:
    func = elementwise(lambda x, y: x + y)
    first, again, other = (make_inputs(func, {}, s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL if t is not dtypes.string], ids=str)
def test_every_type(dtype: DType) -> None:
    a = placeholder("A", (64,), dtype)
    func = build_func("f", [a], [compute("C", (64,), lambda i: a[i])])
    (array,) = make_inputs(func, {}, 0)
    assert array.dtype == dtype.numpy
    assert array.shape == (64,)
    assert len(np.unique(array.astype(np.complex128 if dtype.kind == "c" else np.float64))) > 1
