import itertools
import random

from tilewright.core.arith.expr import IntExpr, as_expr, var
from tilewright.core.arith.parse import parse
from tilewright.schedule.primitives.buffers.transform_layout import TransformLayout
from tilewright.tensor_ir.analysis.dependence import is_injective
from tilewright.tensor_ir.intrinsics import with_intrinsics
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import (
    blur,
    check,
    check_refusals,
    conv,
    elementwise,
    gather,
    matmul_relu,
    row_max,
)
from tilewright.tests.schedule.intrinsics import SMALL

N, M = var("n"), var("m")

DOUBLED = parse_func("""
def doubled(A: float32[4], B: out(float32[4])):
    T = shared(float32[4])
    for h in range(4):
        with block("T", h_=spatial(4, h)):
            T[h_] = A[h_]
    for i in range(4):
        with block("B", i_=spatial(4, i)):
            B[i_] = add(T[i_], T[i_])
""")
EVERYWHERE = parse_func("""
def everywhere(A: int64[7], B: out(int64[7])):
    T = shared(int64[7])
    for h in range(7):
        with block("T", h_=spatial(7, h)):
            T[h_] = index(6 - h_, int64)
    for i in range(7):
        if less(T[i], index(3, int64)):
            T[i] = T[T[T[i]]]
    for j in range(7):
        with block("B", x=spatial(7, (T[T[j]]) % 7)):
            B[x] = T[T[x] % 7]
""")
LOCAL = parse_func("""
def local_buffer(n: dim, A: float32[4], B: out(float32[4])):
    with local(float32[4]) as t:
        for h in range(4):
            with block("t", h_=spatial(4, h)):
                t[h_] = A[h_]
        for i in range(4):
            with block("B", i_=spatial(4, i)):
                B[i_] = t[i_]
""")


def test_panels_with_a_ragged_end():
    check(
        row_max(13, N),
        'transform_layout("M", index_map="i -> i // 8, i % 8")',
        """
        M = shared(float32[2, 8])
        for M_i in range(13):
            for r in range(n):
                with block("M", M_i_=spatial(13, M_i), r_=reduce(n, r)):
                    init(float32(-inf))
                    M[(M_i_//8), (M_i_ % 8)] = max(M[(M_i_//8), (M_i_ % 8)], A[M_i_, r_])
        for B_i in range(13):
            for B_j in range(n):
                with block("B", B_i_=spatial(13, B_i), B_j_=spatial(n, B_j)):
                    B[B_i_, B_j_] = sub(A[B_i_, B_j_], M[(B_i_//8), (B_i_ % 8)])
        """,
    )


def test_loops_split_as_the_map_does():
    check(
        matmul_relu(N, M, 3),
        """
        transform_layout("C", index_map="i, j -> j // 4, i, j % 4")
        split("C_j", factors=(None, 4))
        reorder(("C_j_0", "C_i", "C_j_1"))
        parallel("C_j_0")
        vectorize("C_j_1")
        """,
    )


def test_orders_of_dimensions_and_directions():
    for places in ("j, i", "i*m + j", "i, m - 1 - j", "j, 2, i*3 + 1", "i, j"):
        check(matmul_relu(N, M, 3), f'transform_layout("C", index_map="i, j -> {places}")')


def test_windows_and_reads_from_memory():
    check(blur(N), 'transform_layout("T", index_map="i -> i % 4, i // 4")')
    check(conv(N, M), 'transform_layout("P", index_map="i, x -> x // 2, i, x % 2")')
    check(gather(N, M), 'transform_layout("T", index_map="x, j -> j, x // 4, x % 4")')


def test_places_in_guards_bindings_and_indices():
    check(EVERYWHERE, 'transform_layout("T", index_map="i -> i // 3, i % 3")')


def test_an_empty_shape_stays_one():
    after = check(matmul_relu(N, 5, 3), 'transform_layout("C", index_map="i, j -> i*8 + j")')
    assert "shared(float32[max(n*8 - 3, 0)])" in str(after) or after.dims == ("n",)


def test_what_is_accepted_is_injective():
    """The proof against brute force, on maps of many forms."""
    rng = random.Random(0)
    forms = (
        "i", "j", "i // 2", "i % 2", "j // 3", "j % 3", "i*4 + j", "i + j", "i*2 + j", "j*3 + i", "7 - i", "i // 4",
        "i // 2 % 2", "i*j", "min(i, 2)", "i*2 + j // 2", "j % 2", "(i*4 + j) // 3", "(i*4 + j) % 3",
    )  # fmt: skip
    proved = 0
    for _ in range(600):
        indices: list[IntExpr] = [parse(rng.choice(forms)) for _ in range(rng.choice((1, 2, 3)))]
        n, m = rng.randint(1, 5), rng.randint(1, 5)
        if is_injective(indices, {"i": as_expr(n), "j": as_expr(m)}):
            proved += 1
            points = [{"i": i, "j": j} for i, j in itertools.product(range(n), range(m))]
            assert len({tuple(e.evaluate(p) for e in indices) for p in points}) == n * m, (indices, n, m)
    assert proved > 100


def test_refusals():
    f = row_max(N, 4)
    check_refusals(
        TransformLayout,
        {
            "the buffer is not there": (
                f,
                'transform_layout("X", index_map="i -> i")',
                "transform_layout(X): expected the name of a buffer of row_max, got 'X'; it has: A, B, M",
            ),
            "the buffer is a parameter": (
                elementwise(N),
                'transform_layout("B", index_map="i, j -> j, i")',
                "transform_layout(B): expected an intermediate buffer, but B is a parameter of elementwise",
            ),
            "the map does not read as names, an arrow, and index expressions": (
                f,
                'transform_layout("M", index_map="i -> i / 2")',
                "transform_layout(M): expected a map such as 'i, j -> j, i', got 'i -> i / 2'",
            ),
            "the map does not have one name for each dimension": (
                f,
                'transform_layout("M", index_map="i, j -> j, i")',
                "transform_layout(M): expected 1 names for the dimensions of M, got 2",
            ),
            "a new index uses what is neither a name of the map nor a dim": (
                f,
                'transform_layout("M", index_map="i -> i, k")',
                "transform_layout(M): index k uses k, which is neither a name of the map nor a dim",
            ),
            "a divisor in the map is not a positive constant": (
                f,
                'transform_layout("M", index_map="i -> i // n, i % n")',
                "transform_layout(M): expected positive constants as divisors, got n in (i//n)",
            ),
            "a new index has no bounds, or may be below 0": (
                f,
                'transform_layout("M", index_map="i -> i - 1")',
                "transform_layout(M): index i - 1 is not proved to have bounds and to be at least 0",
            ),
            "two elements are not proved to stay apart": (
                f,
                'transform_layout("M", index_map="i -> i // 2")',
                "transform_layout(M): the elements of M are not proved to stay apart under 'i -> i // 2'",
            ),
            "the new shape of a local buffer is not constant, though the old one is": (
                LOCAL,
                'transform_layout("t", index_map="i -> n, i")',
                "transform_layout(t): expected a constant shape for local scope, got (n + 1, 4)",
            ),
            "a nest would no longer be what the intrinsic that runs it computes": (
                with_intrinsics(DOUBLED, *SMALL),
                'tensorize("i", intrinsic="double_4")\ntransform_layout("T", index_map="i -> i*2")',
                "transform_layout(T): i would no longer be what intrinsic double_4 computes: "
                "the last dimension of A is not made of neighbours in T",
            ),
        },
    )
