"""What a formula may ask of elements and indices: Python's own decisions are refused, ours compute."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.tensor_ir.compute import (
    Tensor,
    Val,
    build_func,
    compute,
    constant,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    not_equal,
    placeholder,
    reduce_axis,
    sum_over,
    where,
)
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Block, Func, Load, walk, walk_expr
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify

F32, I64 = dtypes.float32, dtypes.int64
N = 6
A = np.array([3, -1, 3, 7, -5, 0], np.float32)


def _func(formula: Callable[[Tensor, IntExpr], Val]) -> Func:
    x = placeholder("X", (N,), F32)
    f = build_func("f", [x], [compute("Y", (N,), lambda i: formula(x, i))])
    verify(f)
    assert parse_func(str(f)) == f
    return f


def _run(formula: Callable[[Tensor, IntExpr], Val]) -> list[object]:
    (y,) = interpret(_func(formula), [A], {})
    return list(y.tolist())


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, i: x[i] if x[i] > x[0] else x[0],
        lambda x, i: max(x[i], x[0]),
        lambda x, i: min(x[i], 0.0),
        lambda x, i: x[i] > 0 and x[i] < 3,
        lambda x, i: x[i] > 0 or x[i] < 3,
        lambda x, i: not x[i] > 0,
        lambda x, i: x[i] if x[i] == x[0] else x[0],
        lambda x, i: x[i] if x[i] != x[0] else x[0],
        lambda x, i: x[i] if 0 < x[i] < 3 else x[0],
        lambda x, i: x[i] if x[i] in (1.0, 2.0) else x[0],
        lambda x, i: x[i] if i else x[0],
        lambda x, i: x[i] if i % 2 else x[0],
    ],
)
def test_a_value_or_index_is_no_python_condition(formula: Callable[[Tensor, IntExpr], Val]) -> None:
    with pytest.raises(TypeError, match=r"is no Python condition|can be no Python condition: use where"):
        _func(formula)


@pytest.mark.parametrize(
    "compare",
    [
        lambda i: i == 0,
        lambda i: i != np.int64(3),
        lambda i: i % 2 == 0,
        lambda i: (i + 1) // 2 == 1,
        lambda i: maximum(i, 2) == 2,
        lambda i: 0 == i,  # noqa: SIM300 - that side too
        lambda i: i in (0, 1),
    ],
)
def test_python_does_not_compare_an_index(compare: Callable[[object], bool]) -> None:
    with pytest.raises(TypeError, match=r"index Y_i is not known .* use equal, not_equal, less"):
        _func(lambda x, i: x[i] if compare(i) else x[0])
    k = reduce_axis(3, "k")
    with pytest.raises(TypeError, match=r"(index|reduction axis) k is not known .* use equal, not_equal, less"):
        compare(k)


def test_order_of_indices_is_refused_too() -> None:
    with pytest.raises(TypeError, match="not supported between"):
        _func(lambda x, i: x[i] if i < 3 else x[0])  # type: ignore[operator]
    with pytest.raises(TypeError, match="reduction axis k is not known"):
        bool(reduce_axis(3, "k"))


def test_an_index_and_a_size_compare_as_before() -> None:
    i = var("i")
    assert i + 1 == var("i") + 1
    assert i != 0
    assert const(3) == 3
    assert const(3) == np.int64(3)
    assert i != "i"
    assert reduce_axis(3, "k") == reduce_axis(3, "k")
    assert hash(reduce_axis(3, "k")) == hash(reduce_axis(3, "k"))


def test_nothing_of_the_formula_stays_in_the_function() -> None:
    """A finished function compares like any other."""
    f = _func(lambda x, i: where(equal(i % 2, 0), x[maximum(i - 1, 0)], x[i]))
    (block,) = (s for s in walk(f.body) if isinstance(s, Block))
    loads = [i for e in walk_expr(block.value) if isinstance(e, Load) for i in e.indices]
    assert loads
    assert all(i != 0 for i in (*block.bindings, *block.indices, *loads))


def test_values_choose_and_compare() -> None:
    a = A.tolist()
    assert _run(lambda x, i: maximum(x[i], x[0])) == [max(v, a[0]) for v in a]
    assert _run(lambda x, i: minimum(x[i], 0.0, -1)) == [min(v, -1) for v in a]
    assert _run(lambda x, i: where(x[i] > x[0], x[i], x[0])) == [max(v, a[0]) for v in a]
    assert _run(lambda x, i: x[i] == x[0]) == [v == a[0] for v in a]
    assert _run(lambda x, i: x[i] != 3) == [v != 3 for v in a]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (equal, operator.eq), (not_equal, operator.ne), (less, operator.lt), (less_equal, operator.le),
        (greater, operator.gt), (greater_equal, operator.ge),
    ],
)  # fmt: skip
def test_comparisons_of_values_and_indices(ours: Callable[..., Val], theirs: Callable[[object, object], bool]) -> None:
    assert _run(lambda x, i: ours(x[i], x[0])) == [theirs(v, A[0]) for v in A]
    assert _run(lambda x, i: ours(i, 3)) == [theirs(i, 3) for i in range(N)]
    assert _run(lambda x, i: ours(3, i)) == [theirs(3, i) for i in range(N)]
    assert _run(lambda x, i: ours(i % 2, 1)) == [theirs(i % 2, 1) for i in range(N)]
    assert _run(lambda x, i: ours(x[i], i)) == [theirs(v, i) for i, v in enumerate(A)]


def test_the_greatest_of_indices_is_an_index() -> None:
    assert _run(lambda x, i: x[maximum(i - 1, 0)]) == [A[max(i - 1, 0)] for i in range(N)]
    assert _run(lambda x, i: x[minimum(i + 1, N - 1)]) == [A[min(i + 1, N - 1)] for i in range(N)]
    k = reduce_axis(3, "k")
    got = _run(lambda x, i: sum_over(x[minimum(i + k, N - 1)] * maximum(1.0, i), k))  # type: ignore[arg-type,return-value]
    assert got == [sum(A[min(i + k, N - 1)] for k in range(3)) * max(1, i) for i in range(N)]


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Y: the formula must give a value, got 1\.0; constant and index_value"):
        _func(lambda x, i: 1.0)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="the formula must give a value"):
        _func(lambda x, i: i)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=r"2\.5: expected a whole number, as the other operand is int64"):
        _func(lambda x, i: where(less(constant(1, I64), 2.5), x[i], x[0]))
    with pytest.raises(TypeError, match="select: the condition must be a value of a formula, got True"):
        _func(lambda x, i: where(1 < 2, x[i], x[0]))  # type: ignore[arg-type]
