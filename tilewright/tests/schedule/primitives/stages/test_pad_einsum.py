import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.stages.pad_einsum import PadEinsum
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import build_func, compute, max_over, placeholder, prod_over, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, f32, matmul, matmul_relu, row_max

N, M = var("n"), var("m")


def scaled(dtype: dtypes.DType) -> Func:
    """C[i] = sum A[i, k] * S[i]"""
    a, s, k = placeholder("A", (5, N), dtype), placeholder("S", (5,), dtype), reduce_axis(N, "k")
    return build_func("scaled", [a, s], [compute("C", (5,), lambda i: sum_over(a[i, k] * s[i], k))])


def text(body: str) -> Func:
    return parse_func(f"def f(A: float32[5], C: out(float32[5])):\n{body}")


def test_every_axis():
    check(
        matmul(5, N, 3),
        'pad_einsum("C", padding=(4, 8, 2))',
        """
        A_pad = shared(float32[8, 4])
        B_pad = shared(float32[4, ((n + 7)//8)*8])
        C_pad = shared(float32[8, ((n + 7)//8)*8])
        for A_pad_i0 in range(8):
            for A_pad_i1 in range(4):
                with block("A_pad", A_pad_i0_=spatial(8, A_pad_i0), A_pad_i1_=spatial(4, A_pad_i1)):
                    A_pad[A_pad_i0_, A_pad_i1_] = select(logical_and(less(index(A_pad_i0_, int64), index(5, int64)), less(index(A_pad_i1_, int64), index(3, int64))), A[A_pad_i0_, A_pad_i1_], float32(0.0))
        for B_pad_i0 in range(4):
            for B_pad_i1 in range(((n + 7)//8)*8):
                with block("B_pad", B_pad_i0_=spatial(4, B_pad_i0), B_pad_i1_=spatial(((n + 7)//8)*8, B_pad_i1)):
                    B_pad[B_pad_i0_, B_pad_i1_] = select(logical_and(less(index(B_pad_i0_, int64), index(3, int64)), less(index(B_pad_i1_, int64), index(n, int64))), B[B_pad_i0_, B_pad_i1_], float32(0.0))
        for C_i in range(8):
            for C_j in range(((n + 7)//8)*8):
                for k in range(4):
                    with block("C", C_i_=spatial(8, C_i), C_j_=spatial(((n + 7)//8)*8, C_j), k_=reduce(4, k)):
                        init(float32(0.0))
                        C_pad[C_i_, C_j_] = add(C_pad[C_i_, C_j_], mul(A_pad[C_i_, k_], B_pad[k_, C_j_]))
        for C_write_i0 in range(5):
            for C_write_i1 in range(n):
                with block("C_write", C_write_i0_=spatial(5, C_write_i0), C_write_i1_=spatial(n, C_write_i1)):
                    C[C_write_i0_, C_write_i1_] = C_pad[C_write_i0_, C_write_i1_]
        """,  # noqa: E501 - golden text
    )


def test_a_reduce_axis_alone_writes_the_result_itself():
    after = check(matmul(N, 3, M), 'pad_einsum("C", padding=(1, 1, 4))')
    assert "C_pad" not in str(after)


def test_tiles_are_whole_then():
    after = check(
        matmul_relu(N, 5, M),
        """
        reorder(("C_j", "C_i"))
        pad_einsum("C", padding=(4, 8, 2))
        split("C_i", factors=(None, 4))
        split("k", factors=(None, 2))
        reorder(("C_i_0", "k_0", "C_i_1", "k_1", "C_j"))
        vectorize("C_j")
        reverse_compute_inline("E")
        """,
    )
    assert "min(" not in str(after)


def test_a_maximum_a_product_and_integers():
    check(row_max(N, 5), 'pad_einsum("M", padding=(2, 4))')
    a, k = placeholder("A", (N, 3), f32), reduce_axis(3, "k")
    check(
        build_func("products", [a], [compute("C", (N,), lambda i: prod_over(a[i, k], k))]),
        'pad_einsum("C", padding=(4, 2))',
    )
    check(scaled(dtypes.int32), 'pad_einsum("C", padding=(4, 4))')
    x, y, r = placeholder("X", (3, M), dtypes.uint8), placeholder("Y", (M,), dtypes.int8), reduce_axis(M, "r")
    dot = compute("C", (3,), lambda i: sum_over(x[i, r].cast(dtypes.int32) * y[r].cast(dtypes.int32) * 2, r))
    check(build_func("quantized", [x, y], [dot]), 'pad_einsum("C", padding=(4, 4))')


def test_constant_indices_and_an_operand_read_twice():
    a, k = placeholder("A", (4, N, 5), f32), reduce_axis(5, "k")
    func = build_func("gram", [a], [compute("C", (N, N), lambda i, j: sum_over(a[1, i, k] * a[1, j, k], k))])
    after = check(func, 'pad_einsum("C", padding=(4, 1, 2))')
    assert "A_pad_2" in str(after)
    square = build_func("square", [a], [compute("C", (N,), lambda i: sum_over(a[1, i, k] * a[1, i, k], k))])
    assert "A_pad_2" not in str(check(square, 'pad_einsum("C", padding=(4, 2))'))


def test_infinities_stay_where_they_are():
    func = matmul(3, 3, 5)
    after = Trace.from_text('pad_einsum("C", padding=(2, 2, 4))').apply(func)
    a = np.array([[np.inf, 1, 2, 3, 4]] * 3, np.float32)
    b = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(interpret(after, [a, b], {})[0], interpret(func, [a, b], {})[0])


def test_nothing_to_pad_is_the_same_function():
    func = matmul(4, 8, 6)
    assert PadEinsum("C", (4, 4, 2)).apply(func) is func


def test_the_names_of_the_copies():
    s = Schedule(matmul(5, 7, 3))
    assert s.pad_einsum("C", (4, 8, 1)) == ("A_pad", "B_pad", "C_write")


def test_refusals():
    f = matmul(5, N, 3)
    a, k = placeholder("A", (5, 3), f32), reduce_axis(4, "k")
    check_refusals(
        PadEinsum,
        {
            "the block is not there": (
                f,
                'pad_einsum("X", padding=(1, 1, 1))',
                "pad_einsum(X): expected the name of a block of matmul, got 'X'; it has: C",
            ),
            "not one factor of at least 1 for each axis": (
                f,
                'pad_einsum("C", padding=(4, 4, 0))',
                "pad_einsum(C): expected a factor >= 1 for each of the axes C_i_, C_j_, k_, got (4, 4, 0)",
            ),
            "the block is not a reduction of spatial and reduce axes with a neutral initial value": (
                elementwise(N),
                'pad_einsum("B", padding=(4, 4))',
                "pad_einsum(B): expected a reduction of spatial and reduce axes with a neutral initial value",
            ),
            "the reduction is neither a sum of products of loads, nor of a single load": (
                build_func("f", [a], [compute("C", (5,), lambda i: max_over(a[i, k] * 2, k))]),
                'pad_einsum("C", padding=(4, 4))',
                "pad_einsum(C): expected a sum of products of loads, or a reduction of a single load",
            ),
            "a store index is neither an axis nor a constant": (
                text(
                    """
    for i in range(5):
        for k in range(3):
            with block("C", x=spatial(5, i), r=reduce(3, k)):
                init(float32(0.0))
                C[4 - x] = add(C[4 - x], A[r])
"""
                ),
                'pad_einsum("C", padding=(4, 4))',
                "pad_einsum(C): expected store indices that are the spatial axes, each once, got [-x + 4]",
            ),
            "an index of an operand is neither an axis nor a constant, or an axis occurs in it twice": (
                build_func("f", [a], [compute("C", (3,), lambda i: sum_over(a[i + k, i], k))]),
                'pad_einsum("C", padding=(4, 8))',
                "pad_einsum(C): expected indices that are axes, each once, or constants, got A[C_i_ + k_, C_i_]",
            ),
            "an operand is not proved to have all the elements that the axes reach": (
                build_func("f", [a], [compute("C", (5,), lambda i: sum_over(a[i, k], k))]),
                'pad_einsum("C", padding=(4, 3))',
                "pad_einsum(C): A[C_i_, k_] is not proved to lie inside A for all k_",
            ),
            "the nest is not at the root, or is not one serial loop for each axis": (
                f,
                'split("k", factors=(None, 2))\npad_einsum("C", padding=(4, 4, 4))',
                "pad_einsum(C): expected one loop for each axis, got C_i, C_j, k_0, k_1",
            ),
            "a padded step of the reduction is not proved to be neutral": (
                scaled(f32),
                'pad_einsum("C", padding=(1, 4))',
                "pad_einsum(C): S does not run along padded reduce axis k_, whose steps may add to it",
            ),
        },
    )
