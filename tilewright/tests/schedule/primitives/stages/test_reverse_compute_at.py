import pytest

from tilewright.core.arith.expr import ceildiv, var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.primitives.buffers.cache_read import CacheRead
from tilewright.schedule.primitives.stages.reverse_compute_at import ReverseComputeAt
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import (
    build_func,
    compute,
    in_range,
    op,
    placeholder,
    reduce_axis,
    select,
    self_load,
    sum_over,
)
from tilewright.tensor_ir.compute import index_value as index
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.fuzz_nests import recurrent
from tilewright.tests.schedule.helper import blur, check, check_refusals, f32
from tilewright.tests.schedule.kernels import stepped
from tilewright.tests.schedule.stages import GUARDED_CONSUMER, PARTIAL_CONSUMER, SCOPED_INPUT, STRIDED_CONSUMER

N = var("n")


def chain(n, m=4, shift=0):
    """C[i, j] = T[i, j + shift] + D[j] with T[i, j] = A[i, j] + A[i, j]"""
    a, d = placeholder("A", (n, m + shift), f32), placeholder("D", (m,), f32)
    t = compute("T", (n, m + shift), lambda i, j: a[i, j] + a[i, j])
    return build_func("chain", [a, d], [compute("C", (n, m), lambda i, j: t[i, j + shift] + d[j])], [t])


def panels(m, n, k):
    """C[i, j] = acc[i, j // 4, j % 4] + acc[i, j // 4, j % 4], acc in panels of 4 columns"""
    a, b = placeholder("A", (m, k), f32), placeholder("B", (ceildiv(n, 4), k, 4), f32)
    r = reduce_axis(k, "k")
    acc = compute("acc", (m, ceildiv(n, 4), 4), lambda i, o, j: sum_over(a[i, r] * b[o, r, j], r))
    c = compute("C", (m, n), lambda i, j: acc[i, j // 4, j % 4] + acc[i, j // 4, j % 4])
    return build_func("panels", [a, b], [c], [acc])


def sums(n, m):
    """C[i] = sum_j T[i, j] with T = A + A"""
    a = placeholder("A", (n, m), f32)
    t = compute("T", (n, m), lambda i, j: a[i, j] + a[i, j])
    r = reduce_axis(m, "r")
    return build_func("sums", [a], [compute("C", (n,), lambda i: sum_over(t[i, r], r))], [t])


def padded(n):
    """C[i] = T[i - 1] inside the array, else 0; T = A + A"""
    a = placeholder("A", (n,), f32)
    t = compute("T", (n,), lambda i: a[i] + a[i])
    c = compute("C", (n + 2,), lambda i: select(in_range(i, 1, n + 1), t[i - 1], 0))
    return build_func("padded", [a], [c], [t])


def scan(n):
    """S[t] = T[t] + S[t-1] with T = A + A"""
    a = placeholder("A", (n,), f32)
    b = compute("T", (n,), lambda i: a[i] + a[i])

    def formula(t):
        return select(op("equal", index(t), 0), b[t], b[t] + self_load("S", f32, t - 1))

    return build_func("scan", [a], [compute("S", (n,), formula, ordered=(0,))], [b])


def between():
    """C[i] = T[i] + O[i], the output O computed after T"""
    a = placeholder("A", (4,), f32)
    t = compute("T", (4,), lambda i: a[i] + a[i])
    o = compute("O", (4,), lambda i: a[i] * a[i])
    return build_func("between", [a], [o, compute("C", (4,), lambda i: t[i] + o[i])], [t])


def two_writers():
    return Trace.from_text('split("T_i", factors=(None, 4))\npeel("T_i_0")').apply(chain(7))


REPEATED = parse_func("""
def repeated(A: float32[4], B: out(float32[4])):
    T = shared(float32[4])
    for i in range(4):
        for again in range(2):
            with block("T", x=spatial(4, i)):
                T[x] = A[x]
    for j in range(4):
        with block("B", x=spatial(4, j)):
            B[x] = T[x]
""")


def test_a_tile_of_a_chain():
    check(
        chain(N),
        'split("T_i", factors=(None, 4))\nreverse_compute_at("C", loop="T_i_0")',
        """
        for T_i_0 in range(((n + 3)//4)):
            T = local(float32[4, 4])
            for T_i_1 in range(min(-T_i_0*4 + n, 4)):
                for T_j in range(4):
                    with block("T", T_i_=spatial(n, T_i_0*4 + T_i_1), T_j_=spatial(4, T_j), T_o0_=spatial(n, T_i_0*4)):
                        T[T_i_ - T_o0_, T_j_] = add(A[T_i_, T_j_], A[T_i_, T_j_])
            for C_i in range(min(-T_i_0*4 + n, 4)):
                for C_j in range(4):
                    with block("C", C_i_=spatial(n, C_i + T_i_0*4), C_j_=spatial(4, C_j), T_o0_=spatial(n, T_i_0*4)):
                        C[C_i_, C_j_] = add(T[C_i_ - T_o0_, C_j_], D[C_j_])
        """,
    )


def test_a_consumer_of_panels():
    check(
        panels(N, 10, 3),
        """
        split("acc_i", factors=(None, 3))
        reorder(("acc_i_0", "acc_o", "acc_i_1", "acc_j"))
        reverse_compute_at("C", loop="acc_o")
        """,
    )


def test_a_reduction_whose_steps_are_all_in_the_loop():
    check(sums(N, 5), 'reverse_compute_at("C", loop="T_i")')
    check(chain(N, shift=2), 'split("T_j", factors=(None, 3))\nreverse_compute_at("C", loop="T_j_0")')
    check(chain(N), 'reverse_compute_at("C", loop="T_j")')


def test_refusals():
    check_refusals(
        ReverseComputeAt,
        {
            "the block or the loop is not there": (
                chain(N),
                'reverse_compute_at("C", loop="x")',
                "reverse_compute_at(C): expected the name of a loop of chain, got 'x'; it has: C_i, C_j, T_i, T_j",
            ),
            "the block is already inside the loop": (
                chain(N),
                'reverse_compute_at("C", loop="C_i")',
                "reverse_compute_at(C): the block is already inside loop C_i",
            ),
            "the loop does not come before the block": (
                chain(N),
                'reverse_compute_at("T", loop="C_i")',
                "reverse_compute_at(T): expected loop C_i before the block, it comes after",
            ),
            "the loop is vectorized or inside a vectorized loop": (
                chain(N),
                'vectorize("T_j")\nreverse_compute_at("C", loop="T_j")',
                "reverse_compute_at(C): loop T_j is vectorized, lanes cannot hold a nest",
            ),
            "a parallel loop stands inside the loop": (
                stepped(3, 8),
                'parallel("Rh_j")\nreverse_compute_at("out", loop="step")',
                "reverse_compute_at(out): loop Rh_j inside is parallel",
            ),
            "the block or its producer stands under a guard": (
                GUARDED_CONSUMER,
                'reverse_compute_at("B", loop="i")',
                "reverse_compute_at(B): the block stands under a guard",
            ),
            "an axis of the block is ordered": (
                scan(4),
                'reverse_compute_at("S", loop="T_i")',
                "reverse_compute_at(S): axis S_t_ is ordered, a part of it cannot be computed alone",
            ),
            "another statement writes the block's buffer": (
                sums(3, 4),
                'decompose_reduction("C", loop="r")\nreverse_compute_at("C", loop="T_i")',
                "reverse_compute_at(C): expected C to be the only writer of C, but block C_init writes it too",
            ),
            "the store indices are not axes of the block": (
                STRIDED_CONSUMER,
                'reverse_compute_at("B", loop="i")',
                "reverse_compute_at(B): expected store indices that are the spatial axes, each once, got [x*2]",
            ),
            "the block's nest does not run over each of its points once": (
                PARTIAL_CONSUMER,
                'reverse_compute_at("B", loop="i")',
                "reverse_compute_at(B): the block's nest is not proved to run over axis x = j once",
            ),
            "the block does not read exactly one buffer that the loop's nest writes": (
                between(),
                'reverse_compute_at("O", loop="T_i")',
                "reverse_compute_at(O): expected to read one buffer that the nest of T_i writes, got none",
            ),
            "the input has another writer, or its writer is not inside the loop": (
                two_writers(),
                'reverse_compute_at("C", loop="T_i_0")',
                "reverse_compute_at(C): expected one block inside loop T_i_0 that writes T, and no other writer",
            ),
            "a reduction of the producer is not complete in the loop": (
                panels(2, 4, 3),
                'reverse_compute_at("C", loop="k")',
                "reverse_compute_at(C): reduction loop k of acc is not inside loop k",
            ),
            "the producer does not write each element of the input once": (
                REPEATED,
                'reverse_compute_at("B", loop="again")',
                "reverse_compute_at(B): T is not proved to write each element of T once",
            ),
            "the block reads the input at several places, or not at affine ones": (
                blur(4),
                'reverse_compute_at("B", loop="T_i")',
                "reverse_compute_at(B): expected to read T at one place, got 3",
            ),
            "a read is not proved to lie inside the input": (
                padded(N),
                'reverse_compute_at("C", loop="T_i")',
                "reverse_compute_at(C): T[C_i_ - 1] is not proved to lie inside T",
            ),
            "a reduce axis would be incomplete in the loop": (
                sums(3, 4),
                'reverse_compute_at("C", loop="T_j")',
                "reverse_compute_at(C): reduce axis r_ would be incomplete in loop T_j",
            ),
            "another input, or the result, is used between the loop and the block": (
                between(),
                'reverse_compute_at("C", loop="T_i")',
                "reverse_compute_at(C): block O writes O, which the block reads, between the loop and the block",
            ),
            "a buffer of the block is not allocated at the loop": (
                SCOPED_INPUT,
                'reverse_compute_at("t", loop="h")',
                "reverse_compute_at(t): t is not allocated at loop h",
            ),
        },
    )


def test_a_step_of_a_recurrence_does_not_leave_it() -> None:
    """The other statement of its loop writes what it reads in the next iteration."""
    func = CacheRead("P", buffer="A", scope="global").apply(recurrent(5, 4))
    with pytest.raises(ScheduleError, match=r"block U writes H, which the block reads, between"):
        ReverseComputeAt("P", loop="A_global_i0").apply(func)
