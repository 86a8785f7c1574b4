"""Fetching panels ahead: which lines are fetched, when the rule asks for it, and that results do not change."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, var
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.machine.costs import GENERIC
from tilewright.machine.target import Target
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import default_trace, schedule_by_rule
from tilewright.schedule.rules.tiling.tile_size import best_mr
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.prefetching import prefetches
from tilewright.tensor_ir.compute import build_func, compute, max_over, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.hints import Prefetch, find_hint
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.schedule.kernels import packed_matmul

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 17, 1 << 23, 2)


def fetching(func: Func) -> list[Loop]:
    return [x for x in walk(func.body) if isinstance(x, Loop) and find_hint(x.hints, Prefetch)]


def by_hand(rows: IntLike, depth: int, step: int) -> Schedule:
    """Columns, row tiles, reduction: the loop over blocks of ``step`` reduction steps fetches ahead."""
    s = Schedule(packed_matmul(rows, 64, depth))
    m, n = s.loops("C")
    panel, column = s.split(n, (None, 16))
    tile, row = s.split(m, (None, 4))
    s.reorder(panel, tile, row, column)
    s.compute_at("acc", tile)
    s.reorder("k", "acc_m", "acc_ni")
    s.decompose_reduction("acc", "k")
    outer, _ = s.split("k", (None, step))
    s.prefetch(outer, "Bp")
    return s


def test_the_lines_fetched_in_one_panel_are_those_of_the_next():
    rows, depth, step = 16, 24, 4
    s = by_hand(rows, depth, step)
    (loop,) = fetching(s.func)
    (p,) = prefetches(s.func)[loop.var]
    assert p.buffer == "Bp"
    assert p.shared == ("C_m_0",)
    for panel in range(4):
        got = [
            p.offset.evaluate({"C_n_0": panel, "C_m_0": tile, loop.var: k})
            for tile in range(rows // 4)
            for k in range(depth // step)
        ]
        start = (panel + 1) * depth * 16
        assert got == list(range(start, start + depth * 16, 16))
    assert parse_func(str(s.func)) == s.func


def test_steps_past_the_next_panel_of_a_symbolic_number_of_rows_fetch_its_last_line():
    s = by_hand(var("m"), 24, 4)
    (loop,) = fetching(s.func)
    (p,) = prefetches(s.func)[loop.var]
    got = [p.offset.evaluate({"m": 40, "C_n_0": 1, "C_m_0": k // 6, loop.var: k % 6}) for k in range(40)]
    start, last = 2 * 24 * 16, 3 * 24 * 16 - 16
    assert got == [min(start + 16 * k, last) for k in range(40)]


def row_by_row(rows: IntLike) -> Func:
    """``C = A @ B`` of an open number of rows, each a tile of its own, with the default schedule of its columns."""
    s = Schedule(packed_matmul(rows, 4096, 512))
    m, column = s.loops("C")
    panel, column = s.split(column, (None, 16))
    s.reorder(panel, m, column)
    s.compute_at("acc", m)
    s.reorder("k", "acc_ni")
    s.decompose_reduction("acc", "k")
    s.prefetch("k", "Bp", steps=3)
    return s.func


def test_the_first_row_fetches_what_it_reads_soon_and_the_others_the_next_panel():
    func = row_by_row(var("m"))
    first, others = prefetches(func)["k"]
    assert (first.first, others.first) == (True, False)
    assert first.shared == others.shared == ("C_m",)
    at = {"m": 9, "C_n_0": 2, "C_m": 0, "k": 5}
    assert first.offset.evaluate(at) == (2 * 512 + 5 + 3) * 16
    panel = range(3 * 512 * 16, 4 * 512 * 16)
    assert {others.offset.evaluate({**at, "C_m": row, "k": k}) in panel for row in (1, 4, 8) for k in (0, 511)} == {
        True
    }
    text = emitted(func, detect_host())
    assert text.count("icmp eq") >= 1
    assert text.count("call void @llvm.prefetch") == 2
    (alone,) = prefetches(row_by_row(1))["k"]
    assert (alone.first, alone.shared) == (None, ())


def test_lines_are_counted_through_all_loops_of_the_reduction():
    s = by_hand(16, 24, 4)
    (loop,) = fetching(s.func)
    s.unannotate(loop.var, "prefetch")
    taps, inner = s.split(loop.var, (None, 3))
    s.prefetch(inner, "Bp")
    (p,) = prefetches(s.func)[inner]
    assert p.shared == ("C_m_0",)
    steps = [(tile, k) for tile in range(4) for k in range(6)]
    got = [p.offset.evaluate({"C_n_0": 1, "C_m_0": tile, taps: k // 3, inner: k % 3}) for tile, k in steps]
    assert got == list(range(2 * 24 * 16, 3 * 24 * 16, 16))


def test_nothing_is_fetched_where_the_loops_have_another_form():
    inner = Schedule(packed_matmul(16, 64, 24))
    inner.prefetch(inner.loops("acc")[-1], "Bp")  # the panel is not the next loop's: rows are outermost
    (p,) = prefetches(inner.func)[inner.loops("acc")[-1]]
    assert p.shared == ()
    alone = Schedule(packed_matmul(16, 64, 24))
    alone.prefetch("acc_m", "Bp")  # no loop around
    assert prefetches(alone.func) == {}
    other = by_hand(16, 24, 4)
    (loop,) = fetching(other.func)
    other.prefetch(loop.var, "acc")  # not a parameter
    assert prefetches(other.func) == {}
    other.prefetch(loop.var, "bias")  # not read inside
    assert prefetches(other.func) == {}


@pytest.mark.parametrize("kind", ["range", "vectorized"])
def test_nothing_is_fetched_inside_of_lanes(kind: str):
    """Each lane would fetch from another place; found by the fuzzer of traces with seed 1577."""
    func = parse_func(f"""
def f(A: float32[9, 8, 4], B: out(float32[8, 9, 4])):
    for y in range(9):
        for x in {kind}(8):
            for k in range(4, prefetch="A"):
                with block("B", a=spatial(8, x), b=spatial(9, y), c=spatial(4, k)):
                    B[a, b, c] = A[b, a, c]
""")
    assert ("k" in prefetches(func)) == (kind == "range")
    assert ("llvm.prefetch" in emitted(func, detect_host())) == (kind == "range")


@pytest.mark.parametrize(
    ("m", "n", "k", "fires"),
    [
        (64, 272, 96, True),
        (47, 257, 96, True),
        (64, 256, 16, False),  # the panels stay in cache
        (64, 256, 101, False),  # no divisor of the depth fits
    ],
)
def test_the_rule_fetches_large_panels_ahead(m: IntLike, n: int, k: int, fires: bool):
    func = packed_matmul(m, n, k)
    trace = default_trace(func, TARGET)
    after = trace.apply(func)
    assert bool(fetching(after)) == fires
    assert bool(prefetches(after)) == fires
    rng = np.random.default_rng(0)
    shapes = [tuple(d.evaluate({}) for d in b.shape) for b in func.params[:3]]
    inputs = [rng.integers(-3, 4, s).astype(np.float32) for s in shapes]
    host = detect_host()
    assert ("llvm.prefetch" in emitted(after, host, "k")) == fires
    (got,) = build(after)(inputs, {}, 2)
    a, packed, bias = inputs
    b = packed.transpose(1, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_array_equal(got, np.maximum(a @ b + bias, 0))


def test_of_two_large_operands_the_one_that_rows_read_again_is_fetched():
    s = schedule_by_rule(packed_matmul(400, 320, 384), TARGET, FixedDecider({}))
    assert {find_hint(x.hints, Prefetch) for x in fetching(s.func)} == {Prefetch(("Bp",))}


WIDE = Target("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512f,+fma", 512, 32, 32768, 1 << 17, 1 << 23, 2)


def lines_fetched(func: Func) -> list[tuple[int, ...]]:
    return [p.lines for (p,) in prefetches(func).values()]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (64, [(0,)]),  # whole tiles enough for a line a step
        (25, [(0, 16)]),  # one tile, whose steps fetch the two lines of a step of the next panel, and a rest
        (14, []),  # the panel is read once
        ("m", [(0,), (0,)]),  # whole tiles, and the rest, which may be all that there is
    ],
)
def test_panels_of_two_lines_a_step(rows: IntLike, lines: list[tuple[int, ...]]):
    func = packed_matmul(var(rows) if isinstance(rows, str) else rows, 1024, 96, 32)
    s = schedule_by_rule(func, WIDE, FixedDecider({}))
    assert lines_fetched(s.func) == lines
    if lines == [(0, 16)]:
        ((p,),) = prefetches(s.func).values()
        (loop,) = fetching(s.func)
        first = dict.fromkeys(p.offset.free_vars(), 0)
        at = [p.offset.evaluate({**first, loop.var: k}) for k in range(96)]
        assert at == list(range(96 * 32, 2 * 96 * 32, 32))


def test_the_decision_turns_it_off():
    s = schedule_by_rule(packed_matmul(64, 272, 96), TARGET, FixedDecider({"acc.ahead": 0}))
    assert not fetching(s.func)


def test_a_step_fetches_what_a_later_one_reads():
    s = by_hand(4, 24, 4)
    (loop,) = fetching(s.func)
    s.prefetch(loop.var, "Bp", "A", steps=3)
    panels, rows = prefetches(s.func)[loop.var]
    assert (panels.buffer, panels.lines) == ("Bp", (0, 16, 32, 48))
    assert panels.offset.evaluate({"C_n_0": 2, "C_m_0": 0, loop.var: 1}) == 2 * 24 * 16 + (1 + 3) * 4 * 16
    assert (rows.buffer, rows.lines) == ("A", (0,))
    assert rows.offset.evaluate({"C_n_0": 2, "C_m_0": 0, loop.var: 1}) == (1 + 3) * 4
    assert 'prefetch="Bp, A + 3"' in str(s.func)
    assert parse_func(str(s.func)) == s.func
    assert s.trace.apply(packed_matmul(4, 64, 24)) == s.func


@pytest.mark.parametrize(("features", "steps"), [("", None), (",+amx-tile", 3072 // (64 * 4))])
def test_a_row_fetches_later_steps_where_that_was_measured(features: str, steps: int | None):
    target = dataclasses.replace(WIDE, features=WIDE.features + features)
    s = schedule_by_rule(packed_matmul(1, 1024, 96, 64), target, FixedDecider({}))
    assert '"acc.ahead", candidates=(0, 1024, 2048, 3072, 4096)' in str(s.trace)
    hints = [find_hint(x.hints, Prefetch) for x in fetching(s.func)]
    assert hints == ([] if steps is None else [Prefetch(("Bp",), steps)])


@pytest.mark.parametrize(("features", "few"), [("", 0), (",+amx-tile", 3072 // (32 * 4))])
def test_rows_of_an_open_number_fetch_in_all_of_their_nests(features: str, few: int):
    """Few rows wait for the weight as one does, and what they multiply, which other panels read again, is left out.
    Tiles of many rows are two nests, with the partial one."""
    target = dataclasses.replace(WIDE, features=WIDE.features + features)
    b = GraphBuilder()
    x = b.input("x", "float32", ("n", 96))
    weight = np.random.default_rng(0).standard_normal((96, 1024)).astype(np.float32)
    graph = b.build(b.op("MatMul", x, weight))
    done = tilewright.compile(graph, target=target, stop_after="lower", progress=False)
    (func,) = done.funcs.values()
    s = schedule_by_rule(func, target, FixedDecider({}))
    hints = [find_hint(x.hints, Prefetch) for x in fetching(s.func)]
    assert hints == [Prefetch(("c1",), few)] * 3


def test_tile_heights_waste_few_rows():
    assert [best_mr(n, 6, GENERIC) for n in (1, 5, 6, 12, 14, 56)] == [1, 5, 6, 6, 5, 4]
    assert [best_mr(n, 6, GENERIC) for n in (64, 128, 197)] == [6, 6, 6]
    assert best_mr(128, 4, GENERIC) == 4


ROWS = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 1024, 1 << 10, 1 << 12, 1)
"""Caches so small that the functions here are large."""


def softmax(n: int, m: int) -> Func:
    x = placeholder("X", (n, m), dtypes.float32)
    r1, r2 = reduce_axis(m, "k1"), reduce_axis(m, "k2")
    top = compute("top", (n,), lambda i: max_over(x[i, r1], r1))
    e = compute("e", (n, m), lambda i, j: op("exp", x[i, j] - top[i]))
    total = compute("total", (n,), lambda i: sum_over(e[i, r2], r2))
    return build_func("softmax", [x], [compute("Y", (n, m), lambda i, j: e[i, j] / total[i])], [top, e, total])


@pytest.mark.parametrize(
    ("n", "m", "fires"),
    [
        (40, 64, True),
        (37, 61, True),
        (8, 64, False),  # the last-level cache holds it
        (40, 320, False),  # a row is too long to stay until it is used
    ],
)
def test_a_long_stage_fetches_the_next_row(n: int, m: int, fires: bool):
    func = softmax(n, m)
    s = schedule_by_rule(func, ROWS, FixedDecider({}))
    assert bool(prefetches(s.func)) == fires
    assert parse_func(str(s.func)) == s.func
    if fires:
        ((fetched,),) = prefetches(s.func).values()
        assert fetched.shared == ()
        first = dict.fromkeys(fetched.offset.free_vars(), 0)
        assert fetched.offset.evaluate(first) == m  # row 0 fetches the first line of row 1
    x = np.random.default_rng(0).standard_normal((n, m)).astype(np.float32)
    (got,) = build(s.func)([x])
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_the_decision_turns_that_off_too():
    s = schedule_by_rule(softmax(40, 64), ROWS, FixedDecider({"e.ahead": 0}))
    assert not prefetches(s.func)
