"""Functions of which some step would change the results."""

from __future__ import annotations

import textwrap

from tilewright.core.arith.expr import var
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule import helper

N = var("n")


def store(place: str, value: str, *loops: str, dims: str = "") -> Func:
    """``T[place] = value`` under loops ``i < e``, between nests that fill ``T`` from ``A`` and copy it to ``B``."""
    lines = [f"T[{place}] = {value}"]
    for loop in reversed(loops):
        v, e = loop.split(" < ")
        lines = [f"for {v} in range({e}):", *("    " + x for x in lines)]
    return parse_func(f"""
def f({dims}A: float32[32], B: out(float32[32])):
    T = shared(float32[32])
    for h in range(32):
        with block("T", h_=spatial(32, h)):
            T[h_] = A[h_]
{textwrap.indent(chr(10).join(lines), "    ")}
    for g in range(32):
        with block("B", g_=spatial(32, g)):
            B[g_] = T[g_]
""")


def text(body: str, params: str = "A: float32[8], B: out(float32[8])") -> Func:
    """A function written out."""
    return parse_func(f"def f({params}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")


HORNER = text(
    """
    for i in range(8):
        for k in range(4):
            with block("B", x=spatial(8, i), r=reduce(4, k)):
                init(float32(0.0))
                B[x] = sub(A[x], B[x])
    """
)
COUNTED = text(
    """
    for i in range(8):
        for k in range(4):
            with block("B", x=spatial(8, i), r=reduce(4, k)):
                init(float32(2.0))
                B[x] = add(B[x], A[x])
    """
)
DOUBLED = text(
    """
    T = shared(float32[8])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = A[x]
    for j in range(8):
        with block("U", y=spatial(8, j)):
            T[y] = add(T[y], T[y])
    for k in range(8):
        with block("B", z=spatial(8, k)):
            B[z] = T[z]
    """
)
GUARDED = text(
    """
    T = shared(float32[8])
    for i in range(8):
        if less(index(i, int64), index(4, int64)):
            with block("T", x=spatial(8, i)):
                T[x] = A[x]
    for j in range(4):
        with block("C", y=spatial(4, j)):
            C[y] = T[y]
    """,
    "A: float32[8], C: out(float32[4])",
)
LATER_WRITE = text(
    """
    T = shared(float32[8])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = A[x]
    for j in range(8):
        with block("C", y=spatial(8, j)):
            C[y] = T[y]
    for k in range(8):
        with block("U", z=spatial(8, k)):
            T[z] = add(A[z], A[z])
    for h in range(8):
        with block("B", w=spatial(8, h)):
            B[w] = T[w]
    """,
    "A: float32[8], C: out(float32[8]), B: out(float32[8])",
)
INPUT_CHANGES = text(
    """
    S = shared(float32[8])
    T = shared(float32[8])
    for h in range(8):
        with block("S", w=spatial(8, h)):
            S[w] = A[w]
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = S[x]
    for k in range(8):
        with block("U", z=spatial(8, k)):
            S[z] = add(A[z], A[z])
    for j in range(8):
        with block("B", y=spatial(8, j)):
            B[y] = add(T[y], S[y])
    """
)
WINDOWED = text(
    """
    T = shared(float32[8])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = A[x]
    for j in range(8):
        with block("B", y=spatial(8, j)):
            B[y] = add(T[y], T[7 - y])
    """
)
TRIANGLE = text(
    """
    T = shared(float32[8])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = float32(0.0)
    for j in range(8):
        for k in range(j + 1):
            with block("U", y=spatial(8, j), r=reduce(8, k)):
                T[y] = add(T[y], A[r])
    for h in range(8):
        with block("B", z=spatial(8, h)):
            B[z] = T[z]
    """
)
PARTLY = text(
    """
    T = shared(float32[16])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x*2] = A[x]
    for j in range(8):
        with block("B", y=spatial(8, j)):
            B[y] = T[y*2]
    """
)
SHARED_TILE = text(
    """
    T = shared(float32[8])
    for i in range(8):
        with block("T", x=spatial(8, i)):
            T[x] = A[x]
    parallel_loop
        with block("B", y=spatial(8, j)):
            B[y] = T[y]
    """.replace("parallel_loop", "for j in parallel(8):")
)
ONE_CELL = text(
    """
    for i in range(8):
        t = local(float32[1])
        with block("t", x=spatial(8, i)):
            t[0] = A[x]
        with block("B", y=spatial(8, i)):
            B[y] = t[0]
    """
)
SCALED = text(
    """
    for k in range(8):
        with block("B", r=reduce(8, k)):
            init(float32(0.0))
            B[0] = add(B[0], mul(A[r], S[0]))
    """,
    "A: float32[8], S: float32[1], B: out(float32[1])",
)
SHIFTED = text(
    """
    for k in range(7):
        with block("B", r=reduce(7, k)):
            init(float32(0.0))
            B[0] = add(B[0], add(A[r], float32(1.0)))
    """,
    "A: float32[7], B: out(float32[1])",
)
CONTRACTED = helper.matmul(5, 7, 3)
ROWS = helper.row_max(N, 5)
PRODUCT = helper.matmul_relu(8, 8, 8)
SCAN = helper.prefix_sum(4, 8)
