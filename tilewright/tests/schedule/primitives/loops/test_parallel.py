import pytest

from tilewright.core.arith.expr import IntLike, var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.primitives.loops.parallel import Parallel
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul, matmul_relu, row_max
from tilewright.tests.schedule.kernels import stepped

N = var("n")


def test_the_outer_loop_of_tiles():
    check(
        elementwise(N),
        'split("B_i", factors=(None, 4))\nparallel("B_i_0")',
        """
        for B_i_0 in parallel(((n + 3)//4)):
            for B_i_1 in range(min(-B_i_0*4 + n, 4)):
                for B_j in range(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_a_fused_tile_loop():
    check(
        matmul(N, N, 3),
        """
        split("C_i", factors=(None, 4))
        split("C_j", factors=(None, 8))
        reorder(("C_i_0", "C_j_0", "C_i_1", "C_j_1"))
        fuse(("C_i_0", "C_j_0"))
        parallel("C_i_0_C_j_0_f")
        """,
    )


def test_a_flat_loop_in_chunks():
    check(elementwise(N), 'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(4, None))\nparallel("B_i_B_j_f_0")')


def test_every_nest_of_a_chain():
    check(matmul_relu(N, 3, 4), 'parallel("C_i")\nparallel("E_i")\nparallel("D_i")')


@pytest.mark.parametrize("steps", [0, 1, 5, N])
def test_a_loop_in_each_step_of_a_recurrence(steps: IntLike):
    check(stepped(steps, 8), 'parallel("Rh_j")\nparallel("next_i1")')


def test_a_loop_in_one_of_a_single_iteration():
    check(matmul(1, 4, 5), 'parallel("C_j")')


def test_a_loop_around_threads():
    with pytest.raises(ScheduleError, match=r"parallel\(step\): loop Rh_j is parallel already"):
        Trace.from_text('parallel("Rh_j")\nparallel("step")').apply(stepped(5, 8))


def test_refusals():
    f = matmul(N, 4, 5)
    check_refusals(
        Parallel,
        {
            "the loop is not there": (
                f, 'parallel("x")', "parallel(x): expected the name of a loop of matmul, got 'x'; it has: C_i, C_j, k",
            ),
            "the loop is not serial": (
                f, 'unroll("C_j")\nparallel("C_j")', "parallel(C_j): expected a serial loop, got a unrolled one",
            ),
            "the loop is inside one that is neither a step of a recurrence nor of one iteration": (
                f,
                'parallel("C_j")',
                "parallel(C_j): expected a loop at the root or in a step of a recurrence, got one inside C_i",
            ),
            "the loop is inside a parallel loop or around one": (
                f,
                'parallel("C_i")\nparallel("C_j")',
                "parallel(C_j): loop C_i is parallel already, and one of them is inside the other",
            ),
            "a local buffer is allocated around the loop": (
                row_max(8, 4),
                'set_scope("M", scope="local")\nparallel("B_i")',
                "parallel(B_i): local buffer M, private to one thread, is allocated around the loop",
            ),
            "the loop is a reduce axis or an ordered axis": (
                f,
                'reorder(("k", "C_j", "C_i"))\nparallel("k")',
                "parallel(k): reduce axis k_ of block C runs with this loop",
            ),
            "the loop carries a dependence": (
                f,
                'fuse(("C_j", "k"))\nreorder(("C_j_k_f", "C_i"))\nparallel("C_j_k_f")',
                "parallel(C_j_k_f): the loop carries a dependence: C depends on C through C",
            ),
        },
    )  # fmt: skip
