"""What the fuzzer has found, each as the smallest function that shows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import (
    build_func,
    compute,
    constant,
    in_range,
    index_value,
    op,
    placeholder,
    reduce_axis,
    select,
    sum_over,
)
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func, Loop
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.fuzz_jit import run_kernel

F32 = dtypes.float32


def _agrees(func: Func, trace: str, args: list[np.ndarray], dims: dict[str, int]) -> None:
    after = Trace.from_text(trace).apply(func)
    verify(after)
    want = interpret(func, args, dims)
    kernel = build(after, opt=1)
    for threads in (1, 2):
        for g, w in zip(run_kernel(kernel, args, dims, threads), want, strict=True):
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("n", [1, 7, 8, 11])
def test_lanes_that_are_off_read_no_indices(n: int) -> None:
    """An index read from memory, used as a value in the last, partial vector, was read for all lanes."""
    d = var("n")
    x, y, at = placeholder("X", (8,), F32), placeholder("Y", (9,), F32), placeholder("I", (d,), dtypes.int64)

    def formula(i: object) -> object:
        place = at[i]  # type: ignore[index]
        return select(index_value(place) < 8, x[place], y[op("max", place - 8, 0)])

    func = build_func("joined", [x, y, at], [compute("C", (d,), formula)])  # type: ignore[arg-type]
    rng = np.random.default_rng(n)
    args = [
        rng.uniform(size=8).astype(np.float32), rng.uniform(size=9).astype(np.float32), rng.integers(0, 17, n),
    ]  # fmt: skip
    _agrees(func, 'split("C_i", factors=(None, 8))\nvectorize("C_i_1")', args, {"n": n})


@pytest.mark.parametrize("shift", [-3, 2])
def test_a_guarded_uniform_index_is_not_read_by_all(shift: int) -> None:
    """An index that is the same in all lanes is read only where some lane wants it."""
    d = var("n")
    x, at = placeholder("X", (40,), F32), placeholder("I", (d,), dtypes.int64)

    def formula(i: object, j: object) -> object:
        row = i + shift  # type: ignore[operator]
        wanted = in_range(row, 0, d) & (index_value(j) < 5)  # type: ignore[arg-type]
        return select(wanted, index_value(at[row].as_index() + j).cast(F32), 0)  # type: ignore[operator]

    func = build_func("rows", [x, at], [compute("C", (d, 8), formula)])  # type: ignore[arg-type]
    args = [np.zeros(40, np.float32), np.arange(6, dtype=np.int64) * 5]
    _agrees(func, 'vectorize("C_j")', args, {"n": 6})


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", ["trunc_mod", "floor_mod"])
def test_remainders_are_exact_without_fma(name: str, dtype: dtypes.DType) -> None:
    """The rounded product of quotient and divisor left a remainder that was off in its last bits."""
    rng = np.random.default_rng(0)
    a = (rng.uniform(-100, 100, 64) * 10.0 ** rng.integers(-3, 9, 64)).astype(dtype.numpy)
    b = (rng.uniform(0.1, 7, 64) * rng.choice([-1, 1], 64)).astype(dtype.numpy)
    x, y = placeholder("A", (64,), dtype), placeholder("B", (64,), dtype)
    func = build_func("mod", [x, y], [compute("C", (64,), lambda i: op(name, x[i], y[i]))])
    host = detect_host()
    target = parse_target("llvm -mcpu=x86-64") if host.triple.startswith("x86_64") else host
    got = build(func, target, 1)([a, b])[0]
    np.testing.assert_array_equal(got, np.fmod(a, b) if name == "trunc_mod" else np.mod(a, b))


def test_a_region_without_elements_may_start_behind_the_last() -> None:
    """compute_at bound the start of a region to an axis that ended before it, which the verifier refused."""
    n, m = var("n"), var("m")
    a, b = placeholder("A", (n, m), F32), placeholder("B", (m, n), F32)
    r = reduce_axis(m, "r")
    s = compute("S", (n, n), lambda i, j: sum_over(a[i, r] * b[r, j], r))
    padded = compute("P", (n, n + 1), lambda i, j: select(in_range(j, 0, n), s[i, j], 1.0))
    func = build_func("padded", [a, b], [padded], [s])
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((5, 3), (3, 5))]
    trace = 'compute_at("S", loop="P_j")\nsplit("r", factors=(None, 4))\nrfactor("r_1")\n'
    _agrees(func, trace, args, {"n": 5, "m": 3})
    _agrees(func, 'compute_at("S", loop="P_j")', [args[0][:, :0], args[1][:0]], {"n": 5, "m": 0})


def test_a_local_buffer_outlives_a_phase() -> None:
    """A local copy, made in the phase of a parallel loop and used in the next one, was refused by codegen."""
    x = placeholder("X", (16,), F32)
    u = compute("U", (16,), lambda i: x[i] * 2.0)
    v = compute("V", (16,), lambda i: x[i] + u[i])
    func = build_func("phases", [x], [v], [u])
    trace = 'parallel("U_i")\ncache_read("V", buffer="X", scope="local")'
    _agrees(func, trace, [np.arange(16, dtype=np.float32)], {})


@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("to", [t for t in dtypes.ALL if t.is_integer], ids=str)
def test_casts_out_of_range_mean_the_same_everywhere(source: dtypes.DType, to: dtypes.DType) -> None:
    """The interpreter took what int32 cannot hold modulo the width, and what uint64 cannot hold for its half."""
    ends = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
    odd = [np.nan, np.inf, 1e30, 255.9, 128.9, 300.0, 40000.0, 2.0**32 + 5000, 2147483647.5, 2147483648.5, 0.5, 3.0]
    data = np.array([s * x for x in [*ends, *odd] for s in (1, -1)], source.numpy)
    x = placeholder("A", (data.size,), source)
    func = build_func("cast", [x], [compute("C", (data.size,), lambda i: x[i].cast(to))])
    want = interpret(func, [data], {})[0]
    for trace in ("", 'split("C_i", factors=(None, 8))\nvectorize("C_i_1")'):
        got = build(Trace.from_text(trace).apply(func), opt=1)([data])[0]
        np.testing.assert_array_equal(got, want)


def test_lanes_of_a_loop_that_never_runs() -> None:
    """A vectorized loop whose extent is negative for every size had no lanes, and a body without any."""
    n = var("n")
    func = build_func("nothing", [placeholder("X", (n,), F32)], [compute("C", (n,), lambda i: constant(0, F32))])
    scheduled = Trace.from_text('split("C_i", factors=(None, 8))\nvectorize("C_i_1")').apply(func)
    outer = scheduled.body
    assert isinstance(outer, Loop)
    never = replace(outer, body=replace(outer.body, extent=var("C_i_0") * -8))
    kernel = build(replace(scheduled, body=never), opt=1)
    run_kernel(kernel, [np.ones(20, np.float32)], {"n": 20}, 1)
