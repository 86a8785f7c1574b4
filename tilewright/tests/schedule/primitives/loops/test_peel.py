from tilewright.core.arith.expr import IntLike, as_expr, ceildiv, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import float32
from tilewright.schedule.primitives.loops.peel import Peel
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul

N = var("n")


def test_a_symbolic_extent():
    check(
        elementwise(N),
        'split("B_i", factors=(None, 4))\npeel("B_i_0")\nvectorize("B_i_1_t")',
        """
        for B_i_0 in range((n//4)):
            for B_i_1 in range(4):
                for B_j in range(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        for B_i_0_t in range(((n + 3)//4) - (n//4)):
            for B_i_1_t in vectorized((n % 4)):
                for B_j_t in range(3):
                    with block("B_t", B_i_=spatial(n, B_i_1_t + (n//4)*4), B_j_=spatial(3, B_j_t)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_a_constant_extent():
    check(
        elementwise(13),
        'split("B_i", factors=(None, 4))\npeel("B_i_0")',
        """
        for B_i_0 in range(3):
            for B_i_1 in range(4):
                for B_j in range(3):
                    with block("B", B_i_=spatial(13, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        for B_i_0_t in range(1):
            for B_i_1_t in range(1):
                for B_j_t in range(3):
                    with block("B_t", B_i_=spatial(13, B_i_1_t + 12), B_j_=spatial(3, B_j_t)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_tiles_of_both_loops_and_the_reduction():
    check(
        matmul(N, N, N),
        """
        split("C_i", factors=(None, 4))
        split("C_j", factors=(None, 3))
        split("k", factors=(None, 2))
        reorder(("C_i_0", "C_j_0", "k_0", "C_i_1", "k_1", "C_j_1"))
        parallel("C_i_0")
        peel("C_i_0")
        peel("C_j_0")
        peel("k_0")
        peel("C_j_0_t")
        """,
    )


def test_three_levels():
    check(elementwise(N), 'split("B_i", factors=(None, 2, 3))\npeel("B_i_0")\npeel("B_i_1_t")')
    check(elementwise(11), 'split("B_i", factors=(None, 2, 3))\npeel("B_i_0")')
    check(elementwise(N), 'split("B_i", factors=(None, 2, 3))\npeel("B_i_1")')


def panels(n: IntLike) -> Func:
    """Rows as columns of panels of three, the last row again where the last panel is not full."""
    a = placeholder("A", (n, 2), float32)
    shape = (ceildiv(n, 3), 2, 3)
    return build_func("panels", [a], [compute("P", shape, lambda p, k, i: a[minimum(p * 3 + i, as_expr(n) - 1), k])])


def test_a_clamped_index():
    check(
        panels(N),
        'peel("P_p")',
        """
        for P_p in range((n//3)):
            for P_k in range(2):
                for P_i in range(3):
                    with block("P", P_p_=spatial(((n + 2)//3), P_p), P_k_=spatial(2, P_k), P_i_=spatial(3, P_i)):
                        P[P_p_, P_k_, P_i_] = A[P_i_ + P_p_*3, P_k_]
        for P_p_t in range(((n + 2)//3) - (n//3)):
            for P_k_t in range(2):
                for P_i_t in range(3):
                    with block("P_t", P_p_=spatial(((n + 2)//3), (n//3)), P_k_=spatial(2, P_k_t), P_i_=spatial(3, P_i_t)):
                        P[P_p_, P_k_, P_i_] = A[min(P_i_ + P_p_*3, n - 1), P_k_]
        """,  # noqa: E501
    )
    for size in (1, 3, 7):
        check(panels(size), 'peel("P_p")' if size > 3 else "")
    check(panels(N), 'split("P_p", factors=(None, 2))\npeel("P_p_0")\npeel("P_p_1")')


def test_refusals():
    f = elementwise(N)
    check_refusals(
        Peel,
        {
            "the loop is not there": (
                f, 'peel("x")', "peel(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop is neither serial nor parallel": (
                f, 'unroll("B_j")\npeel("B_j")', "peel(B_j): expected a serial or parallel loop, got a unrolled one",
            ),
            "no inner extent is ragged in this loop, and no index clamped": (
                f, 'peel("B_i")', "peel(B_i): expected an inner extent or index that is ragged in B_i, got none",
            ),
            "the loop has no full iteration": (
                parse_func(
                    "def triangle(B: out(float32[2, 4])):\n"
                    "    for i in range(2):\n"
                    "        for j in range(min(3 - i, 4)):\n"
                    "            B[i, j] = float32(1.0)\n"
                ),
                'peel("i")',
                "peel(i): expected at least one full iteration of 2, got none that is provably full",
            ),
        },
    )  # fmt: skip
