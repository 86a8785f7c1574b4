from tilewright.schedule.primitives.loops.annotate import Annotate
from tilewright.schedule.primitives.loops.unannotate import Unannotate
from tilewright.tests.schedule.helper import check, check_refusals, elementwise

F = elementwise(2)


def test_a_value_is_replaced_and_removed():
    check(
        F,
        """
        annotate("B_i", key="grain", value="2")
        annotate("B_i", key="grain", value="4")
        annotate("B_i", key="a", value="x y")
        annotate("B_j", key="a", value="")
        unannotate("B_j", key="a")
        """,
        """
        for B_i in range(2, a="x y", grain="4"):
            for B_j in range(3):
                with block("B", B_i_=spatial(2, B_i), B_j_=spatial(3, B_j)):
                    B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_refusals():
    check_refusals(
        Annotate,
        {
            "the loop is not there": (
                F,
                'annotate("x", key="a", value="1")',
                "annotate(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the key is not an identifier": (
                F,
                'annotate("B_i", key="a b", value="1")',
                "annotate(B_i): expected an identifier as key, got 'a b'",
            ),
            'the key is "intrinsic", which tensorize sets': (
                F,
                'annotate("B_i", key="intrinsic", value="f")',
                "annotate(B_i): expected a key that is free, but tensorize alone names an intrinsic",
            ),
        },
    )


def test_refusals_of_unannotate():
    check_refusals(
        Unannotate,
        {
            "the loop is not there": (
                F,
                'unannotate("x", key="a")',
                "unannotate(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "the loop has no such annotation": (
                F,
                'annotate("B_i", key="b", value="1")\nunannotate("B_i", key="a")',
                "unannotate(B_i): expected an annotation 'a', got only: b",
            ),
        },
    )
