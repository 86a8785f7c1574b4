"""Shape rules shared by operator families: broadcasting, dimension agreement, windows, decided comparisons.

Broadcasting two dims ``a`` and ``b`` (``merge_dims``), in this order:

1. equal expressions give that dim; a dim that is 1 gives the other;
2. two different constants other than 1 are an error;
3. a constant and an unknown give the constant;
4. two unknowns that differ are assumed equal and the first is kept, a symbol of the model before a fresh ``u`` one.
   In a graph that broadcasts (:attr:`Graph.broadcasts`), the result is ``broadcast(a, b)``, which is right for all
   that they can turn out to be.

Rules 3 and 4 are assumptions (the unknown could turn out to be 1, or to be neither); the runtime checks them at each
call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.arith.bounds import interval, is_nonneg
from tilewright.core.arith.broadcast import broadcasted
from tilewright.core.arith.expr import ONE, IntExpr, product
from tilewright.core.arith.minmax import minimum
from tilewright.core.assumptions import Ones
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.ops.base import InferContext


def is_fresh(d: IntExpr) -> bool:
    """True for an expression that mentions a symbol made by inference."""
    return any(n[0] == "u" and n[1:].isdigit() for n in d.free_vars())


def merge_dims(ctx: InferContext, a: IntExpr, b: IntExpr, broadcast: bool = True) -> IntExpr:
    """One dim that stands for both (see the module docstring)."""
    if a == b:
        return a
    av, bv = a.value(), b.value()
    if broadcast:
        if av == 1:
            return b
        if bv == 1:
            return a
    if av is not None and bv is not None:
        ctx.error("dimensions that agree", f"{a} and {b}")
    ctx.assume(a, b, Ones.EITHER if broadcast else Ones.NEITHER)
    if broadcast and ctx.broadcasts:
        return common_size(a, b)
    if av is not None:
        return a
    if bv is not None:
        return b
    return b if is_fresh(a) and not is_fresh(b) else a


def common_size(*sizes: IntExpr) -> IntExpr:
    """What sizes that broadcast give: one that cannot be 1 if there is one."""
    for d in sizes:
        low, _ = interval(d, {})
        if low is not None and low > 1:
            return d
    return broadcasted(*sizes)


def broadcast_shapes(ctx: InferContext, shapes: Sequence[Shape]) -> Shape:
    """The common shape under ONNX multidirectional broadcasting."""
    out = shapes[0]
    for s in shapes[1:]:
        if s == out:
            continue
        n = max(len(out), len(s))
        left = (ONE,) * (n - len(out)) + out
        right = (ONE,) * (n - len(s)) + s
        out = tuple(merge_dims(ctx, a, b) for a, b in zip(left, right, strict=True))
    return out


def broadcast_index(flat: int, out_shape: Sequence[int], shape: Sequence[int]) -> int:
    """Row-major position in an operand of ``shape`` for position ``flat`` of the broadcast result."""
    pos, stride = 0, 1
    offset = len(out_shape) - len(shape)
    for k in range(len(out_shape) - 1, -1, -1):
        flat, i = divmod(flat, out_shape[k])
        if k >= offset:
            d = shape[k - offset]
            if d != 1:
                pos += i * stride
            stride *= d
    return pos


def const_shape(shape: Shape) -> tuple[int, ...] | None:
    """The shape as integers if it is fixed."""
    if any(not d.is_const for d in shape):
        return None
    return tuple(d.const for d in shape)


def decide_equal(a: IntExpr, b: IntExpr) -> bool | None:
    """Whether ``a == b`` for all values of the symbols, or None if that is open."""
    lo, hi = interval(a - b, {})
    if lo == 0 and hi == 0:
        return True
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    return None


def decide_less(a: IntExpr, b: IntExpr) -> bool | None:
    """Whether ``a < b`` for all values of the symbols, or None if that is open."""
    d = b - a
    if not d.terms:
        return d.const > 0
    if is_nonneg(d - 1, {}):
        return True
    return False if is_nonneg(-d, {}) else None


def is_channels_last(ctx: InferContext) -> bool:
    """True if the node's ``data_layout`` attribute is NHWC."""
    layout = ctx.str_attr("data_layout", "NCHW")
    ctx.require(layout in ("NCHW", "NHWC"), "data_layout NCHW or NHWC", layout)
    return layout == "NHWC"


def to_channels_first(shape: Shape) -> Shape:
    """``N, spatial..., C`` as ``N, C, spatial...``."""
    return (shape[0], shape[-1], *shape[1:-1])


def to_channels_last(shape: Shape) -> Shape:
    """``N, C, spatial...`` as ``N, spatial..., C``."""
    return (shape[0], *shape[2:], shape[1])


def window_sizes(
    ctx: InferContext,
    spatial: Shape,
    kernel: Sequence[IntExpr],
    ceil_mode: bool = False,
) -> Shape:
    """Output sizes of a sliding window, from strides, dilations, pads and auto_pad of the node."""
    n = len(spatial)
    strides = list_attr(ctx, "strides", n)
    dilations = list_attr(ctx, "dilations", n)
    auto = ctx.str_attr("auto_pad", "NOTSET")
    pads = ctx.ints_attr("pads") or (0,) * (2 * n)
    ctx.require(len(pads) == 2 * n, f"{2 * n} pads", len(pads))
    out = []
    for i, (size, k) in enumerate(zip(spatial, kernel, strict=True)):
        s = strides[i]
        ctx.require(s > 0, "strides > 0", s)
        reach = (k - 1) * dilations[i] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append((size + (s - 1)) // s)
            continue
        total = size if auto == "VALID" else size + pads[i] + pads[n + i]
        free = total - reach
        _, hi = interval(free, {})
        if hi is not None and hi < 0:
            ctx.error(f"a window that fits along axis {i + 2} (padded size {total})", f"reach {reach}")
        if not ceil_mode:
            out.append(free // s + 1)
            continue
        d = -((-free) // s) + 1
        # the last window must start inside the input or its left padding
        before = 0 if auto == "VALID" else pads[i]
        limit = (size + before - 1) // s + 1
        out.append(_least(d, limit))
    return tuple(out)


def _least(a: IntExpr, b: IntExpr) -> IntExpr:
    d = (a - b).value()
    if d is not None:
        return a if d <= 0 else b
    return minimum(a, b)


def list_attr(ctx: InferContext, key: str, n: int) -> tuple[int, ...]:
    """An attribute with one integer a spatial axis, ones if absent."""
    v = ctx.ints_attr(key) or (1,) * n
    ctx.require(len(v) == n, f"{n} {key}", len(v))
    return v


def total(shape: Shape) -> IntExpr:
    """Number of elements."""
    return product(shape)
