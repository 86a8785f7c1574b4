from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.buffers.cache_write import CacheWrite
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import check, check_refusals, matmul, prefix_sum, row_max

N = var("n")

GUARDED = parse_func("""
def guarded(A: float32[4], B: out(float32[4])):
    for j in range(4):
        if less(index(j, int64), index(4, int64)):
            with block("B", x=spatial(4, j)):
                B[x] = A[x]
""")
STEPS = parse_func("""
def steps(A: float32[4], B: out(float32[4])):
    for k in range(4):
        with block("B", k_=reduce(4, k)):
            B[k_] = A[k_]
""")
INSIDE = parse_func("""
def inside(A: float32[4], B: out(float32[4])):
    for i in range(4):
        t = local(float32[1])
        with block("t", z=spatial(1, 0), x=spatial(4, i)):
            t[z] = A[x]
        with block("B", x=spatial(4, i)):
            B[x] = A[x]
""")
PART = parse_func("""
def part(A: float32[4], B: out(float32[4])):
    for i in range(3):
        with block("B", x=spatial(4, i)):
            B[x] = A[x]
""")


def test_a_reduction_in_a_buffer_of_its_own():
    check(
        matmul(N, 3, 4),
        'cache_write("C", scope="global")',
        """
        C_global = shared(float32[n, 3])
        for C_i in range(n):
            for C_j in range(3):
                for k in range(4):
                    with block("C", C_i_=spatial(n, C_i), C_j_=spatial(3, C_j), k_=reduce(4, k)):
                        init(float32(0.0))
                        C_global[C_i_, C_j_] = add(C_global[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
        for C_i_write in range(n):
            for C_j_write in range(3):
                with block("C_write", C_i_write_=spatial(n, C_i_write), C_j_write_=spatial(3, C_j_write)):
                    C[C_i_write_, C_j_write_] = C_global[C_i_write_, C_j_write_]
        """,
    )


def test_a_register_tile():
    check(
        matmul(N, 7, 5),
        """
        cache_write("C", scope="global")
        split("C_i_write", factors=(None, 4))
        split("C_j_write", factors=(None, 4))
        reorder(("C_i_write_0", "C_j_write_0", "C_i_write_1", "C_j_write_1"))
        compute_at("C", loop="C_j_write_0")
        reorder(("k", "C_i", "C_j"))
        decompose_reduction("C", loop="k")
        unroll("C_i")
        vectorize("C_j")
        vectorize("C_j_write_1")
        """,
    )
    check(matmul(3, 7, 5), 'cache_write("C", scope="local")')
    check(row_max(3, N), 'cache_write("M", scope="local")')


def test_refusals():
    check_refusals(
        CacheWrite,
        {
            "the block is not there": (
                matmul(2, 2, 2),
                'cache_write("X", scope="global")',
                "cache_write(X): expected the name of a block of matmul, got 'X'; it has: C",
            ),
            "the scope is unknown": (
                matmul(2, 2, 2),
                'cache_write("C", scope="shared")',
                "cache_write(C): expected scope global or local, got 'shared'",
            ),
            "another statement writes the buffer": (
                matmul(2, 2, 2),
                'decompose_reduction("C", loop="k")\ncache_write("C", scope="global")',
                "cache_write(C): expected C to be the only writer of C, but block C_init writes it too",
            ),
            "the block stands under a guard": (
                GUARDED,
                'cache_write("B", scope="global")',
                "cache_write(B): the block stands under a guard",
            ),
            "an axis is ordered": (
                prefix_sum(2, 3),
                'cache_write("S", scope="global")',
                "cache_write(S): axis S_t_ is ordered, it writes elements again later",
            ),
            "the store indices use a reduce axis or read memory": (
                STEPS,
                'cache_write("B", scope="global")',
                "cache_write(B): expected store indices in spatial axes only, got [k_]",
            ),
            "the block's nest does not run over the axes of the store indices once": (
                PART,
                'cache_write("B", scope="global")',
                "cache_write(B): the block's nest is not proved to run over axis x = i once",
            ),
            "the buffer is read in the block's nest by another block": (
                row_max(N, 300000),
                'compute_at("M", loop="B_i")\ncache_write("M", scope="global")',
                "cache_write(M): block B reads M in the block's nest",
            ),
            "the buffer is allocated inside the block's nest": (
                INSIDE,
                'cache_write("t", scope="global")',
                "cache_write(t): t is allocated inside the block's nest",
            ),
            "to local: the shape is not constant": (
                matmul(N, 2, 2),
                'cache_write("C", scope="local")',
                "cache_write(C): expected a constant shape for local scope, got (n, 2)",
            ),
            "to local: the block is inside a parallel loop": (
                matmul(2, 2, 2),
                'parallel("C_i")\ncache_write("C", scope="local")',
                "cache_write(C): the block is inside parallel loop C_i, whose threads do not share local buffers",
            ),
        },
    )
