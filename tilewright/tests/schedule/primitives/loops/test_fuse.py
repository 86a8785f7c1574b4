from tilewright.core.arith.expr import var
from tilewright.core.dtypes import float32
from tilewright.schedule.primitives.loops.fuse import Fuse
from tilewright.tensor_ir.compute import build_func, compute, index_value, placeholder, reduce_axis, select, sum_over
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, matmul, matmul_relu, prefix_sum

N = var("n")


def test_two_loops():
    check(
        elementwise(N),
        'fuse(("B_i", "B_j"))',
        """
        for B_i_B_j_f in range(n*3):
            with block("B", B_i_=spatial(n, (B_i_B_j_f//3)), B_j_=spatial(3, (B_i_B_j_f % 3))):
                B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_symbolic_inner_extent():
    check(elementwise(N, var("m")), 'fuse(("B_i", "B_j"))')
    check(elementwise(N, var("m")), 'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(3, None))')


def test_no_iterations():
    check(elementwise(3, 0), 'fuse(("B_i", "B_j"))')
    check(elementwise(0, 3), 'fuse(("B_i", "B_j"))')


def test_spatial_with_reduce():
    check(matmul(N, 3, 5), 'fuse(("C_j", "k"))\nsplit("C_j_k_f", factors=(None, 4))')
    check(matmul(2, N, 4), 'fuse(("C_i", "C_j", "k"))')


def test_a_split_undoes_it():
    check(
        elementwise(4, 6),
        'fuse(("B_i", "B_j"))\nsplit("B_i_B_j_f", factors=(4, 6))',
        """
        for B_i_B_j_f_0 in range(4):
            for B_i_B_j_f_1 in range(6):
                with block("B", B_i_=spatial(4, B_i_B_j_f_0), B_j_=spatial(6, B_i_B_j_f_1)):
                    B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_ordered_axes_stay_in_order():
    check(prefix_sum(N, 4), 'fuse(("S_i", "S_t"))')


def sums_and_others():
    """Sums of rows, and behind them other numbers."""
    x, other, k = placeholder("X", (N, 7), float32), placeholder("O", (5,), float32), reduce_axis(7, "k")
    sums = compute("S", (N,), lambda i: sum_over(x[i, k], k))
    joined = compute("J", (N + 5,), lambda j: select(index_value(j) < index_value(N), sums[j], other[j - N]))
    return build_func("joined", [x, other], [joined], [sums])


def test_refusals():
    f = matmul_relu(N, 4, 5)
    check_refusals(
        Fuse,
        {
            "a loop is not there": (
                elementwise(N),
                'fuse(("B_i", "x"))',
                "fuse(B_i, x): expected the name of a loop of elementwise, got 'x'; it has: B_i, B_j",
            ),
            "fewer than two loops": (f, 'fuse(("C_i",))', "fuse(C_i): expected at least two loops, got 1"),
            "the loops are not perfectly nested in the order listed": (
                f,
                'fuse(("C_i", "k"))',
                "fuse(C_i, k): expected perfectly nested loops, but k is not all of the body of C_i",
            ),
            "the extent of one uses the variable of another": (
                f,
                'split("C_i", factors=(None, 4))\nfuse(("C_i_0", "C_i_1"))',
                "fuse(C_i_0, C_i_1): expected rectangular loops, but the extent of C_i_1 uses C_i_0",
            ),
            "a loop is not serial": (
                f, 'unroll("C_j")\nfuse(("C_j", "k"))', "fuse(C_j, k): expected serial loops, but C_j is unrolled",
            ),
            "a spatial loop would join a loop of a reduction that may be empty": (
                matmul(2, 4, N), 'fuse(("C_j", "k"))',
                "fuse(C_j, k): reduction C may be empty, and C_j is not one of its steps",
            ),
            "a loop runs once or not at all, as loops around it say (its variable is what keeps indices in range)": (
                sums_and_others(), 'compute_at("S", loop="J_j")\nfuse(("S_i", "k"))',
                "fuse(S_i, k): expected loops of several steps, but S_i has one or none: "
                "max(-J_j + min(J_j, n - 1) + 1, 0)",
            ),
        },
    )  # fmt: skip


def test_a_loop_of_one_iteration_leaves_no_division():
    """One by a symbolic size could not be seen to be 0."""
    x = placeholder("X", (1, N, 1, 3), float32)
    func = build_func("f", [x], [compute("Y", (1, N, 1, 3), lambda i, j, k, c: x[i, j, k, c] + 1.0)])
    after = check(func, 'fuse(("Y_i", "Y_j", "Y_k"))', None, [{"n": 0}, {"n": 1}, {"n": 5}])
    assert "//" not in str(after)
    assert "%" not in str(after)
