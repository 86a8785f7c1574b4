from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.loops.unroll import Unroll
from tilewright.tests.schedule.helper import check, check_refusals, elementwise
from tilewright.tests.schedule.kernels import stepped

N = var("n")


def test_a_ragged_loop():
    check(
        elementwise(N),
        'split("B_i", factors=(None, 4))\nunroll("B_i_1")\nunroll("B_j")',
        """
        for B_i_0 in range(((n + 3)//4)):
            for B_i_1 in unrolled(min(-B_i_0*4 + n, 4)):
                for B_j in unrolled(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_refusals():
    f = elementwise(N, 2000)
    check_refusals(
        Unroll,
        {
            "the loop is not there": (
                f, 'unroll("x")', "unroll(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop is not serial": (
                f, 'parallel("B_i")\nunroll("B_i")', "unroll(B_i): expected a serial loop, got a parallel one",
            ),
            "a parallel loop stands inside": (
                stepped(3, 8), 'parallel("Rh_j")\nunroll("step")', "unroll(step): loop Rh_j inside is parallel",
            ),
            "the extent has no constant upper bound": (
                f, 'unroll("B_i")', "unroll(B_i): expected an extent with a constant upper bound, got n",
            ),
            "more than 1024 copies": (f, 'unroll("B_j")', "unroll(B_j): expected at most 1024 copies, got 2000"),
        },
    )  # fmt: skip
