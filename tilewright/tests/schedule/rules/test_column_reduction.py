"""The rule for reductions over leading axes: which it takes, that rows are read in order, and that edges are right."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, var
from tilewright.machine.target import Target
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.tensor_ir.compute import build_func, compute, max_over, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func
from tilewright.tests.schedule.helper import check

N, M = var("n"), var("m")
SIZES: list[dict[str, int]] = [{"n": n, "m": m} for n, m in ((1, 1), (13, 70), (17, 8), (0, 9), (16, 0))]
TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 1 << 10, 1 << 11, 1 << 23, 1)
"""Caches so small that the functions here are large."""


def columns(rows: IntLike, width: IntLike) -> Func:
    """B[j] = sum over r of A[r, j]"""
    a, r = placeholder("A", (rows, width), dtypes.float32), reduce_axis(rows, "r")
    return build_func("columns", [a], [compute("B", (width,), lambda j: sum_over(a[r, j], r))])


def means(batch: IntLike, rows: int, width: IntLike) -> Func:
    """B[b, j] = relu(0.5 * sum over r of A[b, r, j])"""
    a, r = placeholder("A", (batch, rows, width), dtypes.float32), reduce_axis(rows, "r")
    total = compute("total", (batch, width), lambda b, j: sum_over(a[b, r, j], r))
    out = compute("B", (batch, width), lambda b, j: op("max", total[b, j] * 0.5, 0.0))
    return build_func("means", [a], [out], [total])


def planes(rows: int, columns_: int, width: int) -> Func:
    """B[j] = max over y, x of A[y, x, j]"""
    a = placeholder("A", (rows, columns_, width), dtypes.float32)
    y, x = reduce_axis(rows, "y"), reduce_axis(columns_, "x")
    return build_func("planes", [a], [compute("B", (width,), lambda j: max_over(a[y, x, j], y, x))])


def windows(rows: int, width: int) -> Func:
    """B[i, j] = sum over r of A[i + r, j]"""
    a, r = placeholder("A", (rows + 2, width), dtypes.float32), reduce_axis(3, "r")
    return build_func("windows", [a], [compute("B", (rows, width), lambda i, j: sum_over(a[i + r, j], r))])


TAKEN = {
    "divisible": columns(32, 128),
    "ragged": columns(37, 133),
    "fewer rows than go together": columns(5, 257),
    "symbolic, finished in place": means(N, 19, M),
    "symbolic rows": columns(N, 100),
    "finished in place, batch": means(3, 19, 72),
    "two axes": planes(5, 7, 70),
}
LEFT = {
    "small": columns(4, 64),
    "short rows": columns(64, 16),
    "windows, read more than once": windows(40, 64),
}


def _trace(func: Func, decisions: Mapping[str, int] = MappingProxyType({}), threads: int = 1) -> str:
    return schedule_by_rule(func, TARGET.with_threads(threads), FixedDecider(decisions)).trace.to_text()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str, threads: int) -> None:
    func = TAKEN[name]
    trace = _trace(func, threads=threads)
    assert ".flight" in trace
    check(func, trace, sizes=[{d: s[d] for d in func.dims} for s in SIZES])


@pytest.mark.parametrize("name", LEFT)
def test_left_to_other_rules(name: str) -> None:
    assert ".flight" not in _trace(LEFT[name])


@pytest.mark.parametrize("flight", [0, 2, 16])
@pytest.mark.parametrize("width", [64, 133])
def test_decisions(flight: int, width: int) -> None:
    func = columns(37, 133)
    trace = _trace(func, {"B.flight": flight, "B.columns": width})
    assert (f"factors=(None, {flight})" in trace) == (flight > 0)
    check(func, trace)


def test_threads_get_a_block_of_columns_each() -> None:
    func = columns(4096, 8192)
    big = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 1 << 15, 1 << 19, 1 << 23, 2)
    trace = schedule_by_rule(func, big, FixedDecider({})).trace.to_text()
    assert 'split("B_j_write", factors=(None, 2048))' in trace
    assert 'parallel("B_j_write_0")' in trace
