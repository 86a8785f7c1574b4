from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.stages.reverse_compute_inline import ReverseComputeInline
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder
from tilewright.tests.schedule.helper import check, check_refusals, f32, row_max
from tilewright.tests.schedule.stages import GUARDED_CONSUMER, OWN_CONSUMER, READ_BETWEEN, SCOPED_INPUT

N = var("n")


def chain(n, swap=False):
    """C[i, j] = max(T[i, j], D[i, j]) with T[i, j] = A[i, j] + A[i, j]; ``swap``: C is transposed"""
    a, d = placeholder("A", (n, 3), f32), placeholder("D", (n, 3), f32)
    t = compute("T", (n, 3), lambda i, j: a[i, j] + a[i, j])
    if swap:
        c = compute("C", (3, n), lambda i, j: op("max", t[j, i], d[j, i]))
    else:
        c = compute("C", (n, 3), lambda i, j: op("max", t[i, j], d[i, j]))
    return build_func("chain", [a, d], [c], [t])


def unpack(n, blocks=2):
    """C[n] = T[n // 4, n % 4] + T[n // 4, n % 4]"""
    a = placeholder("A", (blocks, 4), f32)
    t = compute("T", (blocks, 4), lambda o, i: a[o, i] + a[o, i])
    c = compute("C", (n,), lambda i: t[i // 4, i % 4] + t[i // 4, i % 4])
    return build_func("unpack", [a], [c], [t])


def two_readers():
    a = placeholder("A", (4,), f32)
    t = compute("T", (4,), lambda i: a[i] + a[i])
    return build_func("two", [a], [compute("C", (4,), lambda i: t[i]), compute("D", (4,), lambda i: t[i])], [t])


def two_inputs():
    a = placeholder("A", (4,), f32)
    t = compute("T", (4,), lambda i: a[i] + a[i])
    u = compute("U", (4,), lambda i: a[i] * a[i])
    return build_func("inputs", [a], [compute("C", (4,), lambda i: t[i] + u[i])], [t, u])


def other_output():
    """C reads T and the output O, which is computed after T"""
    a = placeholder("A", (4,), f32)
    t = compute("T", (4,), lambda i: a[i] + a[i])
    o = compute("O", (4,), lambda i: a[i] * a[i])
    return build_func("other", [a], [o, compute("C", (4,), lambda i: t[i] + o[i])], [t])


def test_into_a_producer():
    check(
        chain(N),
        'reverse_compute_inline("C")',
        """
        for T_i in range(n):
            for T_j in range(3):
                with block("T", T_i_=spatial(n, T_i), T_j_=spatial(3, T_j)):
                    C[T_i_, T_j_] = max(add(A[T_i_, T_j_], A[T_i_, T_j_]), D[T_i_, T_j_])
        """,
    )


def test_a_transposed_consumer_and_a_split_producer():
    check(
        chain(N, swap=True),
        'split("T_i", factors=(None, 4))\nreverse_compute_inline("C")',
        """
        for T_i_0 in range(((n + 3)//4)):
            for T_i_1 in range(min(-T_i_0*4 + n, 4)):
                for T_j in range(3):
                    with block("T", T_i_=spatial(n, T_i_0*4 + T_i_1), T_j_=spatial(3, T_j)):
                        C[T_j_, T_i_] = max(add(A[T_i_, T_j_], A[T_i_, T_j_]), D[T_i_, T_j_])
        """,
    )


def test_a_consumer_of_panels():
    check(
        unpack(8),
        'reverse_compute_inline("C")',
        """
        for T_o in range(2):
            for T_i in range(4):
                with block("T", T_o_=spatial(2, T_o), T_i_=spatial(4, T_i)):
                    C[T_i_ + T_o_*4] = add(add(A[T_o_, T_i_], A[T_o_, T_i_]), add(A[T_o_, T_i_], A[T_o_, T_i_]))
        """,
    )


def test_refusals():
    check_refusals(
        ReverseComputeInline,
        {
            "the block is not there": (
                chain(N),
                'reverse_compute_inline("X")',
                "reverse_compute_inline(X): expected the name of a block of chain, got 'X'; it has: C, T",
            ),
            "an axis of the block is a reduction or ordered": (
                row_max(3, 4),
                'reverse_compute_inline("M")',
                "reverse_compute_inline(M): expected spatial axes only, got the reduce axis r_",
            ),
            "the block reads no intermediate buffer, or several": (
                two_inputs(),
                'reverse_compute_inline("C")',
                "reverse_compute_inline(C): expected to read one intermediate buffer, got T, U",
            ),
            "the block reads its own buffer, or another statement writes that": (
                OWN_CONSUMER,
                'reverse_compute_inline("B")',
                "reverse_compute_inline(B): the block reads its own buffer B",
            ),
            "the block or its producer stands under a guard": (
                GUARDED_CONSUMER,
                'reverse_compute_inline("B")',
                "reverse_compute_inline(B): the block stands under a guard",
            ),
            "another statement reads the input": (
                two_readers(),
                'reverse_compute_inline("C")',
                "reverse_compute_inline(C): expected no other reader of T, but block D reads it",
            ),
            "the producer is not the only writer of the input": (
                chain(N),
                'split("T_i", factors=(None, 4))\npeel("T_i_0")\nreverse_compute_inline("C")',
                "reverse_compute_inline(C): expected one block that writes T, got block T, block T_t",
            ),
            "the producer is a reduction or ordered, or its store indices are not its axes": (
                row_max(3, 4),
                'reverse_compute_inline("B")',
                "reverse_compute_inline(B): expected spatial axes only in M, got the reduce axis r_",
            ),
            "the block reads the input at several places, or not at each element once": (
                unpack(7),
                'reverse_compute_inline("C")',
                "reverse_compute_inline(C): expected to read each element of T once, got T[(C_i_//4), (C_i_ % 4)]",
            ),
            "another input is not complete before the producer": (
                other_output(),
                'reverse_compute_inline("C")',
                "reverse_compute_inline(C): block O writes O, which the block reads, after T",
            ),
            "the result is used between the producer and the block": (
                READ_BETWEEN,
                'reverse_compute_inline("B")',
                "reverse_compute_inline(B): block C reads B between T and the block",
            ),
            "a buffer of the block is not allocated at the producer": (
                SCOPED_INPUT,
                'reverse_compute_inline("t")',
                "reverse_compute_inline(t): t is not allocated at T",
            ),
        },
    )
