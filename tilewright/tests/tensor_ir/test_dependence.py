"""Which loops carry what: every program's loops, split, fused and ragged loops, reductions, gathers and scatters."""

from __future__ import annotations

from math import prod

import pytest

from tilewright.core.arith.expr import var
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import blur, elementwise, matmul, prefix_sum
from tilewright.tests.tensor_ir.programs import PROGRAMS

N, M = var("n"), var("m")

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


def carried_by(func: Func, loops: tuple[str, ...]) -> list[tuple[set[str], bool]]:
    """For each dependence in a nest, the loops that carry it and whether it only reassociates."""
    *outer, nest = loops_in(loop_path(func, loops[0]))
    return [(set(d.loops), d.reassociates) for d in carried_dependences(nest, loops, loop_ranges(outer))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_of_programs(name: str) -> None:
    f = PROGRAMS[name].make()
    loops = {s.var for s in walk(f.body) if isinstance(s, Loop)}
    assert {v for v in loops if carried_by(f, (v,))} == CARRIED.get(name, set())


def scheduled(func: Func, trace: str) -> Func:
    return Trace.from_text(trace).apply(func)


def test_elementwise_carries_nothing() -> None:
    assert carried_by(elementwise(N, M), ("B_i", "B_j")) == []


@pytest.mark.parametrize("factors", ["(None, 8)", "(8, None)", "(None, 3, 4)", "(4, None, 2)"])
def test_ragged_and_symbolic_splits_carry_nothing(factors: str) -> None:
    f = scheduled(elementwise(N, M), f'split("B_j", factors={factors})')
    assert carried_by(f, tuple(loop.var for loop in loops_in(loop_path(f, "B_j_1")))) == []


def test_a_split_of_fused_loops_carries_nothing() -> None:
    f = scheduled(elementwise(N, M), 'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(16, None))')
    assert carried_by(f, ("B_i_B_j_f_0",)) == []


def test_a_remainder_that_lost_multiples_of_its_divisor_belongs_to_its_quotient() -> None:
    f = scheduled(elementwise(N, 3), 'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(None, 4, 8))')
    assert carried_by(f, ("B_i_B_j_f_2",)) == []
    assert carried_by(f, ("B_i_B_j_f_0", "B_i_B_j_f_1", "B_i_B_j_f_2")) == []


def test_a_reduction_is_reassociated() -> None:
    assert carried_by(matmul(N, M, 8), ("C_i", "C_j", "k")) == [({"k"}, True)]


def test_a_loop_that_reduces_and_moves_on_is_not() -> None:
    f = scheduled(matmul(3, 4, 5), 'fuse(("C_j", "k"))')
    assert carried_by(f, ("C_i", "C_j_k_f")) == [({"C_j_k_f"}, False)]


def test_an_ordered_axis_is_carried() -> None:
    found = carried_by(prefix_sum(N, M), ("S_i", "S_t"))
    assert found
    assert all(loops == {"S_t"} and not reassociates for loops, reassociates in found)


def test_a_buffer_that_is_only_read_carries_nothing() -> None:
    assert carried_by(blur(N), ("B_i",)) == []


def test_overlapping_windows_are_carried() -> None:
    f = parse_func("""
def windows(A: float32[12], B: out(float32[12])) -> None:
    for i in range(3):
        for j in range(6):
            B[i*3 + j] = A[i*3 + j]
""")
    assert carried_by(f, ("i", "j")) == [({"i", "j"}, False)]


def test_a_scatter_is_carried_unless_its_axis_is_spatial() -> None:
    text = """
def scatter(I: int64[8], A: float32[8], B: out(float32[8])) -> None:
    for i in range(8):
        with block("B", x={kind}(8, i)):
            B[I[x]] = A[x]
"""
    assert carried_by(parse_func(text.format(kind="spatial")), ("i",)) == []
    assert ({"i"}, False) in carried_by(parse_func(text.format(kind="ordered")), ("i",))


def test_a_private_buffer_carries_nothing() -> None:
    f = parse_func("""
def private(A: float32[8], B: out(float32[8])) -> None:
    for i in range(8):
        t = local(float32[1])
        with block("T", x=spatial(8, i)):
            t[0] = A[x]
        with block("B", x=spatial(8, i)):
            B[x] = t[0]
""")
    assert carried_by(f, ("i",)) == []


def test_neighbour_reads_are_carried() -> None:
    f = parse_func("""
def f(Y: out(float32[10])):
    for i in range(9):
        with block("Y", a=spatial(9, i)):
            Y[a + 1] = Y[a]
""")
    assert carried_by(f, ("i",)) == [({"i"}, False)]


FUSED = parse_func("""
def f(M: dim, N: dim, A: float32[M, N], C: out(float32[M, N])):
    for ij in range(((M + 5)//6)*((N + 15)//16)):
        for i in range(min(6, M - 6*(ij // ((N + 15)//16)))):
            for j in vectorized(min(16, N - 16*(ij % ((N + 15)//16)))):
                with block("C", a=spatial(M, 6*(ij // ((N + 15)//16)) + i), b=spatial(N, 16*(ij % ((N + 15)//16)) + j)):
                    C[a, b] = A[a, b]
""")


def test_fused_ragged_tiles_carry_nothing() -> None:
    assert carried_by(FUSED, ("ij", "i", "j")) == []


def test_fused_element_loops_carry_nothing() -> None:
    f = parse_func("""
def f(A: float32[5, 4, 3], C: out(float32[5, 4, 3])):
    for u in range(60):
        with block("C", a=spatial(5, u // 12), b=spatial(4, u // 3 % 4), c=spatial(3, u % 3)):
            C[a, b, c] = A[a, b, c]
""")
    assert carried_by(f, ("u",)) == []


def _groups(columns: int) -> Func:
    """Vectors over groups of ``columns`` columns, the last of which would hold more than is left."""
    return parse_func(f"""
def f(A: float32[4, {columns}], C: out(float32[{4 * columns}])):
    for g in range(4):
        for v in unrolled({-(-columns // 8)}):
            for l in vectorized(min(8, {columns} - 8*v)):
                with block("C", a=spatial({4 * columns}, g*{columns} + v*8 + l)):
                    C[a] = A[a // {columns}, a % {columns}]
""")


def test_partial_vectors_of_a_group_stay_in_it() -> None:
    """The lanes of the last vector are known only together with the vector's number."""
    for columns in (3, 8, 17, 24):
        assert carried_by(_groups(columns), ("g",)) == []


def test_groups_that_overlap_are_carried() -> None:
    f = parse_func("""
def f(A: float32[4], C: out(float32[40])):
    for g in range(4):
        for v in range(3):
            for l in range(min(8, 17 - 8*v)):
                with block("C", a=spatial(64, g*16 + v*8 + l)):
                    C[a] = A[a // 16]
""")
    assert carried_by(f, ("g",)) != []


@pytest.mark.parametrize("shape", [(20, 20), (7, 13), (1, 33), (5, 7, 9)])
def test_partial_vectors_over_fused_axes_carry_nothing(shape: tuple[int, ...]) -> None:
    """Vectors of a loop over several axes: quotient and remainder of a sum of loops, whose strides divide no axis."""
    total, places, inner = prod(shape), [], 1
    for n in reversed(shape):
        place = f"(32*u + 8*v + l)//{inner}"
        places.insert(0, f"spatial({n}, {place if inner * n == total else f'{place} % {n}'})")
        inner *= n
    axes = ", ".join(f"{name}={place}" for name, place in zip("abc", places, strict=False))
    names = ", ".join("abc"[: len(shape)])
    dims = ", ".join(map(str, shape))
    f = parse_func(f"""
def f(A: float32[{dims}], C: out(float32[{dims}])):
    for u in range({-(-total // 32)}):
        for v in unrolled(min(4, ({total} - 32*u + 7)//8)):
            for l in vectorized(min(8, {total} - 32*u - 8*v)):
                with block("C", {axes}):
                    C[{names}] = A[{names}]
""")
    assert carried_by(f, ("u", "v", "l")) == []


def test_quotient_and_remainder_of_different_loops_are_not_joined() -> None:
    f = parse_func("""
def f(A: float32[8, 8], C: out(float32[8, 8])):
    for u in range(8):
        for v in range(8):
            with block("C", a=spatial(8, (3*u + v)//8), b=spatial(8, (3*v + u) % 8)):
                C[a, b] = A[a, b]
""")
    assert carried_by(f, ("u", "v")) != []


@pytest.mark.parametrize(("row", "carried"), [("s", set()), ("s + 2", set()), ("s + 1", {"j"}), ("j", {"j"})])
def test_rows_that_differ_in_a_step_never_meet(row: str, carried: set[str]) -> None:
    read = row.replace("s", "s_").replace("j", "j_")
    func = parse_func(
        f"""
def f(h: out(float32[9, 5])):
    for s in range(5):
        for j in range(5):
            for k in range(5):
                with block("h", s_=ordered(5, s), j_=spatial(5, j), k_=reduce(5, k)):
                    h[s_ + 1, j_] = h[{read}, k_]
"""
    )
    assert {x for loops, _ in carried_by(func, ("j",)) for x in loops} == carried
