"""Local buffers of symbolic size: each thread has its own, whatever the number of threads, chunks and iterations."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.emit.function import workspaces
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tests.codegen.helpers import emitted

N, M = var("n"), var("m")
HOST = detect_host()


def differences(parallel: bool, vectors: bool = False, peel: bool = False) -> Func:
    """B[i, j] = T[i, j] - T[i, m - 1 - j] with T = A * A, row by row."""
    a = placeholder("A", (N, M), dtypes.float32)
    t = compute("T", (N, M), lambda i, j: a[i, j] * a[i, j], axis_names=("i", "j"))
    b = compute("B", (N, M), lambda i, j: t[i, j] - t[i, M - 1 - j], axis_names=("i", "j"))
    s = Schedule(build_func("differences", [a], [b], [t]))
    s.compute_at("T", "B_i")
    if vectors:
        for name in ("T", "B"):
            outer, lane = s.split(s.loops(name)[-1], (None, 8))
            s.vectorize(lane)
            if peel:
                s.peel(outer)
    if parallel:
        s.parallel("B_i")
    return s.func


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (1, 40), (2, 7), (3, 0), (7, 9), (13, 8), (40, 17)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_thread_has_its_own(n: int, m: int, threads: int) -> None:
    a = np.arange(n * m, dtype=np.float32).reshape(n, m)
    for func in (differences(True), differences(True, True), differences(False), differences(True, True, True)):
        dims = {"n": n, "m": m}
        (want,) = interpret(func, [a], dims)
        (got,) = build(func, HOST.with_threads(threads))([a], dims, threads)
        np.testing.assert_array_equal(got, want)


def test_more_threads_than_the_kernel_was_built_for() -> None:
    func = differences(True, True)
    a = np.arange(50 * 33, dtype=np.float32).reshape(50, 33)
    (want,) = interpret(func, [a], {"n": 50, "m": 33})
    (got,) = build(func, HOST.with_threads(1))([a], {"n": 50, "m": 33}, 3)
    np.testing.assert_array_equal(got, want)


def test_copies() -> None:
    """No more than there are chunks, or iterations; one without threads; each starts at a cache line."""

    def shape(parallel: bool, threads: int, **dims: int) -> tuple[int, ...]:
        target = HOST.with_threads(threads)
        (w,) = workspaces(prepare(differences(parallel), target), target)
        return tuple(d.evaluate(dims) for d in w.shape)

    assert shape(True, 2, n=100, m=16) == (8, 16)
    assert shape(True, 2, n=3, m=17) == (3, 32)
    assert shape(False, 2, n=100, m=1) == (1, 16)


def test_teams_that_are_too_large_are_not_asked() -> None:
    assert "icmp ugt i64 %size, 8" in emitted(differences(True), HOST.with_threads(2), "kernel")
    assert "%size" not in emitted(differences(False), HOST.with_threads(2), "kernel")
