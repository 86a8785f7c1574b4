from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.buffers.cache_read import CacheRead
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import blur, check, check_refusals, matmul, row_max
from tilewright.tests.schedule.kernels import stepped

N = var("n")

BOUND = parse_func("""
def bound(A: int64[4], B: out(int64[4])):
    for i in range(4):
        with block("B", x=spatial(4, (A[i]))):
            B[x] = A[x]
""")
INSIDE = parse_func("""
def inside(A: float32[8], B: out(float32[8])):
    for j in range(8):
        t = local(float32[1])
        with block("B", x=spatial(8, j)):
            B[x] = t[0]
""")


def test_a_copy_of_an_input():
    check(
        blur(N),
        'cache_read("T", buffer="A", scope="global")',
        """
        A_global = shared(float32[n + 2])
        T = shared(float32[n + 2])
        for A_global_i0 in range(n + 2):
            with block("A_global", A_global_i0_=spatial(n + 2, A_global_i0)):
                A_global[A_global_i0_] = A[A_global_i0_]
        for T_i in range(n + 2):
            with block("T", T_i_=spatial(n + 2, T_i)):
                T[T_i_] = add(A_global[T_i_], A_global[T_i_])
        for B_i in range(n):
            with block("B", B_i_=spatial(n, B_i)):
                B[B_i_] = add(add(T[B_i_], T[B_i_ + 1]), T[B_i_ + 2])
        """,
    )


def test_the_copy_moves_into_a_tile():
    check(
        matmul(6, 4, N),
        """
        split("C_j", factors=(None, 2))
        reorder(("C_j_0", "C_i", "C_j_1"))
        cache_read("C", buffer="A", scope="global")
        cache_read("C", buffer="B", scope="global")
        compute_at("B_global", loop="C_j_0")
        compute_at("A_global", loop="C_i")
        """,
        None,
        [{"n": 1}, {"n": 5}],
    )
    check(matmul(6, 4, 5), 'cache_read("C", buffer="B", scope="local")')


def test_a_copy_of_what_another_layout_fills():
    check(
        row_max(12, N),
        """
        transform_layout("M", index_map="i -> i // 4, i % 4")
        split("M_i", factors=(None, 4))
        cache_read("B", buffer="M", scope="local")
        """,
    )


def test_refusals():
    check_refusals(
        CacheRead,
        {
            "the block or the buffer is not there": (
                blur(N),
                'cache_read("T", buffer="X", scope="global")',
                "cache_read(T): expected the name of a buffer of blur, got 'X'; it has: A, B, T",
            ),
            "the scope is unknown": (
                blur(N),
                'cache_read("T", buffer="A", scope="shared")',
                "cache_read(T): expected scope global or local, got 'shared'",
            ),
            "the block does not read the buffer, or writes it": (
                blur(N),
                'cache_read("B", buffer="A", scope="global")',
                "cache_read(B): expected a block that reads A and does not write it",
            ),
            "a binding of the block reads the buffer": (
                BOUND,
                'cache_read("B", buffer="A", scope="global")',
                "cache_read(B): a binding of the block reads A",
            ),
            "the buffer is written in the block's nest or after it": (
                row_max(N, 4),
                'compute_at("M", loop="B_i")\ncache_read("B", buffer="M", scope="global")',
                "cache_read(B): block M writes M in the block's nest or after it",
            ),
            "the buffer is allocated inside the block's nest": (
                INSIDE,
                'cache_read("B", buffer="t", scope="global")',
                "cache_read(B): t is allocated inside the block's nest",
            ),
            "an intermediate buffer is not proved to be written whole": (
                row_max(13, 4),
                'transform_layout("M", index_map="i -> i // 8, i % 8")\ncache_read("B", buffer="M", scope="global")',
                "cache_read(B): M is not proved to be written whole; padding has no value to copy",
            ),
            "to local: the shape is not constant": (
                blur(N),
                'cache_read("T", buffer="A", scope="local")',
                "cache_read(T): expected a constant shape for local scope, got (n + 2)",
            ),
            "to local: the block is inside a parallel loop": (
                blur(4),
                'parallel("T_i")\ncache_read("T", buffer="A", scope="local")',
                "cache_read(T): the block is inside parallel loop T_i, whose threads do not share local buffers",
            ),
            "to local: a parallel loop stands in the block's nest": (
                stepped(5, 8),
                'parallel("next_i1")\ncache_read("Rh", buffer="R", scope="local")',
                "cache_read(Rh): loop next_i1 inside is parallel",
            ),
        },
    )
