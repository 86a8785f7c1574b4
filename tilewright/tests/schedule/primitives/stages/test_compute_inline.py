import numpy as np

from tilewright.core.arith.expr import var
from tilewright.core.dtypes import int64
from tilewright.schedule.primitives.stages.compute_inline import ComputeInline
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.schedule.helper import blur, check, check_refusals, f32, matmul_relu, row_max
from tilewright.tests.schedule.kernels import softmax_like
from tilewright.tests.schedule.stages import (
    GUARDED_PRODUCER,
    INPUT_WRITTEN_AGAIN,
    LOCAL_INPUT,
    OWN_PRODUCER,
    STORING_CONSUMER,
    STRIDED_PRODUCER,
    UNREAD,
)

N = var("n")


def gather(n):
    """B[i] = sum_k T[idx[i] + k] with T[i] = A[i] + A[i]"""
    a, idx = placeholder("A", (n + 8,), f32), placeholder("idx", (n,), int64)
    t = compute("T", (n + 8,), lambda i: a[i] + a[i])
    r = reduce_axis(2, "r")
    b = compute("B", (n,), lambda i: sum_over(t[idx[i].as_index() + 3 + r], r))
    return build_func("gather", [a, idx], [b], [t])


def test_into_several_loads_of_one_reader():
    check(
        blur(N),
        'compute_inline("T")',
        """
        for B_i in range(n):
            with block("B", B_i_=spatial(n, B_i)):
                B[B_i_] = add(add(add(A[B_i_], A[B_i_]), add(A[B_i_ + 1], A[B_i_ + 1])), add(A[B_i_ + 2], A[B_i_ + 2]))
        """,
    )


def test_into_a_reduction_through_an_index_read_from_memory():
    func = check(
        gather(5),
        'compute_inline("T")',
        """
        for B_i in range(5):
            for r in range(2):
                with block("B", B_i_=spatial(5, B_i), r_=reduce(2, r)):
                    init(float32(0.0))
                    B[B_i_] = add(B[B_i_], add(A[idx[B_i_] + r_ + 3], A[idx[B_i_] + r_ + 3]))
        """,
        [],
    )
    args = [np.arange(13, dtype=np.float32), np.array([0, 3, 1, 2, 2])]
    np.testing.assert_array_equal(interpret(gather(5), args, {})[0], interpret(func, args, {})[0])


def test_into_several_readers_in_other_nests():
    func = matmul_relu(N, 3, 2)
    check(func, 'compute_inline("E")')
    check(softmax_like(3, N), 'compute_inline("ex")')


def test_after_splitting_the_stage():
    check(blur(N), 'split("T_i", factors=(None, 4))\ncompute_inline("T")')


def test_refusals():
    check_refusals(
        ComputeInline,
        {
            "the block is not there": (
                blur(N),
                'compute_inline("X")',
                "compute_inline(X): expected the name of a block of blur, got 'X'; it has: B, T",
            ),
            "the block writes a parameter": (
                blur(N),
                'compute_inline("B")',
                "compute_inline(B): expected an intermediate buffer, but B is a parameter of blur",
            ),
            "another statement writes the buffer": (
                blur(N),
                'split("T_i", factors=(None, 4))\npeel("T_i_0")\ncompute_inline("T")',
                "compute_inline(T): expected T to be the only writer of T, but block T_t writes it too",
            ),
            "an axis is a reduction or ordered": (
                row_max(3, 4),
                'compute_inline("M")',
                "compute_inline(M): expected spatial axes only, got the reduce axis r_",
            ),
            "the store indices are not the block's axes, each once": (
                STRIDED_PRODUCER,
                'compute_inline("T")',
                "compute_inline(T): expected store indices that are the block's axes, each once, got [x*2]",
            ),
            "the block reads its own buffer": (
                OWN_PRODUCER,
                'compute_inline("T")',
                "compute_inline(T): the block reads its own buffer T",
            ),
            "the block stands under a guard": (
                GUARDED_PRODUCER,
                'compute_inline("T")',
                "compute_inline(T): the block stands under a guard",
            ),
            "nothing reads the buffer": (
                UNREAD,
                'compute_inline("T")',
                "compute_inline(T): nothing reads T",
            ),
            "a reader is not a block, or reads the buffer in a binding": (
                STORING_CONSUMER,
                'compute_inline("T")',
                "compute_inline(T): expected every reader of T to be a block, but a store reads it",
            ),
            "a reader is part of an opaque loop": (
                blur(8),
                'blockize("B_i")\ncompute_inline("T")',
                "compute_inline(T): block B is part of the opaque loop B_i",
            ),
            "an input is written again between the block and a reader": (
                INPUT_WRITTEN_AGAIN,
                'compute_inline("T")',
                "compute_inline(T): block C2 writes C, which the block reads, after it",
            ),
            "an input is not allocated at a reader": (
                LOCAL_INPUT,
                'compute_inline("T")',
                "compute_inline(T): t, which the block reads, is not allocated at its new place",
            ),
        },
    )
