from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.loops.split import Split
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul, prefix_sum

N = var("n")


def test_a_symbolic_extent_makes_a_ragged_inner_loop():
    check(
        elementwise(N),
        'split("B_i", factors=(None, 4))',
        """
        for B_i_0 in range(((n + 3)//4)):
            for B_i_1 in range(min(-B_i_0*4 + n, 4)):
                for B_j in range(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_a_factor_that_divides_leaves_plain_extents():
    check(
        elementwise(N * 8),
        'split("B_i", factors=(None, 2, 4))',
        """
        for B_i_0 in range(n):
            for B_i_1 in range(2):
                for B_i_2 in range(4):
                    for B_j in range(3):
                        with block("B", B_i_=spatial(n*8, B_i_0*8 + B_i_1*4 + B_i_2), B_j_=spatial(3, B_j)):
                            B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
        [{"n": 0}, {"n": 1}, {"n": 3}],
    )


def test_three_ragged_levels():
    check(elementwise(N), 'split("B_i", factors=(None, 3, 4))')
    check(elementwise(37), 'split("B_i", factors=(None, 3, 4))')
    check(elementwise(37), 'split("B_i", factors=(5, 3, 4))')


def test_an_outer_factor_infers_the_inner_one():
    check(elementwise(N), 'split("B_i", factors=(4, None))')
    check(elementwise(N), 'split("B_i", factors=(2, None, 3))')
    check(elementwise(13), 'split("B_i", factors=(4, None))')


def test_a_split_of_a_split():
    check(
        matmul(N, 5, N),
        """
        split("C_i", factors=(None, 6))
        split("C_i_1", factors=(None, 4))
        split("k", factors=(None, 3))
        split("k_0", factors=(2, None))
        """,
    )


def test_ordered_axes_stay_in_order():
    check(prefix_sum(3, N), 'split("S_t", factors=(None, 4))')


def test_names_that_are_taken_get_a_number():
    func = matmul(4, 4, 4)
    after = check(func, 'split("C_i", factors=(None, 2))\nfuse(("C_i_1", "C_j"))\nsplit("C_i_0", factors=(None, 1))')
    assert Split("C_i_0", (None, 2)).produces(func, func) == ("C_i_0_0", "C_i_0_1")
    assert Split("C_i_0", (None, 2)).produces(after, after) == ("C_i_0_0_2", "C_i_0_1_2")


def test_hints_stay_on_the_outer_loop():
    check(
        elementwise(4),
        'annotate("B_i", key="stream", value="B")\nsplit("B_i", factors=(None, 2))',
        """
        for B_i_0 in range(2, stream="B"):
            for B_i_1 in range(2):
                for B_j in range(3):
                    with block("B", B_i_=spatial(4, B_i_0*2 + B_i_1), B_j_=spatial(3, B_j)):
                        B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_refusals():
    f = elementwise(N)
    check_refusals(
        Split,
        {
            "the loop is not there": (
                f,
                'split("x", factors=(None, 4))',
                "split(x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "fewer than two factors": (
                f, 'split("B_i", factors=(4,))', "split(B_i): expected at least two factors, got (4,)",
            ),
            "more than one factor is None": (
                f,
                'split("B_i", factors=(None, None))',
                "split(B_i): at most one factor may be None, got (None, None)",
            ),
            "a factor is less than 1": (f, 'split("B_i", factors=(None, 0))', "split(B_i): factor must be >= 1, got 0"),
            "the factors do not cover the extent (only when none is None)": (
                f,
                'split("B_j", factors=(2, 1))',
                "split(B_j): factors (2, 1) do not cover the extent 3; use None for one of them",
            ),
            "the loop is not serial": (
                f,
                'parallel("B_i")\nsplit("B_i", factors=(None, 4))',
                "split(B_i): expected a serial loop, got a parallel one",
            ),
        },
    )  # fmt: skip
