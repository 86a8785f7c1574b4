"""Functions on parts of larger arrays compute what they compute on arrays of their own; borders become zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr, var
from tilewright.lowering.subview import border_func, within
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, max_over, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.lowering.lowered import TARGET

N = var("n")


def _elementwise() -> Func:
    a = placeholder("A", (N, 5), dtypes.float32)
    return build_func("twice", [a], [compute("C", (N, 5), lambda i, j: a[i, j] + a[i, j])])


def _reduced() -> Func:
    a, k = placeholder("A", (N, 5), dtypes.float32), reduce_axis(5, "k")
    return build_func("rows", [a], [compute("C", (N,), lambda i: max_over(a[i, k], k))])


def _read_again() -> Func:
    a, k = placeholder("A", (N, 5), dtypes.float32), reduce_axis(5, "k")
    total = compute("C", (N,), lambda i: sum_over(a[i, k], k))
    return build_func("both", [a], [total, compute("D", (N, 5), lambda i, j: a[i, j] - total[i])])


@pytest.mark.parametrize("n", [1, 2, 7, 0])
@pytest.mark.parametrize("make", [_elementwise, _reduced, _read_again])
def test_parts(make: Callable[[], Func], n: int) -> None:
    func = make()
    rng = np.random.default_rng(n)
    outer: dict[str, tuple[IntExpr, ...]] = {"A": (N + 3, as_expr(11)), "C": (N + 2,), "D": (N + 1, as_expr(6))}
    if make is _elementwise:
        outer["C"] = N + 2, as_expr(9)
    moved = func
    for b in func.params:
        moved = within(moved, b.name, outer[b.name])
    verify(moved)
    assert parse_func(str(moved)) == moved
    big = rng.standard_normal(tuple(d.evaluate({"n": n}) for d in outer["A"])).astype(np.float32)
    own = np.ascontiguousarray(big[:n, :5])
    expected = interpret(func, [own], {"n": n})
    scheduled = default_trace(moved, TARGET).apply(moved)
    native = build(scheduled)([big], {"n": n})
    for results in (interpret(moved, [big], {"n": n}), interpret(scheduled, [big], {"n": n}), native):
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got[tuple(map(slice, want.shape))], want, rtol=1e-6)
    count = interpret(moved, [big], {"n": n})[0]
    assert np.count_nonzero(count) <= expected[0].size


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(
    ("begin", "end"), [((0, 1, 1, 0), (0, 1, 1, 0)), ((0, 0, 2, 0), (0, 3, 0, 0)), ((1, 1, 0, 1), (0,) * 4)]
)
def test_borders(begin: tuple[int, ...], end: tuple[int, ...], size: int) -> None:
    inner = (as_expr(2), N, as_expr(3), as_expr(9))
    shape = tuple(d + b + e for d, b, e in zip(inner, begin, end, strict=True))
    func = border_func(dtypes.float32, shape, begin, inner)
    verify(func)
    assert parse_func(str(func)) == func
    sizes = tuple(d.evaluate({"n": size}) for d in shape)
    kernel = build(default_trace(func, TARGET).apply(func))
    arrays, (out,) = kernel.arguments([], {"n": size})
    out[:] = 1.0
    kernel.run(arrays, {"n": size})
    expected = np.zeros(sizes, np.float32)
    middle = (d.evaluate({"n": size}) for d in inner)
    expected[tuple(slice(b, b + d) for b, d in zip(begin, middle, strict=True))] = 1.0
    np.testing.assert_array_equal(out, expected)
