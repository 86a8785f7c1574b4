"""The rule for copies that read and write in different directions: which it takes, and that edges are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, const, var
from tilewright.core.arith.minmax import minimum as minimum_of
from tilewright.core.dtypes import DType
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import default_trace, schedule_by_rule
from tilewright.tensor_ir.analysis.prefetching import prefetches
from tilewright.tensor_ir.compute import Tensor, Val, build_func, compute, maximum, placeholder
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tests.schedule.helper import check

N, M = var("n"), var("m")
Formula: TypeAlias = Callable[[IntExpr, IntExpr, IntExpr, IntExpr], Val]
TARGET = detect_host().with_threads(2)


def transposed(n: IntLike, m: IntLike, dtype: DType = dtypes.float32) -> Func:
    """B[i, j] = A[j, i]"""
    a = placeholder("A", (m, n), dtype)
    return build_func("transposed", [a], [compute("B", (n, m), lambda i, j: a[j, i])])


def channels_last(n: IntLike, c: int, h: int, w: int) -> Func:
    """B[n, y, x, c] = A[n, c, y, x]"""
    a = placeholder("A", (n, c, h, w), dtypes.float32)
    return build_func("channels_last", [a], [compute("B", (n, h, w, c), lambda b, y, x, k: a[b, k, y, x])])


def panels(n: int, k: IntLike) -> Func:
    """B[o, k, i] = A[o*16 + i, k]"""
    a = placeholder("A", (n, k), dtypes.float32)
    return build_func("panels", [a], [compute("B", (n // 16, k, 16), lambda o, i, p: a[o * 16 + p, i])])


def scaled(n: int, m: int) -> Func:
    """B[i, j] = A[j, i] + A[j, i]"""
    a = placeholder("A", (m, n), dtypes.float32)
    return build_func("scaled", [a], [compute("B", (n, m), lambda i, j: a[j, i] + a[j, i])])


def channels_last_of(n: IntLike, c: IntLike, h: IntLike, w: IntLike) -> tuple[Tensor, tuple[IntLike, ...], Formula]:
    a = placeholder("A", (n, h, w, c), dtypes.float32)
    return a, (n, c, h, w), lambda b, k, y, x: a[b, y, x, k]


def relu_of(image: tuple[Tensor, tuple[IntLike, ...], Formula]) -> Func:
    """B[n, c, y, x] = max(A[n, y, x, c], 0)"""
    a, shape, read = image
    return build_func("relu", [a], [compute("B", shape, lambda *i: maximum(read(*i), 0.0), axis_names=list("nchw"))])


def narrowed(n: int, c: int, h: int, w: int) -> Func:
    """B[n, c, y, x] = bfloat16(A[n, y, x, c])"""
    a, shape, read = channels_last_of(n, c, h, w)
    formula = lambda *i: read(*i).cast(dtypes.bfloat16)  # noqa: E731
    return build_func("narrowed", [a], [compute("B", shape, formula, axis_names=list("nchw"))])


def added(n: int, c: int, h: int, w: int) -> Func:
    """B[n, c, y, x] = A[n, y, x, c] * D[c] + C[n, y, x, c] + E[n, c, y, x]: two operands across, two that are not"""
    a, shape, read = channels_last_of(n, c, h, w)
    b = placeholder("C", (n, h, w, c), dtypes.float32)
    d, e = placeholder("D", (c,), dtypes.float32), placeholder("E", shape, dtypes.float32)
    return build_func("added", [a, b, d, e], [compute(
        "B", shape, lambda i, k, y, x: read(i, k, y, x) * d[k] + b[i, y, x, k] + e[i, k, y, x], axis_names=list("nchw")
    )])  # fmt: skip


def mirrored(n: int, m: int) -> Func:
    """B[i, j] = A[min(j, m - 1 - j), i] + 1: a tile reads rows that lie far apart"""
    a = placeholder("A", (m, n), dtypes.float32)
    index = lambda j: minimum_of(j, const(m) - 1 - j)  # noqa: E731
    return build_func("mirrored", [a], [compute("B", (n, m), lambda i, j: a[index(j), i] + 1.0)])


OPERANDS = {
    "relu": relu_of(channels_last_of(1, 64, 9, 40)),
    "ragged": relu_of(channels_last_of(2, 21, 3, 19)),
    "batch": relu_of(channels_last_of(N, 16, 2, 40)),
    "least": relu_of(channels_last_of(1, 8, 1, 16)),
    "narrowed": narrowed(1, 40, 3, 17),
    "added": added(2, 24, 5, 36),
    "matrix": scaled(16, 70),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_transposed_for_each_tile(name: str) -> None:
    tiny = dataclasses.replace(TARGET, l1_bytes=1 << 8, l2_bytes=1 << 10)
    trace = default_trace(OPERANDS[name], tiny).to_text()
    assert "cache_read" in trace
    assert "transform_layout" in trace
    assert ("transpose_8x8_f32" in trace) == (name != "ragged")
    check(OPERANDS[name], trace, sizes=[{"n": n} for n in (0, 1, 3)])


TAKEN = {
    "divisible": transposed(16, 24),
    "ragged": transposed(19, 11),
    "ragged in one": transposed(32, 13),
    "symbolic": transposed(N, M),
    "channels last, fused": channels_last(2, 9, 3, 7),
    "channels last, batch": channels_last(N, 16, 2, 4),
    "channels last, one image": channels_last(1, 20, 8, 9),
    "panels": panels(32, 11),
}
LEFT = {
    "short rows": transposed(16, 7),
    "few channels": channels_last(1, 3, 8, 8),
    "other element type": transposed(16, 16, dtypes.float64),
    "arithmetic on short rows": scaled(64, 14),
    "arithmetic in the first-level cache": scaled(64, 32),
    "arithmetic on sizes of a call": relu_of(channels_last_of(1, var("c"), 9, 8)),
    "what a border mirrors": mirrored(40, 300),
    "one direction": channels_last(2, 16, 1, 1),
}


def _trace(func: Func) -> str:
    return default_trace(func, TARGET).to_text()


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    trace = _trace(TAKEN[name])
    assert "transpose_8x8_f32" in trace
    check(TAKEN[name], trace, sizes=[{"n": n, "m": m} for n, m in ((1, 1), (13, 8), (17, 40), (0, 9), (16, 0))])


def test_threads_share_the_whole_squares_of_one_image() -> None:
    """What is peeled off stays out of the way: a batch of one is no loop around both."""
    func = channels_last(1, 36, 64, 64)
    after = default_trace(func, TARGET).apply(func)
    shared = [s for s in walk(after.body) if isinstance(s, Loop) and s.kind == "parallel"]
    assert [s.extent.value() for s in shared] != [1]
    assert shared


@pytest.mark.parametrize("name", LEFT)
def test_left_to_other_rules(name: str) -> None:
    assert "tensorize" not in _trace(LEFT[name])


SMALL = dataclasses.replace(TARGET, l2_bytes=1 << 10, l3_bytes=1 << 12)
BLOCKS = {
    "one block": (transposed(32, 128), {}),
    "blocks": (transposed(96, 256), {}),
    "batch": (channels_last(3, 128, 1, 32), {}),
    "other sizes": (transposed(128, 256), {"B.run": 16, "B.depth": 64}),
}
WITHOUT = {
    "small": (transposed(16, 16), {}),
    "ragged": (transposed(33, 128), {}),
    "ragged the other way": (transposed(32, 130), {}),
    "symbolic": (transposed(N, 128), {}),
    "not asked for": (transposed(32, 128), {"B.run": 0}),
    "a size that does not divide": (transposed(32, 128), {"B.depth": 64}),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_large_ones_go_by_way_of_a_buffer(name: str) -> None:
    func, decisions = BLOCKS[name]
    trace = schedule_by_rule(func, SMALL, FixedDecider(decisions)).trace.to_text()
    assert "cache_write" in trace
    assert "transpose_8x8_f32" in trace
    assert 'key="stream"' in trace
    check(func, trace)


def test_the_rows_beside_a_few_are_fetched_while_those_are_transposed() -> None:
    s = schedule_by_rule(transposed(96, 1024), SMALL, FixedDecider({"B.run": 64, "B.depth": 32}))
    ((p,),) = prefetches(s.func).values()
    first = dict.fromkeys(p.offset.free_vars(), 0)
    assert p.offset.evaluate(first) == 32
    assert p.lines == tuple(row * 96 + last for row in range(8) for last in (15, 31))
    without = schedule_by_rule(transposed(96, 1024), SMALL, FixedDecider({"B.ahead": 0}))
    assert not prefetches(without.func)


@pytest.mark.parametrize("name", WITHOUT)
def test_others_do_not(name: str) -> None:
    func, decisions = WITHOUT[name]
    trace = schedule_by_rule(func, SMALL, FixedDecider(decisions)).trace.to_text()
    assert "cache_write" not in trace
    assert "transpose_8x8_f32" in trace
    check(func, trace, sizes=[{d: 9 for d in func.dims}])
