"""Stages of a recurrence are scheduled below the loops they share."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, var
from tilewright.machine.target import Target
from tilewright.schedule.rules.recurrence import RECURRENCE
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import (
    Recurrence,
    Val,
    build_func,
    compute,
    placeholder,
    reduce_axis,
    sum_over,
    update,
)
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.schedule.helper import random_args

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 2)


def linear_recurrence(chains: IntLike, steps: IntLike, size: int, coupled: bool = False) -> Func:
    """``h[c, s + 1] = R h[c, s] + x[c, s]``; with ``coupled``, chain c reads the state of chain 0."""
    x = placeholder("x", (chains, steps, size), dtypes.float32)
    r = placeholder("R", (size, size), dtypes.float32)
    state = compute("h", (chains, as_expr(steps) + 1, size), lambda c, s, j: x[c, 0 * s, j] * 0.0)
    k = reduce_axis(size, "k")
    product = compute(
        "Rh", (chains, steps, size), lambda c, s, j: sum_over(state[0 * c if coupled else c, s, k] * r[k, j], k)
    )
    step = update(
        "next", state, (chains, steps, size), lambda c, s, j: ((c, s + 1, j), product[c, s, j] + x[c, s, j]), (1,)
    )
    out = compute("out", (chains, size), lambda c, j: state[c, steps, j])
    shared = Recurrence((("chain", as_expr(chains)), ("step", as_expr(steps))), (product, step))
    return build_func("recurrence", [x, r], [out], [state, shared])


def scheduled(func: Func) -> Schedule:
    s = Schedule(func)
    assert RECURRENCE(s, "Rh", TARGET)
    verify(s.func)
    return s


def kinds(func: Func) -> dict[str, str]:
    return {x.var: x.kind for x in walk(func.body) if isinstance(x, Loop)}


@pytest.mark.parametrize(("chains", "steps", "size"), [(2, 3, 8), (1, 1, 1), (3, 5, 13), (2, var("n"), 17)])
def test_numbers_stay(chains: int, steps: IntLike, size: int):
    func = linear_recurrence(chains, steps, size)
    after = scheduled(func).func
    for n in (1, 2, 7) if func.dims else (0,):
        dims = {d: n for d in func.dims}
        args = random_args(func, dims, 1)
        want = interpret(func, args, dims)
        np.testing.assert_allclose(interpret(after, args, dims)[0], want[0], rtol=1e-4, atol=1e-4)


def test_independent_chains_run_on_all_threads_and_steps_in_order():
    after = kinds(scheduled(linear_recurrence(2, 64, 64)).func)
    assert after["chain"] == "parallel"
    assert after["step"] == "serial"
    assert "vectorized" in after.values()


def test_chains_that_read_each_other_stay_on_one_thread():
    after = kinds(scheduled(linear_recurrence(2, 64, 64, coupled=True)).func)
    assert after["chain"] == "serial"


def in_panels(steps: IntLike, size: int) -> Func:
    """One chain ``h[s + 1] = R h[s]`` with R in panels of 16 columns."""
    r = placeholder("R", (size // 16, size, 16), dtypes.float32)
    state = compute("h", (as_expr(steps) + 1, size), lambda s, j: r[0 * s, j, 0])
    k = reduce_axis(size, "k")
    product = compute("Rh", (steps, size // 16, 16), lambda s, no, ni: sum_over(state[s, k] * r[no, k, ni], k))
    step = update("next", state, (steps, size), lambda s, j: ((s + 1, j), product[s, j // 16, j % 16]), (0,))
    out = compute("out", (size,), lambda j: state[steps, j])
    shared = Recurrence((("step", as_expr(steps)),), (product, step))
    return build_func("in_panels", [r], [out], [state, shared])


@pytest.mark.parametrize(
    ("steps", "size", "kind"), [(8, 512, "parallel"), (var("n"), 512, "parallel"), (8, 128, "serial")]
)
def test_threads_share_a_large_product_of_each_step_of_one_chain(steps: IntLike, size: int, kind: str):
    after = kinds(scheduled(in_panels(steps, size)).func)
    assert after["step"] == "serial"
    assert after["Rh_no"] == kind


def in_rows(rows: IntLike, gates: int, size: int) -> Func:
    """``h[s + 1, b] = sum over gates of R[gate] h[s, b]``, for ``rows`` of a batch, with R in panels of 16 columns."""
    r = placeholder("R", (size // 16, size, gates, 16), dtypes.float32)
    state = compute("h", (3, rows, size), lambda s, b, j: r[0 * s + 0 * b, j, 0, 0])
    k = reduce_axis(size, "k")
    product = compute(
        "Rh", (2, size // 16, rows, gates, 16),
        lambda s, no, b, g, ni: sum_over(state[s, b, k] * r[no, k, g, ni], k),
    )  # fmt: skip

    def total(s: IntExpr, b: IntExpr, j: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
        values = [product[s, j // 16, b, g, j % 16] for g in range(gates)]
        return (s + 1, b, j), reduce(operator.add, values)

    step = update("next", state, (2, rows, size), total, (0,))
    out = compute("out", (rows, size), lambda b, j: state[2, b, j])
    shared = Recurrence((("step", as_expr(2)),), (product, step))
    return build_func("in_rows", [r], [out], [state, shared])


@pytest.mark.parametrize("gates", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6, 7, 13, var("n")], ids=str)
def test_numbers_of_tiles_of_rows_and_of_those_they_leave(rows: IntLike, gates: int):
    func = in_rows(rows, gates, 32)
    after = scheduled(func).func
    for n in (0, 1, 5, 6, 11) if func.dims else (0,):
        dims = {d: n for d in func.dims}
        args = [a / 8 for a in random_args(func, dims, 1)]
        want = interpret(func, args, dims)
        np.testing.assert_allclose(interpret(after, args, dims)[0], want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "gates", "tile"),
    [
        (1, 4, None), (2, 1, 2), (6, 1, 6), (7, 1, 4), (8, 4, 4), (13, 1, 5), (var("n"), 1, 6), (var("n"), 4, 6),
        (var("n"), 2, 3), (5, 8, 5),
    ],
)  # fmt: skip
def test_rows_of_a_tile(rows: IntLike, gates: int, tile: int | None):
    """Two vectors a gate and twelve registers for results: with four gates a row fills eight, and one gate of six rows
    needs fewer loads."""
    loops = [s for s in walk(scheduled(in_rows(rows, gates, 64)).func.body) if isinstance(s, Loop)]
    assert next((int(x.extent) for x in loops if x.var == "Rh_b_1"), None) == tile


def test_one_thread_takes_all_of_a_step():
    s = Schedule(in_panels(8, 512))
    assert RECURRENCE(s, "Rh", TARGET.with_threads(1))
    assert "parallel" not in kinds(s.func).values()


def test_a_nest_of_its_own_is_left_to_other_rules():
    s = Schedule(linear_recurrence(2, 3, 8))
    assert not RECURRENCE(s, "out", TARGET)
    assert not s.trace.steps
