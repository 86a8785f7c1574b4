from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.loops.vectorize import Vectorize
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul, prefix_sum
from tilewright.tests.schedule.kernels import stepped
from tilewright.tests.schedule.stages import PRIVATE

N = var("n")

SHIFT = parse_func("""
def shift(A: float32[9, 8], B: out(float32[9, 8])):
    for i in range(9):
        for j in range(8):
            with block("B", y=spatial(9, i), x=spatial(8, j)):
                B[y, x] = A[y, x]
            with block("C", y=spatial(9, i), x=spatial(8, j)):
                B[y, x] = add(B[y, 0], A[y, x])
""")


def test_a_ragged_loop_around_a_reduction():
    check(
        matmul(3, N, 5),
        'split("C_j", factors=(None, 4))\nvectorize("C_j_1")',
        """
        for C_i in range(3):
            for C_j_0 in range(((n + 3)//4)):
                for C_j_1 in vectorized(min(-C_j_0*4 + n, 4)):
                    for k in range(5):
                        with block("C", C_i_=spatial(3, C_i), C_j_=spatial(n, C_j_0*4 + C_j_1), k_=reduce(5, k)):
                            init(float32(0.0))
                            C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
        """,
    )


def test_rows_of_a_scan():
    check(prefix_sum(8, N), 'vectorize("S_i")')


def test_refusals():
    f = elementwise(N, 2000)
    g = matmul(8, 8, 8)
    check_refusals(
        Vectorize,
        {
            "the loop is not there": (
                f,
                'vectorize("x")',
                "vectorize(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop is not serial": (
                f, 'parallel("B_i")\nvectorize("B_i")', "vectorize(B_i): expected a serial loop, got a parallel one",
            ),
            "the extent has no constant upper bound": (
                f, 'vectorize("B_i")', "vectorize(B_i): expected an extent with a constant upper bound, got n",
            ),
            "more than 1024 lanes": (f, 'vectorize("B_j")', "vectorize(B_j): expected at most 1024 lanes, got 2000"),
            "the loop is a reduce axis or an ordered axis": (
                g, 'vectorize("k")', "vectorize(k): reduce axis k_ of block C runs with this loop",
            ),
            "the extent of a loop inside uses the variable": (
                elementwise(13),
                'split("B_i", factors=(None, 4))\nvectorize("B_i_0")',
                "vectorize(B_i_0): the extent min(-B_i_0*4 + 13, 4) of loop B_i_1 inside uses the variable",
            ),
            "a loop inside or outside is vectorized already": (
                g, 'vectorize("C_j")\nvectorize("C_i")', "vectorize(C_i): loop C_j inside is vectorized already",
            ),
            "an opaque loop stands inside": (
                g, 'blockize("C_j")\nvectorize("C_i")', "vectorize(C_i): loop C_j inside is opaque; it has no lanes",
            ),
            "a parallel loop stands inside": (
                stepped(3, 8), 'parallel("Rh_j")\nvectorize("step")', "vectorize(step): loop Rh_j inside is parallel",
            ),
            "a buffer is allocated inside": (
                PRIVATE, 'vectorize("j")', "vectorize(j): buffer t is allocated inside; its lanes would share it",
            ),
            "the loop carries a dependence": (
                SHIFT, 'vectorize("j")', "vectorize(j): the loop carries a dependence: C depends on B through B",
            ),
        },
    )  # fmt: skip
