"""Random nests for random traces: declared stages of many kinds, nests written by hand, and wild loops of plain stores.

Sizes are small constants, or the dims ``n`` and ``m``. Values stay exact under any order of sums: small integers in the
declared stages, wrapping int32 in the wild nests.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, as_expr, var
from tilewright.tensor_ir.compute import (
    Recurrence,
    Val,
    build_func,
    compute,
    in_range,
    max_over,
    op,
    placeholder,
    reduce_axis,
    select,
    self_load,
    sum_over,
    update,
)
from tilewright.tensor_ir.compute import index_value as index
from tilewright.tensor_ir.intrinsics import with_intrinsics
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.helper import PROGRAMS
from tilewright.tests.schedule.intrinsics import SMALL

f32 = dtypes.float32
EXTENTS: tuple[IntLike, ...] = (1, 2, 3, 4, 5, 6, 7, 8, var("n"), var("m"))


# -- declared stages -------------------------------------------------------------------------------------------------
def chain(n: IntLike, m: IntLike) -> Func:
    """Elementwise stages, one of them read twice"""
    a = placeholder("A", (n, m), f32)
    t = compute("T", (n, m), lambda i, j: a[i, j] * 2)
    u = compute("U", (n, m), lambda i, j: op("max", t[i, j], a[i, j]))
    v = compute("V", (m, n), lambda i, j: u[j, i] - t[j, i])
    return build_func("chain", [a], [compute("B", (m, n), lambda i, j: v[i, j] + 1)], [t, u, v])


def transposes(n: IntLike, m: IntLike) -> Func:
    """Two permutations in a row, and a reversal"""
    a = placeholder("A", (n, m, 3), f32)
    t = compute("T", (3, n, m), lambda i, j, k: a[j, k, i])
    b = compute("B", (m, 3, n), lambda i, j, k: t[j, k, i] + t[2 - j, k, i])
    return build_func("transposes", [a], [b], [t])


def batched(b: IntLike, m: IntLike, k: IntLike) -> Func:
    """A batched matrix product with a bias"""
    x, y, bias = placeholder("X", (b, m, k), f32), placeholder("Y", (b, k, 3), f32), placeholder("bias", (3,), f32)
    r = reduce_axis(k, "k")
    p = compute("P", (b, m, 3), lambda b, i, j: sum_over(x[b, i, r] * y[b, r, j], r))
    return build_func("batched", [x, y, bias], [compute("Z", (b, m, 3), lambda b, i, j: p[b, i, j] + bias[j])], [p])


def conv2d(h: IntLike, w: IntLike) -> Func:
    """A 3x3 convolution with padding and a stride, and an epilogue"""
    x, f = placeholder("X", (2, h, w), f32), placeholder("F", (2, 2, 3, 3), f32)
    pad = compute(
        "P",
        (2, h + 2, w + 2),
        lambda c, y, x_: select(in_range(y, 1, h + 1) & in_range(x_, 1, w + 1), x[c, y - 1, x_ - 1], 0),
    )
    c, dy, dx = reduce_axis(2, "c"), reduce_axis(3, "dy"), reduce_axis(3, "dx")
    shape = (2, (h + 1) // 2, w)
    s = compute("S", shape, lambda o, y, x_: sum_over(pad[c, y * 2 + dy, x_ + dx] * f[o, c, dy, dx], c, dy, dx))
    out = compute("O", shape, lambda o, y, x_: op("max", s[o, y, x_], 0))
    return build_func("conv2d", [x, f], [out], [pad, s])


def depthwise(c: IntLike, w: IntLike) -> Func:
    """A depthwise convolution along one axis, padded on both sides"""
    x, f = placeholder("X", (c, w), f32), placeholder("F", (c, 3), f32)
    pad = compute("P", (c, w + 2), lambda c, i: select(in_range(i, 1, w + 1), x[c, i - 1], 0))
    k = reduce_axis(3, "k")
    out = compute("O", (c, w), lambda c, i: sum_over(pad[c, i + k] * f[c, k], k))
    return build_func("depthwise", [x, f], [out], [pad])


def softmax_like(m: IntLike, n: IntLike) -> Func:
    """Two reductions, the second of what depends on the first"""
    x = placeholder("X", (m, n), f32)
    r, q = reduce_axis(n, "r"), reduce_axis(n, "q")
    top = compute("top", (m,), lambda i: max_over(x[i, r], r))
    e = compute("e", (m, n), lambda i, j: x[i, j] - top[i])
    total = compute("total", (m,), lambda i: sum_over(e[i, q], q))
    return build_func("softmax_like", [x], [compute("Y", (m, n), lambda i, j: e[i, j] - total[i])], [top, e, total])


def pooled(n: IntLike, c: IntLike) -> Func:
    """Maxima over windows of two axes, and a mean-like sum over all of one"""
    x = placeholder("X", (c, n * 2 + 1), f32)
    k, i_ = reduce_axis(3, "k"), reduce_axis(n, "s")
    p = compute("P", (c, n), lambda c, i: max_over(x[c, i * 2 + k], k))
    return build_func("pooled", [x], [compute("M", (c,), lambda c: sum_over(p[c, i_], i_))], [p])


def reshaped(n: IntLike, m: IntLike) -> Func:
    """A stage of one axis read through divisions and remainders, and back"""
    a = placeholder("A", (n, 4), f32)
    t = compute("T", (n * 4,), lambda i: a[i // 4, i % 4] + 1)
    b = compute("B", (2, n, 2), lambda i, j, k: t[j * 4 + i * 2 + k] * 2)
    return build_func("reshaped", [a], [b], [t])


def in_place(n: IntLike, m: IntLike) -> Func:
    """A stage of which some elements are overwritten, every other one and then the first, and one read of all"""
    a = placeholder("A", (n * 2 + 1,), f32)
    t = compute("T", (n * 2 + 1,), lambda i: a[i] * 2)
    u = update("U", t, (n,), lambda i: ((i * 2 + 1,), t[i * 2 + 1] + 3))
    v = update("V", t, (1,), lambda i: ((i,), t[i] - 1))
    return build_func("in_place", [a], [compute("B", (n * 2 + 1,), lambda i: t[n * 2 - i])], [t, u, v])


def histogram(n: IntLike, m: IntLike) -> Func:
    """A scatter with an index from memory, in order"""
    at, a = placeholder("I", (n,), dtypes.int64), placeholder("A", (7,), f32)
    h = compute("H", (7,), lambda i: a[i] + 1)
    u = update("U", h, (n,), lambda i: ((at[i] + 3,), h[at[i] + 3] * 2 + index(i).cast(f32)), ordered=(0,))
    return build_func("histogram", [at, a], [compute("B", (7,), lambda i: h[i])], [h, u])


def stencil(n: IntLike, m: IntLike) -> Func:
    """S[i, j] of its neighbours above and to the left, both axes ordered"""
    a = placeholder("A", (n, m), f32)

    def formula(i: IntLike, j: IntLike) -> Val:
        above = select(index(i).equal(0), 0, self_load("S", f32, i - 1, j))
        left = select(index(j).equal(0), 0, self_load("S", f32, i, j - 1))
        return op("max", a[i, j], above - left)

    s = compute("S", (n, m), formula, ordered=(0, 1), axis_names=("i", "j"))
    return build_func("stencil", [a], [compute("B", (n, m), lambda i, j: s[i, j] + 1)], [s])


def recurrent(n: IntLike, m: IntLike) -> Func:
    """A recurrence whose steps are counted by two loops: greatest differences from all of the state, in every step"""
    a, x = placeholder("A", (m, m), f32), placeholder("X", (n, 3, m), f32)
    h = compute("H", (n * 3 + 1, m), lambda i, j: a[j, 0 * i])
    k = reduce_axis(m, "k")
    p = compute("P", (n, 3, m), lambda t, s, j: max_over(h[t * 3 + s, k] - a[j, k], k))
    u = update("U", h, (n, 3, m), lambda t, s, j: ((t * 3 + s + 1, j), p[t, s, j] + x[t, s, j]), ordered=(0, 1))
    steps = Recurrence((("t", as_expr(n)), ("s", as_expr(3))), (p, u))
    return build_func("recurrent", [a, x], [compute("B", (m,), lambda j: h[n * 3, j])], [h, steps])


DECLARED: dict[str, Callable[..., Func]] = {
    **PROGRAMS, "chain": chain, "transposes": transposes, "batched": batched, "conv2d": conv2d, "depthwise": depthwise,
    "softmax_like": softmax_like, "pooled": pooled, "reshaped": reshaped, "in_place": in_place,
    "histogram": histogram, "stencil": stencil, "recurrent": recurrent,
}  # fmt: skip


# -- written by hand -------------------------------------------------------------------------------------------------
# In these, N is replaced by an extent.
WRITTEN = (
    """
    def triangular(A: float32[N, N], B: out(float32[N, N])):
        for y in range(N):
            for x in range(N):
                with block("B", x_=spatial(N, x), y_=spatial(N, y)):
                    B[x_, y_] = float32(0.0)
        for i in range(N):
            for j in range(i + 1):
                with block("U", i_=spatial(N, i), j_=spatial(N, j)):
                    B[i_, j_] = add(B[i_, j_], A[j_, i_])
    """,
    """
    def triangular_sum(A: float32[N, N], B: out(float32[N])):
        T = shared(float32[N])
        for i in range(N):
            with block("T", i_=spatial(N, i)):
                T[i_] = float32(1.0)
        for j in range(N):
            for k in range(j + 1):
                with block("U", j_=spatial(N, j), k_=reduce(N, k)):
                    T[j_] = add(T[j_], A[j_, k_])
        for h in range(N):
            with block("B", h_=spatial(N, h)):
                B[h_] = T[N - 1 - h_]
    """,
    """
    def guarded(A: float32[N, 6], B: out(float32[N, 6])):
        T = shared(float32[N, 6])
        for i in range(N):
            for j in range(6):
                if less(index(j, int64), index(4, int64)):
                    with block("T", i_=spatial(N, i), j_=spatial(6, j)):
                        T[i_, j_] = A[i_, j_]
        for h in range(N):
            for k in range(6):
                if greater_equal(index(k, int64), index(4, int64)):
                    with block("T2", h_=spatial(N, h), k_=spatial(6, k)):
                        T[h_, k_] = mul(A[h_, k_], float32(2.0))
        for x in range(N):
            for y in range(6):
                with block("B", x_=spatial(N, x), y_=spatial(6, y)):
                    B[x_, y_] = sub(T[x_, y_], T[x_, 5 - y_])
    """,
    """
    def horner(A: float32[N, 4], B: out(float32[N])):
        for i in range(N):
            for k in range(4):
                with block("B", i_=spatial(N, i), k_=reduce(4, k)):
                    init(float32(1.0))
                    B[i_] = sub(A[i_, k_], B[i_])
    """,
    """
    def two_writers(A: float32[N], B: out(float32[N*2])):
        T = shared(float32[N*2])
        for i in range(N):
            with block("T", i_=spatial(N, i)):
                T[i_] = A[i_]
        for j in range(N):
            with block("T2", j_=spatial(N, j)):
                T[j_ + N] = add(A[j_], float32(1.0))
        for k in range(N*2):
            with block("B", k_=spatial(N*2, k)):
                B[k_] = T[N*2 - 1 - k_]
    """,
    """
    def private(A: float32[N, 5], B: out(float32[N, 5])):
        for i in range(N):
            t = local(float32[5])
            for j in range(5):
                with block("T", i_=spatial(N, i), j_=spatial(5, j)):
                    t[j_] = A[i_, j_]
            for k in range(5):
                with block("B", h_=spatial(N, i), k_=spatial(5, k)):
                    B[h_, k_] = add(t[k_], t[4 - k_])
    """,
    """
    def diagonal(A: float32[N, N], B: out(float32[N])):
        T = shared(float32[N, N])
        for i in range(N):
            for j in range(N):
                with block("T", i_=spatial(N, i), j_=spatial(N, j)):
                    T[i_, j_] = add(A[j_, i_], float32(1.0))
        for k in range(N):
            with block("U", k_=spatial(N, k)):
                T[k_, k_] = mul(T[k_, k_], float32(2.0))
        for h in range(N):
            with block("B", h_=spatial(N, h)):
                B[h_] = T[h_, N - 1 - h_]
    """,
    """
    def dot(A: float32[N], C: float32[N], B: out(float32[()])):
        T = shared(float32[1])
        for k in range(N):
            with block("T", k_=reduce(N, k)):
                init(float32(0.0))
                T[0] = add(T[0], mul(A[k_], C[k_]))
        with block("B"):
            B[()] = T[0]
    """,
)


def written(rng: random.Random) -> Func:
    """One of the nests written by hand."""
    text = textwrap.dedent(rng.choice(WRITTEN))
    size = str(rng.choice((1, 2, 5, 6, "n", "n")))
    text = text.replace("N", size)
    return parse_func(text.replace("(A:", "(n: dim, A:", 1) if size == "n" else text)


# -- wild loops ------------------------------------------------------------------------------------------------------
SPAN = 64
"""Elements of the arrays of a wild nest: every index that it makes lies below, for loops of up to 8 iterations."""

PLACES: dict[int, tuple[str, ...]] = {
    1: ("{i}", "{i} + 1", "{i} + 2", "{i}*2", "{i}*2 + 1", "{i} % 2", "{i}//2", "7 - {i}", "9 - {i}", "3",
        "{i} % 3 + 4", "{i}*3", "max({i}, 2)", "min({i}, 5)"),
    2: ("{i}*5 + {j}", "{i} + {j}", "{i}*4 + {j}", "{i} - {j} + 8", "{i}*5 - {j} + 8", "{j}*5 + {i}", "{i} % 2 + {j}*2",
        "{i}//2*4 + {j}", "{i}*5 + {j} + 1", "{i}*5 + {j} + 5", "{i}*5 + {j} + 4", "{i}*2 + {j}//2", "{i}*{j} % 7"),
}  # fmt: skip


def wild(rng: random.Random) -> Func:
    """Loops around plain stores that read and write one array at odd places."""
    depth = rng.choice((1, 2, 2, 2, 3))
    loops = ["i", "j", "k"][:depth]
    extents = [rng.choice(("1", "2", "3", "5", "5", "8", "n", "n")) if d == 0 else rng.choice(("2", "3", "4", "4"))
               for d in range(depth)]  # fmt: skip
    if depth > 1 and rng.random() < 0.25:
        extents[1] = rng.choice(("min(i + 1, 4)", "i % 3 + 1", "max(0, 3 - i)"))
    body = [_wild_store(rng, loops) for _ in range(rng.choice((1, 1, 1, 2)))]
    if rng.random() < 0.2:
        v = rng.choice(loops)
        body = [f"if less(index({v}, int64), index({rng.randint(0, 4)}, int64)):", *("    " + x for x in body)]
    for v, e in reversed(list(zip(loops, extents, strict=True))):
        body = [f"for {v} in range({e}):", *("    " + x for x in body)]
    text = f"""
def wild(n: dim, A: int32[{SPAN}], B: out(int32[{SPAN}])):
    T = shared(int32[{SPAN}])
    for h in range({SPAN}):
        with block("T", h_=spatial({SPAN}, h)):
            T[h_] = A[h_]
{textwrap.indent(chr(10).join(body), "    ")}
    for g in range({SPAN}):
        with block("B", g_=spatial({SPAN}, g)):
            B[g_] = T[g_]
"""
    return parse_func(text)


def _wild_store(rng: random.Random, loops: list[str]) -> str:
    target = _place(rng, loops)
    again = target if rng.random() < 0.4 else _place(rng, loops)
    other = f"A[{_place(rng, loops)}]" if rng.random() < 0.5 else f"T[{_place(rng, loops)}]"
    name = rng.choice(("add", "add", "sub", "max"))
    return f"T[{target}] = {name}(T[{again}], {other})"


def _place(rng: random.Random, loops: list[str]) -> str:
    count = min(rng.choice((1, 2, 2)), len(loops))
    chosen = rng.sample(loops, count)
    return rng.choice(PLACES[count]).format(**dict(zip("ij", chosen, strict=False)))


# -- any of them -----------------------------------------------------------------------------------------------------
def random_nest(rng: random.Random) -> tuple[str, Func]:
    """A nest of any kind, and its name with its sizes."""
    call, func = _any_nest(rng)
    return call, with_intrinsics(func, *SMALL)


def _any_nest(rng: random.Random) -> tuple[str, Func]:
    kind = rng.random()
    if kind < 0.4:
        func = wild(rng) if kind < 0.25 else written(rng)
        return func.name, func
    name = rng.choice(sorted(DECLARED))
    make = DECLARED[name]
    sizes = [rng.choice(EXTENTS) for _ in range(make.__code__.co_argcount)]
    return f"{name}({', '.join(map(str, sizes))})", make(*sizes)
