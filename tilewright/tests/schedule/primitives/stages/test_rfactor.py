import numpy as np

from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.stages.rfactor import RFactor
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, f32, matmul, row_max

N = var("n")

SUBTRACT = parse_func("""
def subtract(A: float32[4], B: out(float32[1])):
    for k in range(4):
        with block("B", z=spatial(1, 0), k_=reduce(4, k)):
            init(float32(0.0))
            B[z] = sub(B[z], A[k_])
""")
GUARDED = parse_func("""
def guarded(A: float32[4], B: out(float32[1])):
    for k in range(4):
        if less(index(k, int64), index(4, int64)):
            with block("B", z=spatial(1, 0), k_=reduce(4, k)):
                init(float32(0.0))
                B[z] = add(B[z], A[k_])
""")
RAGGED = parse_func("""
def ragged(A: float32[4, 8], B: out(float32[4])):
    for k in range(2):
        for i in range(-k + 4):
            for j in range(3):
                with block("B", x=spatial(4, i), k_=reduce(8, k*3 + j)):
                    init(float32(0.0))
                    B[x] = add(B[x], A[x, k_])
""")
GROWING = parse_func("""
def growing(A: float32[4, 4], B: out(float32[1])):
    for i in range(4):
        for j in range(i + 1):
            with block("B", z=spatial(1, 0), i_=reduce(4, i), j_=reduce(4, j)):
                init(float32(0.0))
                B[z] = add(B[z], A[i_, j_])
""")
ENDLESS = parse_func("""
def endless(n: dim, A: float32[n, n], B: out(float32[n])):
    for x in range(n):
        for i in range(x + 1):
            for j in range(n):
                with block("B", x_=spatial(n, x), i_=reduce(n, i), j_=reduce(n, j)):
                    init(float32(0.0))
                    B[x_] = add(B[x_], A[i_, j_])
""")
LOCAL = parse_func("""
def local_rows(n: dim, A: float32[3, n], B: out(float32[3])):
    for o in range(1):
        T = local(float32[3])
        for i in range(3):
            for k in range(n):
                with block("T", x=spatial(3, i), k_=reduce(n, k)):
                    init(float32(0.0))
                    T[x] = add(T[x], A[x, k_])
        for j in range(3):
            with block("B", x=spatial(3, j)):
                B[x] = T[x]
""")


def total(n):
    """B[0] = sum of A"""
    a = placeholder("A", (n,), f32)
    r = reduce_axis(n, "k")
    return build_func("total", [a], [compute("B", (1,), lambda i: sum_over(a[r], r))])


def test_a_loop_fused_of_symbolic_ones():
    """What the fused loop is divided by is a dim of the function, and no loop."""
    a = placeholder("A", (var("b"), var("s"), 4), f32)
    steps = [reduce_axis(e, n) for e, n in ((var("b"), "i"), (var("s"), "j"), (4, "k"))]
    func = build_func("total", [a], [compute("B", (1,), lambda x: sum_over(a[tuple(r.index for r in steps)], *steps))])
    s = Schedule(func)
    fused = s.fuse("i", "j", "k")
    s.rfactor(s.split(fused, (None, 8))[1])
    x = np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4)
    np.testing.assert_array_equal(interpret(s.func, [x], {"b": 3, "s": 5})[0], [x.sum()])


def test_lanes_of_a_sum():
    check(
        total(N),
        'split("k", factors=(None, 8))\nrfactor("k_1")',
        """
        B_rf = shared(float32[1, 8])
        for B_i in range(1):
            for k_0 in range(((n + 7)//8)):
                for k_1 in range(min(-k_0*8 + n, 8)):
                    with block("B_rf", B_i_=spatial(1, B_i), k_1_=spatial(8, k_1), k_0_=reduce(((n + 7)//8), k_0)):
                        init(float32(0.0))
                        B_rf[B_i_, k_1_] = add(B_rf[B_i_, k_1_], A[k_0_*8 + k_1_])
        for B_i_r in range(1):
            for k_1_r in range(min(8, n)):
                with block("B", B_i_=spatial(1, B_i_r), k_1_r_=reduce(min(8, n), k_1_r)):
                    init(float32(0.0))
                    B[B_i_] = add(B[B_i_], B_rf[B_i_, k_1_r_])
        """,
        [{"n": n} for n in (1, 7, 8, 17)],
    )


def test_lanes_are_vectors_in_a_row():
    check(
        row_max(3, N),
        """
        compute_at("M", loop="B_i")
        split("r", factors=(None, 8))
        rfactor("r_1")
        decompose_reduction("M_rf", loop="r_0")
        vectorize("r_1")
        parallel("B_i")
        """,
        """
        for B_i in parallel(3):
            M = local(float32[1])
            with local(float32[8]) as M_rf:
                for r_1_init in range(8):
                    with block("M_rf_init", r_1_=spatial(8, r_1_init)):
                        M_rf[r_1_] = float32(-inf)
                for r_0 in range(((n + 7)//8)):
                    for r_1 in vectorized(min(8, n - r_0*8)):
                        with block("M_rf", M_i_=spatial(3, B_i), r_1_=spatial(8, r_1), r_0_=reduce(((n + 7)//8), r_0)):
                            M_rf[r_1_] = max(M_rf[r_1_], A[M_i_, r_0_*8 + r_1_])
                for r_1_r in range(min(8, n)):
                    with block("M", M_i_=spatial(3, B_i), r_1_r_=reduce(min(8, n), r_1_r)):
                        init(float32(-inf))
                        M[0] = max(M[0], M_rf[r_1_r_])
            for B_j in range(n):
                with block("B", B_i_=spatial(3, B_i), B_j_=spatial(n, B_j)):
                    B[B_i_, B_j_] = sub(A[B_i_, B_j_], M[0])
        """,
        [{"n": n} for n in (1, 7, 8, 17)],
    )


def test_the_only_and_the_outer_reduction_loop():
    check(total(13), 'rfactor("k")')
    check(matmul(2, 3, 13), 'split("k", factors=(None, 4))\nrfactor("k_0")')
    check(matmul(2, 3, N), 'split("k", factors=(None, 4))\nreorder(("k_0", "C_i"))\nrfactor("k_1")', None,
          [{"n": 1}, {"n": 4}, {"n": 9}])  # fmt: skip


def test_refusals():
    check_refusals(
        RFactor,
        {
            "the loop is not there": (
                total(4),
                'rfactor("x")',
                "rfactor(x): expected the name of a loop of total, got 'x'; it has: B_i, k",
            ),
            "the loop is not serial": (
                total(4),
                'unroll("k")\nrfactor("k")',
                "rfactor(k): expected a serial loop, got a unrolled one",
            ),
            "the loop is not around exactly one block": (
                row_max(3, 4),
                'compute_at("M", loop="B_i")\nrfactor("B_i")',
                "rfactor(B_i): expected one block in the loop, got 2",
            ),
            "the block is not a reduction with an initial value": (
                matmul(2, 2, 2),
                'decompose_reduction("C", loop="k")\nrfactor("k")',
                "rfactor(k): expected block C to be a reduction with an initial value",
            ),
            "the combining operation is not associative, or the initial value not its identity": (
                SUBTRACT,
                'rfactor("k")',
                "rfactor(k): expected an associative operation, got sub",
            ),
            "the loop does not run over reduce axes only": (
                matmul(2, 2, 2),
                'rfactor("C_i")',
                "rfactor(C_i): expected a loop that runs over reduce axes only",
            ),
            "the nest holds a guard, or a reduction loop is outside it": (
                GUARDED,
                'rfactor("k")',
                "rfactor(k): the nest holds a guard, a store or an allocation",
            ),
            "the nest does not start at the first step of the reduction": (
                total(7),
                'split("k", factors=(None, 3))\npeel("k_0")\nrfactor("k_1_t")',
                "rfactor(k_1_t): reduce axis k_ = k_1_t + 6 does not start at 0 in the nest",
            ),
            "a spatial extent is ragged in a reduction loop": (
                RAGGED,
                'rfactor("j")',
                "rfactor(j): the extent -k + 4 of spatial loop i is ragged in a reduction loop",
            ),
            "a later step has more iterations of the loop than the first": (
                GROWING,
                'rfactor("j")',
                "rfactor(j): a later step may have more than the 1 iterations of the first",
            ),
            "an extent of the nest has no bound outside it": (
                ENDLESS,
                'rfactor("j")',
                "rfactor(j): extent x + 1 has no bound outside the nest",
            ),
            "the partial results would be local and have no constant size": (
                LOCAL,
                'rfactor("k")',
                "rfactor(k): expected a constant bound of n for local partial results",
            ),
        },
    )
