"""Programs in the forms in which lowering declares the operators that must be fast."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, as_expr, ceildiv
from tilewright.tensor_ir.compute import (
    Recurrence,
    build_func,
    compute,
    in_range,
    max_over,
    op,
    placeholder,
    reduce_axis,
    select,
    sum_over,
    update,
)
from tilewright.tensor_ir.ir import Func

f32 = dtypes.float32


def packed_matmul(m: IntLike, n: IntLike, k: IntLike, width: int = 16) -> Func:
    """C = max(A @ B + bias, 0) with B packed in panels of ``width`` columns"""
    a, bias = placeholder("A", (m, k), f32), placeholder("bias", (n,), f32)
    bp = placeholder("Bp", (ceildiv(n, width), k, width), f32)
    r = reduce_axis(k, "k")
    acc = compute("acc", (m, ceildiv(n, width), width), lambda m, no, ni: sum_over(a[m, r] * bp[no, r, ni], r))
    c = compute("C", (m, n), lambda m, n: op("max", acc[m, n // width, n % width] + bias[n], 0))
    return build_func("packed_matmul", [a, bp, bias], [c], [acc])


def conv(h: IntLike, w: IntLike, channels: int, features: int, kernel: int, stride: int, pad: int) -> Func:
    """A 2-d convolution, channels last, weights in panels of 8 features, with an explicit padding stage"""
    x = placeholder("X", (1, h, w, channels), f32)
    oh, ow = (as_expr(h) + 2 * pad - kernel) // stride + 1, (as_expr(w) + 2 * pad - kernel) // stride + 1
    blocks = ceildiv(features, 8)
    wp = placeholder("Wp", (blocks, kernel, kernel, channels, 8), f32)
    xp = compute(
        "Xp",
        (1, h + 2 * pad, w + 2 * pad, channels),
        lambda n, h_, w_, c: select(
            in_range(h_, pad, h + pad) & in_range(w_, pad, w + pad), x[n, h_ - pad, w_ - pad, c], 0
        ),
        axis_names=("n", "h", "w", "c"),
    )
    kh, kw, ic = reduce_axis(kernel, "kh"), reduce_axis(kernel, "kw"), reduce_axis(channels, "ic")
    acc = compute(
        "acc",
        (1, oh, ow, blocks, 8),
        lambda n, h, w, o, i: sum_over(xp[n, h * stride + kh, w * stride + kw, ic] * wp[o, kh, kw, ic, i], kh, kw, ic),
    )
    y = compute("Y", (1, oh, ow, features), lambda n, h, w, c: op("max", acc[n, h, w, c // 8, c % 8], 0))
    return build_func("conv", [x, wp], [y], [xp, acc])


def softmax_like(m: IntLike, n: IntLike) -> Func:
    """The stages of softmax, with exact arithmetic: Y = e - sum(e), e = 2 * (X - max(X))"""
    x = placeholder("X", (m, n), f32)
    r1, r2 = reduce_axis(n, "k1"), reduce_axis(n, "k2")
    mx = compute("mx", (m,), lambda i: max_over(x[i, r1], r1))
    ex = compute("ex", (m, n), lambda i, j: (x[i, j] - mx[i]) * 2)
    sm = compute("sm", (m,), lambda i: sum_over(ex[i, r2], r2))
    return build_func("softmax_like", [x], [compute("Y", (m, n), lambda i, j: ex[i, j] - sm[i])], [mx, ex, sm])


def stepped(steps: IntLike, size: int) -> Func:
    """``h[s + 1] = R h[s] + 2 x[s]``, the doubled inputs a stage before the steps, and the last state"""
    x, r = placeholder("x", (steps, size), f32), placeholder("R", (size, size), f32)
    double = compute("T", (steps, size), lambda s, j: x[s, j] + x[s, j])
    state = compute("h", (as_expr(steps) + 1, size), lambda s, j: r[0 * s, j])
    k = reduce_axis(size, "k")
    product = compute("Rh", (steps, size), lambda s, j: sum_over(state[s, k] * r[k, j], k))
    step = update("next", state, (steps, size), lambda s, j: ((s + 1, j), product[s, j] + double[s, j]), (0,))
    out = compute("out", (size,), lambda j: state[steps, j])
    shared = Recurrence((("step", as_expr(steps)),), (product, step))
    return build_func("stepped", [x, r], [out], [double, state, shared])
