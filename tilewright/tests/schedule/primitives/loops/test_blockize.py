import pytest

from tilewright.core.arith.expr import var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.primitives.loops.blockize import Blockize
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul, matmul_relu
from tilewright.tests.schedule.kernels import stepped

N = var("n")


def test_the_loops_around_a_unit_are_scheduled_as_before():
    check(
        elementwise(N),
        """
        blockize("B_j")
        split("B_i", factors=(None, 4))
        peel("B_i_0")
        unroll("B_i_1")
        parallel("B_i_0")
        """,
        """
        for B_i_0 in parallel((n//4)):
            for B_i_1 in unrolled(4):
                for B_j in opaque(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        for B_i_0_t in range(((n + 3)//4) - (n//4)):
            for B_i_1_t in range((n % 4)):
                for B_j_t in opaque(3):
                    with block("B_t", B_i_=spatial(n, B_i_1_t + (n//4)*4), B_j_=spatial(3, B_j_t)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_loops_are_fused_and_reordered_around_a_unit():
    check(matmul(N, 5, 4), 'blockize("k")\nreorder(("C_j", "C_i"))\nfuse(("C_j", "C_i"))')


@pytest.mark.parametrize(
    ("step", "subject"),
    [
        ('split("E_j", factors=(None, 2))', "split(E_j): loop E_j"),
        ('unroll("E_i")', "unroll(E_i): loop E_i"),
        ('reorder(("E_j", "E_i"))', "reorder(E_j, E_i): loop E_j"),
        ('annotate("E_j", key="stream", value="E")', "annotate(E_j): loop E_j"),
        ('compute_inline("E")', "compute_inline(E): block E"),
        ('cache_read("E", buffer="C", scope="local")', "cache_read(E): block E"),
        ('reverse_compute_inline("E")', "reverse_compute_inline(E): block E"),
        ('compute_at("C", loop="E_j")', "compute_at(C): loop E_j"),
    ],
)
def test_no_step_reaches_inside(step, subject):
    ready = Trace.from_text('blockize("E_i")').apply(matmul_relu(4, 4, 4))
    with pytest.raises(ScheduleError) as caught:
        Trace.from_text(step).steps[0].apply(ready)
    assert str(caught.value) == f"{subject} is part of the opaque loop E_i"


def test_refusals():
    f = elementwise(4)
    check_refusals(
        Blockize,
        {
            "the loop is not there": (
                f,
                'blockize("x")',
                "blockize(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop is not serial": (
                f, 'parallel("B_i")\nblockize("B_i")', "blockize(B_i): expected a serial loop, got a parallel one",
            ),
            "a parallel loop stands inside": (
                stepped(5, 8),
                'parallel("next_i1")\nblockize("step")',
                "blockize(step): loop next_i1 inside is parallel",
            ),
            "an opaque loop stands inside": (
                f, 'blockize("B_j")\nblockize("B_i")', "blockize(B_i): loop B_j inside is opaque already",
            ),
        },
    )  # fmt: skip
