from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.loops.reorder import Reorder
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import (
    check,
    check_refusals,
    elementwise,
    matmul,
    matmul_relu,
    prefix_sum,
    refuses,
)

N = var("n")


def test_loops_not_listed_keep_their_places():
    check(
        matmul(N, 4, 5),
        'reorder(("k", "C_i"))',
        """
        for k in range(5):
            for C_j in range(4):
                for C_i in range(n):
                    with block("C", C_i_=spatial(n, C_i), C_j_=spatial(4, C_j), k_=reduce(5, k)):
                        init(float32(0.0))
                        C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
        """,
    )


def test_tiles_with_ragged_edges():
    check(
        matmul(N, N, N),
        """
        split("C_i", factors=(None, 4))
        split("C_j", factors=(None, 2, 3))
        split("k", factors=(None, 2))
        reorder(("k_0", "C_j_0", "C_i_0", "k_1", "C_j_1", "C_i_1", "C_j_2"))
        """,
    )


def test_reduce_loops_change_places():
    check(matmul(N, 3, 12), 'split("k", factors=(3, 4))\nreorder(("k_1", "C_i", "k_0"))')


def test_nothing_to_do_is_the_same_function():
    func = elementwise(N)
    assert Trace((Reorder(("B_i", "B_j")),)).apply(func) is func


def test_an_ordered_axis_moves_among_spatial_ones():
    check(prefix_sum(N, N), 'reorder(("S_t", "S_i"))')


def test_a_fused_spatial_and_reduce_loop_keeps_its_order():
    refuses(
        matmul(2, 3, 5),
        'fuse(("C_j", "k"))\nsplit("C_j_k_f", factors=(None, 3))\nreorder(("C_j_k_f_1", "C_j_k_f_0"))',
        "reorder(C_j_k_f_1, C_j_k_f_0): would reverse a dependence: C depends on C through C, "
        "carried by C_j_k_f_0, C_j_k_f_1",
    )


def test_a_fused_loop_moves_among_others():
    check(matmul(3, N, 5), 'fuse(("C_i", "C_j"))\nsplit("C_i_C_j_f", factors=(None, 4))\nreorder(("k", "C_i_C_j_f_1"))')


def test_refusals():
    f = matmul_relu(N, 4, 5)
    check_refusals(
        Reorder,
        {
            "a loop is not there": (
                elementwise(N),
                'reorder(("B_i", "x"))',
                "reorder(B_i, x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "fewer than two loops, or one of them twice": (
                f, 'reorder(("C_i", "C_i"))', "reorder(C_i, C_i): expected at least two different loops",
            ),
            "the loops are not on one path of perfectly nested loops": (
                f,
                'reorder(("C_i", "D_i"))',
                "reorder(C_i, D_i): expected perfectly nested loops, but D_i is not around C_i",
            ),
            "another block stands between the loops": (
                f,
                'decompose_reduction("C", loop="k")\nreorder(("k", "C_j"))',
                "reorder(k, C_j): expected perfectly nested loops, but k is not all of the body of C_j (C_init stands "
                "there, too)",
            ),
            "a loop is parallel": (
                f,
                'parallel("C_i")\nreorder(("C_j", "C_i"))',
                "reorder(C_j, C_i): expected no parallel loop, but C_i is; reorder first",
            ),
            "a loop would move out of a loop whose variable its extent uses": (
                f,
                'split("C_i", factors=(None, 4))\nreorder(("C_i_1", "C_i_0"))',
                "reorder(C_i_1, C_i_0): C_i_1 would move out of C_i_0, which its extent min(-C_i_0*4 + n, 4) uses",
            ),
            "a dependence would be reversed": (
                prefix_sum(2, 8),
                'split("S_t", factors=(2, 4))\nreorder(("S_t_1", "S_t_0"))',
                "reorder(S_t_1, S_t_0): would reverse a dependence: S depends on S through S, carried by S_t_0, S_t_1",
            ),
        },
    )  # fmt: skip
