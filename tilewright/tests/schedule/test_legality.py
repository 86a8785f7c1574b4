import doctest

import pytest

from tilewright.core.intexpr import var
from tilewright.schedule import schedule
from tilewright.schedule.base import find_loop, loop_path, loop_ranges, loops_in
from tilewright.schedule.legality import carried_dependences
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import blur, elementwise, matmul, prefix_sum

N, M = var("n"), var("m")


def carried_by(func: Func, loops: tuple[str, ...]) -> list[tuple[set[str], bool]]:
    """For each dependence in a nest, the loops that carry it and whether it only reassociates."""
    outer = loop_ranges(loops_in(loop_path(func, loops[0]))[:-1])
    return [(set(d.loops), d.reassociates) for d in carried_dependences(find_loop(func, loops[0]), loops, outer)]


def scheduled(func: Func, trace: str) -> Func:
    return Trace.from_text(trace).apply(func)


def test_elementwise_carries_nothing():
    assert carried_by(elementwise(N, M), ("B_i", "B_j")) == []


@pytest.mark.parametrize("factors", ["(None, 8)", "(8, None)", "(None, 3, 4)", "(4, None, 2)"])
def test_ragged_and_symbolic_splits_carry_nothing(factors):
    f = scheduled(elementwise(N, M), f'split("B_j", factors={factors})')
    assert carried_by(f, tuple(loop.var for loop in loops_in(loop_path(f, "B_j_1")))) == []


def test_a_split_of_fused_loops_carries_nothing():
    f = scheduled(elementwise(N, M), 'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(16, None))')
    assert carried_by(f, ("B_i_B_j_f_0",)) == []


def test_a_reduction_is_reassociated():
    assert carried_by(matmul(N, M, 8), ("C_i", "C_j", "k")) == [({"k"}, True)]


def test_a_loop_that_reduces_and_moves_on_is_not():
    f = scheduled(matmul(3, 4, 5), 'fuse(("C_j", "k"))')
    assert carried_by(f, ("C_i", "C_j_k_f")) == [({"C_j_k_f"}, False)]


def test_an_ordered_axis_is_carried():
    found = carried_by(prefix_sum(N, M), ("S_i", "S_t"))
    assert found
    assert all(loops == {"S_t"} and not reassociates for loops, reassociates in found)


def test_a_buffer_that_is_only_read_carries_nothing():
    assert carried_by(blur(N), ("B_i",)) == []


def test_overlapping_windows_are_carried():
    f = parse_func("""
def windows(A: float32[12], B: out(float32[12])):
    for i in range(3):
        for j in range(6):
            B[i*3 + j] = A[i*3 + j]
""")
    assert carried_by(f, ("i", "j")) == [({"i", "j"}, False)]


def test_a_scatter_is_carried_unless_its_axis_is_spatial():
    text = """
def scatter(I: int64[8], A: float32[8], B: out(float32[8])):
    for i in range(8):
        with block("B", x={kind}(8, i)):
            B[I[x]] = A[x]
"""
    assert carried_by(parse_func(text.format(kind="spatial")), ("i",)) == []
    assert ({"i"}, False) in carried_by(parse_func(text.format(kind="ordered")), ("i",))


def test_a_private_buffer_carries_nothing():
    f = parse_func("""
def private(A: float32[8], B: out(float32[8])):
    for i in range(8):
        t = local(float32[1])
        with block("T", x=spatial(8, i)):
            t[0] = A[x]
        with block("B", x=spatial(8, i)):
            B[x] = t[0]
""")
    assert carried_by(f, ("i",)) == []


def test_examples_of_the_schedule_module():
    assert doctest.testmod(schedule).failed == 0
