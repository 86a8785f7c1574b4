"""Which loops carry what: every program's loops, fused, tiled and ragged loops, gathers, scatters and interchange."""

from __future__ import annotations

import pytest

from tilewright.core.errors import ScheduleError
from tilewright.tensor_ir.analysis.dependence import (
    carries_only_reductions,
    conflicts,
    is_parallelisable,
    is_vectorisable,
    may_interchange,
)
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.tensor_ir.programs import PROGRAMS

CARRIED = {
    "matmul": {"k"},
    "matmul_symbolic": {"k"},
    "matmul_packed": {"k"},
    "conv2d": {"ci", "kh", "kw"},
    "cumsum": {"Y_j"},
    "softmax": {"r", "q"},
    "quantized_matmul": {"k"},
    "mean_variance": {"r", "q"},
    "argmax": {"best_j"},
    "pool_sum": {"w"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_of_programs(name: str) -> None:
    f = PROGRAMS[name].make()
    carried = CARRIED.get(name, set())
    for s in walk(f.body):
        if isinstance(s, Loop):
            assert is_parallelisable(f, s.var) == ("no" if s.var in carried else "yes"), s.var


def test_reductions_are_told_from_the_rest() -> None:
    matmul, cumsum = PROGRAMS["matmul"].make(), PROGRAMS["cumsum"].make()
    assert carries_only_reductions(matmul, "k")
    assert not carries_only_reductions(cumsum, "Y_j")
    assert str(conflicts(matmul, "k")[0]) == "iterations of k meet in C: the steps of a reduction (C)"


FUSED = parse_func("""
def f(M: dim, N: dim, A: float32[M, N], C: out(float32[M, N])):
    for ij in range(((M + 5)//6)*((N + 15)//16)):
        for i in range(min(6, M - 6*(ij // ((N + 15)//16)))):
            for j in vectorized(min(16, N - 16*(ij % ((N + 15)//16)))):
                with block("C", a=spatial(M, 6*(ij // ((N + 15)//16)) + i), b=spatial(N, 16*(ij % ((N + 15)//16)) + j)):
                    C[a, b] = A[a, b]
""")


def test_fused_ragged_tiles_are_independent() -> None:
    assert [is_parallelisable(FUSED, v) for v in ("ij", "i", "j")] == ["yes", "yes", "yes"]


def test_fused_element_loops() -> None:
    f = parse_func("""
def f(N: dim, A: float32[5, N, 3], C: out(float32[5, N, 3])):
    for u in range(5*N*3):
        with block("C", a=spatial(5, u // (N*3)), b=spatial(N, u // 3 % N), c=spatial(3, u % 3)):
            C[a, b, c] = A[a, b, c]
""")
    assert is_parallelisable(f, "u") in ("yes", "unknown")
    g = parse_func("""
def f(A: float32[5, 4, 3], C: out(float32[5, 4, 3])):
    for u in range(60):
        with block("C", a=spatial(5, u // 12), b=spatial(4, u // 3 % 4), c=spatial(3, u % 3)):
            C[a, b, c] = A[a, b, c]
""")
    assert is_parallelisable(g, "u") == "yes"


def test_overlapping_windows_conflict() -> None:
    f = parse_func("""
def f(X: float32[10], t: float32[10], Y: out(float32[10])):
    for o in range(3):
        for i in range(4):
            with block("Y", a=spatial(10, 3*o + i)):
                Y[a] = X[a]
""")
    assert is_parallelisable(f, "o") == "unknown"
    assert is_parallelisable(f, "i") == "yes"


def test_neighbour_reads_conflict() -> None:
    f = parse_func("""
def f(Y: out(float32[10])):
    for i in range(9):
        with block("Y", a=spatial(9, i)):
            Y[a + 1] = Y[a]
""")
    assert is_vectorisable(f, "i") == "unknown"
    assert conflicts(f, "i")[0].kind == "read"


def test_private_buffers_do_not_count() -> None:
    f = parse_func("""
def f(X: float32[10], Y: out(float32[10])):
    for i in range(10):
        t = local(float32[1])
        t[0] = X[i]
        Y[i] = t[0]
""")
    assert is_parallelisable(f, "i") == "yes"
    g = parse_func("""
def f(X: float32[10], Y: out(float32[10])):
    t = local(float32[1])
    for i in range(10):
        t[0] = X[i]
        Y[i] = t[0]
""")
    assert is_parallelisable(g, "i") == "no"


def test_scatter_is_trusted_only_along_spatial_axes() -> None:
    text = """
def f(idx: int64[10], X: float32[10], Y: out(float32[10])):
    for i in range(10):
        with block("Y", a={kind}(10, i)):
            Y[idx[a]] = X[a]
"""
    assert is_parallelisable(parse_func(text.format(kind="spatial")), "i") == "yes"
    assert is_parallelisable(parse_func(text.format(kind="ordered")), "i") == "no"


def test_interchange() -> None:
    f = PROGRAMS["matmul"].make()
    assert may_interchange(f, "C_j", "k") == "yes"
    with pytest.raises(ScheduleError, match="k is not the next loop inside C_i"):
        may_interchange(f, "C_i", "k")
    conv = PROGRAMS["conv2d"].make()
    assert may_interchange(conv, "kh", "kw") == "yes"
    skewed = parse_func("""
def f(Y: out(float32[10, 10])):
    for i in range(9):
        for j in range(9):
            with block("Y", a=ordered(9, i), b=ordered(9, j)):
                Y[a + 1, b] = Y[a, b + 1]
""")
    assert may_interchange(skewed, "i", "j") == "unknown"
    assert may_interchange(PROGRAMS["cumsum"].make(), "Y_i", "Y_j") == "yes"
    swapped = parse_func("""
def f(X: float32[3, 10], Y: out(float32[3, 10])):
    for j in range(10):
        for i in range(3):
            with block("Y", a=spatial(3, i), b=ordered(10, j)):
                Y[a, b] = X[a, b]
""")
    assert may_interchange(swapped, "j", "i") == "yes"
