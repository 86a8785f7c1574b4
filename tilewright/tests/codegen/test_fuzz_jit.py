"""A part of the fuzzer on every run, its report, how it survives crashes; targets wider or older than the host."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import signal

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target, runs_here
from tilewright.codegen.kernel import CallableKernel, build
from tilewright.codegen.llvm.jit import Library, compile_objects
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, max_over, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen import fuzz_jit
from tilewright.tests.codegen.fuzz_jit import Arena, check, default_case, difference, fuzz, reproducer, run_seed
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.tensor_ir.wild_programs import wild_program

GROUPS = 6
GROUP_SIZE = 10

x86_only = pytest.mark.skipif(not detect_host().triple.startswith("x86_64"), reason="the host is no x86")


@pytest.mark.parametrize("group", range(GROUPS))
def test_wild_programs_agree(group: int) -> None:
    first = 10_000 + group * GROUP_SIZE
    problems = [text for seed in range(first, first + GROUP_SIZE) for text in run_seed(seed)]
    assert not problems, "\n\n".join(problems)


def test_workers_run_everything() -> None:
    assert fuzz(range(3), workers=2) == {}


def _fall(seed: int) -> tuple[list[object], list[str]]:
    if seed == 1:
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)
    return [], []


def test_a_crash_costs_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_jit, "START", "fork")
    monkeypatch.setattr(fuzz_jit, "prepare", _fall)
    problems = fuzz(range(4), workers=1)
    assert list(problems) == [1]
    assert problems[1].startswith(f"crash (exit code {-signal.SIGSEGV}) at seed 1\n# default trace of wild_program(1)")


def test_a_wrong_result_is_seen_and_reproduced() -> None:
    case = default_case(3)
    kernel = build(case.scheduled, case.target, 1)
    want = interpret(case.program.func, case.program.args, case.program.dims)
    assert check(case, kernel, want) == ""
    problem = check(case, kernel, [np.where(np.isnan(w.astype(float)), w, w + 1).astype(w.dtype) for w in want])
    assert "elements differ, first at" in problem
    exec(compile(reproducer(case, problem), "<reproducer>", "exec"), {})


def test_tolerance() -> None:
    a = np.array([1.0, np.nan, np.inf, -0.0], np.float32)
    assert difference(a, np.array([1.0, np.nan, np.inf, 0.0], np.float32), dtypes.float32, 0.0) == ""
    off = np.array([1.00001, np.nan, np.inf, 0.0], np.float32)
    assert difference(off, a, dtypes.float32, 1e-4) == ""
    assert difference(off, a, dtypes.float32, 0.0).startswith("1 of 4 elements differ, first at [0]")
    assert difference(a, a[::-1], dtypes.float32, 1e-4).startswith("4 of 4")


def test_arrays_lie_against_closed_pages() -> None:
    arena = Arena(slots=2)
    for at_end in (True, False):
        a = arena.place(1, (3, 5), np.dtype(np.float32), at_end)
        border = a.ctypes.data + a.nbytes if at_end else a.ctypes.data
        assert border % arena.page == 0
    with pytest.raises(ValueError, match="no room for"):
        arena.place(2, (1,), np.dtype(np.int8), True)


def test_wild_programs_are_the_same_tomorrow() -> None:
    first, second = wild_program(11), wild_program(11)
    assert first.func == second.func
    assert parse_func(str(first.func)) == first.func
    for a, b in zip(first.args, second.args, strict=True):
        assert a.tobytes() == b.tobytes()


# -- reductions without a step ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("k", [0, 1, 7, 32])
def test_an_empty_reduction_stores_its_initial_value(k: int, threads: int) -> None:
    n = var("k")
    a, b = placeholder("A", (5, n), dtypes.float32), placeholder("B", (n, 19), dtypes.float32)
    r, q = reduce_axis(n, "r"), reduce_axis(n, "q")
    c = compute("C", (5, 19), lambda i, j: sum_over(a[i, r] * b[r, j], r))
    d = compute("D", (5,), lambda i: max_over(a[i, q], q))
    func = build_func("empty", [a, b], [c, d])
    rng = np.random.default_rng(k)
    args = [rng.integers(-3, 4, s).astype(np.float32) for s in ((5, k), (k, 19))]
    want = [args[0] @ args[1], args[0].max(axis=1, initial=-np.inf)]
    target = detect_host().with_threads(threads)
    for f in (func, default_trace(func, target).apply(func)):
        for got in (interpret(f, args, {"k": k}), build(f, target, 1)(args, {"k": k}, threads)):
            for g, w in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, w)


# -- other CPUs ------------------------------------------------------------------------------------------------------
@x86_only
def test_code_for_wider_vectors_compiles() -> None:
    target = parse_target("llvm -mcpu=znver4")
    assert target.vector_bits == 512
    cases = [default_case(seed, target) for seed in range(20_000, 20_010)]
    blobs = compile_objects([(emitted(c.scheduled, c.target, c.symbol), c.target) for c in cases], 1)
    assert all(blobs)
    if runs_here(target):
        _run(cases, blobs)


@x86_only
def test_code_for_the_oldest_cpu_runs() -> None:
    target = parse_target("llvm -mcpu=x86-64")
    assert target.vector_bits == 128
    assert not target.has_fma
    target = dataclasses.replace(target, threads=2)
    cases = [default_case(seed, target) for seed in range(20_010, 20_020)]
    _run(cases, compile_objects([(emitted(c.scheduled, c.target, c.symbol), c.target) for c in cases], 1))


def _run(cases: list[fuzz_jit.Case], blobs: list[bytes]) -> None:
    library = Library(blobs, [c.symbol for c in cases])
    for c in cases:
        want = interpret(c.program.func, c.program.args, c.program.dims)
        problem = check(c, CallableKernel(c.ready(), library, c.symbol, c.target), want)
        assert not problem, reproducer(c, problem)
    library.close()
