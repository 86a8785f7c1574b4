import math

from tilewright.core.arith.expr import as_expr, var
from tilewright.schedule.primitives.buffers.storage_align import StorageAlign
from tilewright.tensor_ir.analysis.scopes import find_buffer
from tilewright.tensor_ir.intrinsics import with_intrinsics
from tilewright.tensor_ir.ir import Alloc, Buffer, Func, TensorIntrin
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, conv, f32, matmul_relu

N, M = var("n"), var("m")

PAIRS = parse_func("""
def pairs(A: float32[2, 4], B: out(float32[2, 4])):
    T = shared(float32[2, 2, 2])
    for g in range(2):
        for h in range(4):
            with block("T", g_=spatial(2, g), h_=spatial(4, h)):
                T[g_, h_//2, h_ % 2] = A[g_, h_]
    for i in range(2):
        for j in range(4):
            with block("B", i_=spatial(2, i), j_=spatial(4, j)):
                B[i_, j_] = add(T[i_, j_//2, j_ % 2], float32(1.0))
""")
ROWS = with_intrinsics(
    parse_func("""
def rows(A: float32[2, 2], B: out(float32[2, 2])):
    T = shared(float32[2, 2])
    for g in range(2):
        for h in range(2):
            with block("T", g_=spatial(2, g), h_=spatial(2, h)):
                T[g_, h_] = A[g_, h_]
    for i in range(2):
        for j in range(2):
            with block("B", i_=spatial(2, i), j_=spatial(2, j)):
                B[i_, j_] = add(T[i_, j_], T[i_, j_])
"""),
    TensorIntrin(
        parse_func("""
def double_2x2(A: float32[2, 2], B: out(float32[2, 2])):
    for i in range(2):
        for j in range(2):
            B[i, j] = add(A[i, j], A[i, j])
"""),
        dense=("A",),
    ),
)


def test_rows_of_a_symbolic_length():
    check(
        matmul_relu(2, N, 3),
        'storage_align("C", axis=0, factor=8, offset=4)\ncompute_inline("E")',
        """
        C = shared(float32[2, ((n + 3)//8)*8 + 4])
        for C_i in range(2):
            for C_j in range(n):
                for k in range(3):
                    with block("C", C_i_=spatial(2, C_i), C_j_=spatial(n, C_j), k_=reduce(3, k)):
                        init(float32(0.0))
                        C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
        for D_i in range(2):
            for D_j in range(n):
                with block("D", D_i_=spatial(2, D_i), D_j_=spatial(n, D_j)):
                    D[D_i_, D_j_] = max(add(C[D_i_, D_j_], bias[D_j_]), float32(0.0))
        """,
    )


def test_a_tile_of_a_local_buffer():
    check(
        conv(N, M),
        """
        split("S_o", factors=(None, 2))
        compute_at("P", loop="S_x")
        storage_align("P", axis=0, factor=8, offset=1)
        """,
    )


def test_the_stride_is_the_least_that_fits():
    for rest in (1, 2, 3, 4, 6):
        for factor in (1, 2, 4, 6, 9):
            for offset in range(factor):
                if offset % math.gcd(rest, factor):
                    continue
                for extent in (0, 1, 5, 7, 12):
                    b = Buffer("T", f32, (as_expr(3), as_expr(extent), as_expr(rest)))
                    after = StorageAlign("T", 0, factor, offset).apply(Func("f", (), 0, (), Alloc(b, PAIRS.body)))
                    got = find_buffer(after, "T").shape[1].value()
                    fitting = (e for e in range(extent, extent + factor + 1) if e * rest % factor == offset)
                    assert got == next(fitting), (rest, factor, offset, extent)


def test_nothing_to_do_is_the_same_function():
    func = matmul_relu(4, 16, 3)
    assert StorageAlign("C", 0, 8).apply(func) is func


def test_refusals():
    f = matmul_relu(N, 4, 5)
    check_refusals(
        StorageAlign,
        {
            "the buffer is not there": (
                f,
                'storage_align("X", axis=0, factor=8, offset=0)',
                "storage_align(X): expected the name of a buffer of matmul_relu, got 'X'; it has: A, B, C, D, E, bias",
            ),
            "the buffer is a parameter": (
                f,
                'storage_align("A", axis=0, factor=8, offset=0)',
                "storage_align(A): expected an intermediate buffer, but A is a parameter of matmul_relu",
            ),
            "the axis is none of the buffer's, or has no dimension inside": (
                f,
                'storage_align("C", axis=1, factor=8, offset=0)',
                "storage_align(C): expected an axis of 2 with a dimension inside, got 1",
            ),
            "the factor is less than 1, or the offset not below it": (
                f,
                'storage_align("C", axis=-2, factor=8, offset=8)',
                "storage_align(C): expected factor >= 1 and 0 <= offset < factor, got 8 and 8",
            ),
            "the number of elements further inside is not constant": (
                conv(N, M),
                'transform_layout("S", index_map="o, x -> 0, o, x")\nstorage_align("S", axis=0, factor=8, offset=0)',
                "storage_align(S): expected a constant number of elements further inside, got n",
            ),
            "no stride of this form is a multiple of the elements further inside": (
                PAIRS,
                'storage_align("T", axis=0, factor=4, offset=1)',
                "storage_align(T): no multiple of 2 is a multiple of 4 plus 1",
            ),
            "a nest would no longer be what the intrinsic that runs it computes": (
                ROWS,
                'tensorize("i", intrinsic="double_2x2")\nstorage_align("T", axis=0, factor=4, offset=0)',
                "storage_align(T): i would no longer be what intrinsic double_2x2 computes: "
                "A does not lie in T without gaps",
            ),
        },
    )
