import numpy as np

from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.stages.decompose_reduction import DecomposeReduction
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, matmul, row_max

N = var("n")

GUARDED = parse_func("""
def guarded(A: float32[4, 3], B: out(float32[4])):
    for i in range(4):
        for k in range(3):
            if less(index(i, int64), index(4, int64)):
                with block("B", x=spatial(4, i), k_=reduce(3, k)):
                    init(float32(0.0))
                    B[x] = add(B[x], A[x, k_])
""")
TWICE = parse_func("""
def twice(A: float32[4, 3], B: out(float32[4])):
    for t in range(2):
        for i in range(4):
            for k in range(3):
                with block("B", x=spatial(4, i), k_=reduce(3, k)):
                    init(float32(0.0))
                    B[x] = add(B[x], A[x, k_])
""")
WRITERS = parse_func("""
def writers(A: float32[4, 3], B: out(float32[8])):
    for i in range(4):
        for k in range(3):
            with block("B", x=spatial(4, i), k_=reduce(3, k)):
                init(float32(0.0))
                B[x] = add(B[x], A[x, k_])
        with block("B2", x=spatial(4, i)):
            B[x + 4] = A[x, 0]
""")
RAGGED = parse_func("""
def ragged(A: float32[4, 3], B: out(float32[4])):
    for k in range(3):
        for i in range(-k + 4):
            with block("B", x=spatial(3, i), k_=reduce(3, k)):
                init(float32(0.0))
                B[x] = add(B[x], A[x, k_])
    with block("last", x=spatial(4, 3)):
        B[x] = A[x, 0]
""")


def test_in_front_of_the_reduction_loop():
    check(
        matmul(N, 3, 4),
        'reorder(("k", "C_j"))\ndecompose_reduction("C", loop="k")',
        """
        for C_i in range(n):
            for C_j_init in range(3):
                with block("C_init", C_i_=spatial(n, C_i), C_j_=spatial(3, C_j_init)):
                    C[C_i_, C_j_] = float32(0.0)
            for k in range(4):
                for C_j in range(3):
                    with block("C", C_i_=spatial(n, C_i), C_j_=spatial(3, C_j), k_=reduce(4, k)):
                        C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
        """,
    )


def test_in_front_of_the_whole_nest_and_of_tiles():
    check(matmul(N, 3, N), 'decompose_reduction("C", loop="C_i")', None, [{"n": 1}, {"n": 7}])
    check(
        matmul(N, 5, N),
        """
        split("C_i", factors=(None, 4))
        split("k", factors=(None, 3))
        reorder(("C_i_0", "k_0", "C_i_1", "k_1", "C_j"))
        vectorize("C_j")
        decompose_reduction("C", loop="k_0")
        """,
        None,
        [{"n": 1}, {"n": 7}, {"n": 8}],
    )
    check(matmul(4, 4, 3), 'fuse(("C_i", "C_j"))\ndecompose_reduction("C", loop="C_i_C_j_f")')


def test_an_empty_reduction_gives_the_initial_value():
    func = check(matmul(2, 2, N), 'decompose_reduction("C", loop="k")', None, [{"n": 1}])
    args = [np.zeros((2, 0), np.float32), np.zeros((0, 2), np.float32)]
    np.testing.assert_array_equal(interpret(func, args, {"n": 0})[0], np.zeros((2, 2)))


def test_refusals():
    check_refusals(
        DecomposeReduction,
        {
            "the block or the loop is not there": (
                matmul(2, 2, 2),
                'decompose_reduction("C", loop="x")',
                "decompose_reduction(C): expected the name of a loop of matmul, got 'x'; it has: C_i, C_j, k",
            ),
            "the block is not a reduction with an initial value": (
                matmul(2, 2, 2),
                'decompose_reduction("C", loop="k")\ndecompose_reduction("C", loop="k")',
                "decompose_reduction(C): expected a reduction with an initial value",
            ),
            "the loop is not around the block": (
                row_max(3, 4),
                'decompose_reduction("M", loop="B_i")',
                "decompose_reduction(M): expected a loop around the block, B_i is not",
            ),
            "the block stands under a guard in the loop": (
                GUARDED,
                'decompose_reduction("B", loop="k")',
                "decompose_reduction(B): the block stands under a guard",
            ),
            "a reduction loop is outside the loop": (
                matmul(2, 2, 2),
                'reorder(("k", "C_j"))\ndecompose_reduction("C", loop="C_j")',
                "decompose_reduction(C): reduction loop k is outside loop C_j",
            ),
            "the loop does not start at the first step of the reduction": (
                row_max(3, 7),
                'split("r", factors=(None, 3))\npeel("r_0")\ndecompose_reduction("M_t", loop="r_0_t")',
                "decompose_reduction(M_t): reduce axis r_ = r_1_t + 6 does not start at 0 in the nest",
            ),
            "the buffer is allocated inside the loop": (
                row_max(3, 4),
                'compute_at("M", loop="B_i")\ndecompose_reduction("M", loop="B_i")',
                "decompose_reduction(M): M is allocated inside loop B_i",
            ),
            "another statement in the loop writes the buffer": (
                WRITERS,
                'decompose_reduction("B", loop="i")',
                "decompose_reduction(B): block B2 in loop i writes B too",
            ),
            "an element is reduced more than once in the loop": (
                TWICE,
                'decompose_reduction("B", loop="t")',
                "decompose_reduction(B): elements of B are reduced more than once in loop t",
            ),
            "the loop is vectorized or inside a vectorized loop": (
                matmul(2, 2, 2),
                'vectorize("C_j")\ndecompose_reduction("C", loop="k")',
                "decompose_reduction(C): loop C_j is vectorized, lanes cannot hold a nest",
            ),
            "the initial elements are ragged without a bound inside the buffer": (
                RAGGED,
                'decompose_reduction("B", loop="k")',
                "decompose_reduction(B): 4 steps of ragged loop i may leave axis x of 3",
            ),
        },
    )
