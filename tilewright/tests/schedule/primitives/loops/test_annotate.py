from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.loops.annotate import KEYS, Annotate
from tilewright.schedule.primitives.loops.unannotate import Unannotate
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.parallel_if import parallel_condition
from tilewright.tensor_ir.analysis.scopes import find_loop
from tilewright.tests.schedule.helper import check, check_refusals, elementwise

F = elementwise(2)


def test_a_hint_is_replaced_and_removed():
    check(
        F,
        """
        annotate("B_i", key="worth", value="7")
        annotate("B_i", key="worth", value="8 - 2*4")
        annotate("B_i", key="stream", value="B")
        annotate("B_i", key="prefetch", value="A")
        annotate("B_j", key="prefetch", value="A")
        unannotate("B_j", key="prefetch")
        """,
        """
        for B_i in range(2, if_=0, prefetch="A", stream="B"):
            for B_j in range(3):
                with block("B", B_i_=spatial(2, B_i), B_j_=spatial(3, B_j)):
                    B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_the_schedule_has_a_method_for_each():
    s = Schedule(elementwise(var("n")))
    s.parallel("B_i", if_=var("n") * 2 - 9)
    s.prefetch("B_j", "A")
    s.stream("B_i", "B")
    assert [(step.name, getattr(step, "key", "")) for step in s.trace.steps] == [
        ("parallel", ""), ("annotate", "worth"), ("annotate", "prefetch"), ("annotate", "stream"),
    ]  # fmt: skip
    assert {step.key for step in s.trace.steps[1:]} == set(KEYS)
    assert parallel_condition(s.func, find_loop(s.func, "B_i")) == var("n") * 2 - 9


def test_refusals():
    check_refusals(
        Annotate,
        {
            "the loop is not there": (
                F,
                'annotate("x", key="stream", value="B")',
                "annotate(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "there is no hint of that key": (
                F,
                'annotate("B_i", key="intrinsic", value="f")',
                "annotate(B_i): expected one of the keys prefetch, stream, worth, got 'intrinsic'",
            ),
            "the value is not an expression where it has to be": (
                F,
                'annotate("B_i", key="worth", value="n +")',
                "annotate(B_i): integer expression 'n +' does not parse: invalid syntax",
            ),
        },
    )


def test_refusals_of_unannotate():
    check_refusals(
        Unannotate,
        {
            "the loop is not there": (
                F,
                'unannotate("x", key="stream")',
                "unannotate(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop has no such hint": (
                F,
                'annotate("B_i", key="stream", value="B")\nunannotate("B_i", key="prefetch")',
                "unannotate(B_i): expected a hint 'prefetch', got only: stream",
            ),
        },
    )
