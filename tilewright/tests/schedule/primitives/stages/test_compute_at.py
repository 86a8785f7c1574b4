import numpy as np

from tilewright.core.arith.expr import ceildiv, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import int64
from tilewright.schedule.primitives.stages.compute_at import ComputeAt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage_motion import alloc_of
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import build_func, compute, in_range, op, placeholder, select, self_load
from tilewright.tensor_ir.compute import index_value as index
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import blur, check, check_refusals, f32, matmul_relu, row_max
from tilewright.tests.schedule.kernels import stepped
from tilewright.tests.schedule.stages import (
    GUARDED_PRODUCER,
    INPUT_WRITTEN_AGAIN,
    LOCAL_INPUT,
    OTHER_READER,
    OWN_PRODUCER,
    REVERSED,
    STRIDED_PRODUCER,
    UNREAD,
    VECTORIZED_CONSUMER,
)

N = var("n")

PARTIAL = parse_func("""
def partial(A: float32[4, 4], B: out(float32[4])):
    T = shared(float32[4])
    for i in range(4):
        for k in range(3):
            with block("T", x=spatial(4, i), k_=reduce(4, k)):
                init(float32(0.0))
                T[x] = add(T[x], A[x, k_])
    for j in range(4):
        with block("B", x=spatial(4, j)):
            B[x] = T[x]
""")
TRIANGLE = parse_func("""
def triangle(A: float32[4, 4], B: out(float32[4])):
    T = shared(float32[4, 4])
    for i in range(4):
        for k in range(i + 1):
            with block("T", x=spatial(4, i), y=spatial(4, k)):
                T[x, y] = A[x, y]
    for j in range(4):
        with block("B", x=spatial(4, j)):
            B[x] = T[x, x]
""")


def rows(n, m=4):
    """B[i, j] = T[i, j] + T[i, j] with T = A + A"""
    a = placeholder("A", (n, m), f32)
    t = compute("T", (n, m), lambda i, j: a[i, j] + a[i, j])
    return build_func("rows", [a], [compute("B", (n, m), lambda i, j: t[i, j] + t[i, j])], [t])


def halo(n, m):
    """B[i, j] = T[i, j] + T[i + 1, j] with T = A + A"""
    a = placeholder("A", (n + 1, m), f32)
    t = compute("T", (n + 1, m), lambda i, j: a[i, j] + a[i, j])
    return build_func("halo", [a], [compute("B", (n, m), lambda i, j: t[i, j] + t[i + 1, j])], [t])


def scan(n):
    """B[i] = S[i] with S[t] = A[t] + S[t-1]"""
    a = placeholder("A", (n,), f32)

    def formula(t):
        return select(op("equal", index(t), 0), a[t], a[t] + self_load("S", f32, t - 1))

    s = compute("S", (n,), formula, ordered=(0,))
    return build_func("scan", [a], [compute("B", (n,), lambda i: s[i])], [s])


def gather(n, m):
    """B[i, j] = T[idx[i], j] with T = A + A"""
    a, idx = placeholder("A", (n, m), f32), placeholder("idx", (n,), int64)
    t = compute("T", (n, m), lambda i, j: a[i, j] + a[i, j])
    b = compute("B", (n, m), lambda i, j: t[idx[i].as_index() + 3, j])
    return build_func("gather", [a, idx], [b], [t])


def padded(n):
    """B[i] = T[i - 1] inside the array, else 0; T = A + A"""
    a = placeholder("A", (n,), f32)
    t = compute("T", (n,), lambda i: a[i] + a[i])
    b = compute("B", (n + 2,), lambda i: select(in_range(i, 1, n + 1), t[i - 1], 0))
    return build_func("padded", [a], [b], [t])


def test_a_tile_with_a_halo():
    check(
        blur(N),
        'split("B_i", factors=(None, 4))\ncompute_at("T", loop="B_i_0")',
        """
        for B_i_0 in range(((n + 3)//4)):
            T = local(float32[6])
            for T_i in range(min(-B_i_0*4 + n, 4) + 2):
                with block("T", T_i_=spatial(n + 2, B_i_0*4 + T_i), T_o0_=spatial(n + 2, B_i_0*4)):
                    T[T_i_ - T_o0_] = add(A[T_i_], A[T_i_])
            for B_i_1 in range(min(-B_i_0*4 + n, 4)):
                with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), T_o0_=spatial(n + 2, B_i_0*4)):
                    B[B_i_] = add(add(T[B_i_ - T_o0_], T[B_i_ - T_o0_ + 1]), T[B_i_ - T_o0_ + 2])
        """,
    )


def test_single_points_need_no_loop_and_no_offset():
    check(
        row_max(N, 5),
        'compute_at("M", loop="B_i")',
        """
        for B_i in range(n):
            M = local(float32[1])
            for r in range(5):
                with block("M", M_i_=spatial(n, B_i), r_=reduce(5, r)):
                    init(float32(-inf))
                    M[0] = max(M[0], A[M_i_, r_])
            for B_j in range(5):
                with block("B", B_i_=spatial(n, B_i), B_j_=spatial(5, B_j)):
                    B[B_i_, B_j_] = sub(A[B_i_, B_j_], M[0])
        """,
    )


def test_a_region_of_symbolic_size():
    check(
        rows(3, N),
        'compute_at("T", loop="B_i")\nparallel("B_i")',
        """
        for B_i in parallel(3):
            T = local(float32[1, n])
            for T_j in range(n):
                with block("T", T_i_=spatial(3, B_i), T_j_=spatial(n, T_j)):
                    T[0, T_j_] = add(A[T_i_, T_j_], A[T_i_, T_j_])
            for B_j in range(n):
                with block("B", B_i_=spatial(3, B_i), B_j_=spatial(n, B_j)):
                    B[B_i_, B_j_] = add(T[0, B_j_], T[0, B_j_])
        """,
    )


def test_a_region_that_is_the_whole_buffer_stays_there():
    func = check(rows(1, N), 'compute_at("T", loop="B_i")')
    assert alloc_of(func, "T").buffer.scope == "global"


def tall(n, m):
    """B[i, j] = T[i, j] + T[i, j] with T, which has rows for whole tiles of 4, read at the last row past the end."""
    a = placeholder("A", (n, m), f32)
    t = compute("T", (ceildiv(n, 4) * 4, m), lambda i, j: a[minimum(i, n - 1), j] * 2)
    return build_func("tall", [a], [compute("B", (n, m), lambda i, j: t[i, j] + t[i, j])], [t])


def image(n, m):
    """B[i, j] = T[5 i + j, 0] + T[5 i + j, 1] of the rows of T that are no edge; T has whole blocks of 8 rows."""
    a = placeholder("A", (64, 4), f32)
    t = compute("T", (64, 4), lambda p, q: a[p, q] * 2)
    return build_func("image", [a], [compute("B", (n, m), lambda i, j: t[i * 5 + j, 0] + t[i * 5 + j, 1])], [t])


def test_blocks_are_whole_in_rows_and_columns():
    """Two rows of an image are 8 rows of T from the first to the last, and one is 3."""
    for rows, size in ((2, 8), (1, 8), (4, 24)):
        func = Schedule(image(8, 3))
        down, _ = func.split("B_i", (None, rows))
        func.compute_at("T", down, whole=True, multiple=8)
        assert f"T = local(float32[{size}, 4])" in str(func)
        a = np.arange(256, dtype=np.float32).reshape(64, 4)
        np.testing.assert_array_equal(interpret(func.func, [a], {})[0], interpret(image(8, 3), [a], {})[0])


def test_a_multiple_that_the_buffer_has_no_room_for():
    func = Schedule(image(12, 3))  # the last row begins at 55 of 64
    down, _ = func.split("B_i", (None, 1))
    func.compute_at("T", down, whole=True, multiple=16)
    assert "T = local(float32[3, 4])" in str(func)


def test_whole_tiles_need_no_test():
    check(
        tall(N, 3),
        'split("B_i", factors=(None, 4))\ncompute_at("T", loop="B_i_0", whole=True)',
        """
        for B_i_0 in range(((n + 3)//4)):
            T = local(float32[4, 3])
            for T_i in range(4):
                for T_j in range(3):
                    with block("T", T_i_=spatial(((n + 3)//4)*4, B_i_0*4 + T_i), T_j_=spatial(3, T_j), T_o0_=spatial(((n + 3)//4)*4, B_i_0*4)):
                        T[T_i_ - T_o0_, T_j_] = mul(A[min(T_i_, n - 1), T_j_], float32(2.0))
            for B_i_1 in range(min(-B_i_0*4 + n, 4)):
                for B_j in range(3):
                    with block("B", B_i_=spatial(n, B_i_0*4 + B_i_1), B_j_=spatial(3, B_j), T_o0_=spatial(((n + 3)//4)*4, B_i_0*4)):
                        B[B_i_, B_j_] = add(T[B_i_ - T_o0_, B_j_], T[B_i_ - T_o0_, B_j_])
        """,  # noqa: E501 - printed functions have long lines
    )


def test_tiles_are_not_whole_where_there_is_no_room():
    trace = 'split("B_i", factors=(None, 4))\ncompute_at("T", loop="B_i_0", whole={})'
    ragged, whole = (check(blur(N), trace.format(w)) for w in (False, True))
    assert ragged == whole


def test_a_region_is_cut_to_the_buffer_where_reads_are_conditional():
    check(padded(N), 'split("B_i", factors=(None, 4))\ncompute_at("T", loop="B_i_0")')
    check(padded(9), 'split("B_i", factors=(None, 4))\ncompute_at("T", loop="B_i_0")')
    check(padded(5), 'compute_at("T", loop="B_i")')


def test_a_gathered_dimension_is_computed_whole():
    func = check(gather(7, 3), 'compute_at("T", loop="B_i")', None, [])
    args = [np.arange(21, dtype=np.float32).reshape(7, 3), np.array([0, 3, 1, 2, 2, 1, 0])]
    np.testing.assert_array_equal(interpret(gather(7, 3), args, {})[0], interpret(func, args, {})[0])


def test_after_splitting_the_stage_and_under_several_levels():
    check(blur(N), 'split("T_i", factors=(None, 4))\nsplit("B_i", factors=(None, 2, 3))\ncompute_at("T", loop="B_i_1")')
    check(matmul_relu(N, 5, 3), 'compute_at("E", loop="D_i")\ncompute_at("C", loop="E_j")')
    split = 'split("D_i", factors=(None, 4))\n'
    check(matmul_relu(N, 5, 3), split + 'compute_at("E", loop="D_i_0")\ncompute_at("C", loop="D_i_0")')


def test_names_of_the_new_loops():
    func = Trace.from_text('split("B_i", factors=(None, 4))').apply(blur(N))
    assert Schedule(func).compute_at("T", "B_i_0") == ("T_i",)


def test_refusals():
    check_refusals(
        ComputeAt,
        {
            "the block or the loop is not there": (
                blur(N),
                'compute_at("T", loop="x")',
                "compute_at(T): expected the name of a loop of blur, got 'x'; it has: B_i, T_i",
            ),
            "the multiple is less than 1": (
                blur(N),
                'compute_at("T", loop="B_i", whole=True, multiple=0)',
                "compute_at(T): expected a multiple of at least 1, got 0",
            ),
            "the block writes a parameter": (
                blur(N),
                'compute_at("B", loop="T_i")',
                "compute_at(B): expected an intermediate buffer, but B is a parameter of blur",
            ),
            "another statement writes the buffer": (
                row_max(3, 4),
                'decompose_reduction("M", loop="r")\ncompute_at("M", loop="B_i")',
                "compute_at(M): expected M to be the only writer of M, but block M_init writes it too",
            ),
            "the block is already inside the loop": (
                blur(N),
                'compute_at("T", loop="T_i")',
                "compute_at(T): the block is already inside loop T_i",
            ),
            "the loop does not come after the block": (
                REVERSED,
                'compute_at("T", loop="j")',
                "compute_at(T): expected loop j after the block, it comes before",
            ),
            "the loop is vectorized or inside a vectorized loop": (
                VECTORIZED_CONSUMER,
                'compute_at("T", loop="j")',
                "compute_at(T): loop j is vectorized, lanes cannot hold a nest",
            ),
            "a parallel loop stands inside the loop": (
                stepped(3, 8),
                'parallel("Rh_j")\ncompute_at("T", loop="step")',
                "compute_at(T): loop Rh_j inside is parallel",
            ),
            "the block stands under a guard": (
                GUARDED_PRODUCER,
                'compute_at("T", loop="j")',
                "compute_at(T): the block stands under a guard",
            ),
            "an axis is ordered": (
                scan(4),
                'compute_at("S", loop="B_i")',
                "compute_at(S): axis S_t_ is ordered, a part of it cannot be computed alone",
            ),
            "the value reads the block's own buffer, other than to update a reduction with an initial value": (
                OWN_PRODUCER,
                'compute_at("T", loop="j")',
                "compute_at(T): the block reads its own buffer T",
            ),
            "the store indices are not axes of the block": (
                STRIDED_PRODUCER,
                'compute_at("T", loop="j")',
                "compute_at(T): expected store indices that are spatial axes, each once, got [x*2]",
            ),
            "a reduce axis is not complete in the block's nest": (
                PARTIAL,
                'compute_at("T", loop="j")',
                "compute_at(T): reduce axis k_ = k is not proved complete in the block's nest",
            ),
            "the nest is not rectangular": (
                TRIANGLE,
                'compute_at("T", loop="j")',
                "compute_at(T): the nest is not rectangular: the extent of k depends on i",
            ),
            "a reader is outside the loop, is not a block, or reads the buffer in a binding": (
                OTHER_READER,
                'compute_at("T", loop="j")',
                "compute_at(T): block C reads T outside loop j",
            ),
            "nothing reads the buffer": (
                UNREAD,
                'compute_at("T", loop="j")',
                "compute_at(T): nothing reads T",
            ),
            "an input is written again between the block and the loop": (
                INPUT_WRITTEN_AGAIN,
                'compute_at("T", loop="j")',
                "compute_at(T): block C2 writes C, which the block reads, after it",
            ),
            "an input is not allocated at the loop": (
                LOCAL_INPUT,
                'compute_at("T", loop="j")',
                "compute_at(T): t, which the block reads, is not allocated at its new place",
            ),
            "iterations of a parallel loop would write the same elements of a shared buffer": (
                halo(4, 40_000),
                'parallel("B_i")\ncompute_at("T", loop="B_i")',
                "compute_at(T): iterations of parallel loop B_i would share elements of T",
            ),
        },
    )
