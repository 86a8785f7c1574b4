"""Operators that move elements without computing: transposes, slices, concatenation, padding, tiling."""

from __future__ import annotations

from tilewright.core.arith.bounds import interval
from tilewright.core.arith.expr import ONE, ZERO, IntExpr, ceildiv, const
from tilewright.core.arith.minmax import maximum, minimum, with_parts_joined
from tilewright.graph_ir.ir import Shape, TensorType
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import MAX_DATA, Data, InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands, require_single
from tilewright.graph_ir.ops.shapes import broadcast_index, broadcast_shapes, const_shape, decide_less, merge_dims

_END = 1 << 31  # starts and ends at or beyond this mean "to the end"
LONGEST_STEP = 1 << 40
"""Longer steps of a Slice leave an axis just so; multiples of this one stay below 2**63."""


def _transpose(ctx: InferContext) -> tuple[Inferred, ...]:
    perm = ctx.ints_attr("perm")
    s = ctx.shape(0, None if perm is None else len(perm))
    if perm is None:
        perm = tuple(reversed(range(len(s))))
    ctx.require(sorted(perm) == list(range(len(s))), f"a permutation of {len(s)} axes", perm)
    data = ctx.data(0) if len(s) <= 1 else None
    return (tensor(ctx.dtype(0), [s[p] for p in perm], data),)


def _clamp(e: IntExpr, low: int, high: IntExpr) -> IntExpr:
    """``min(max(e, low), high)``, decided where the ranges allow."""
    if e == high:
        return e
    if decide_less(e, const(low)) is not False:
        e = const(low) if decide_less(const(low), e) is False else maximum(e, low)
    if decide_less(high, e) is not False:
        e = high if decide_less(e, high) is False else minimum(e, high)
    return e


def slice_bounds(dim: IntExpr, start: IntExpr, end: IntExpr, step: int) -> tuple[IntExpr, IntExpr]:
    """First index and count of a Slice along an axis of size ``dim``, as ONNX defines them."""
    first, last = _from_end(start, dim), _from_end(end, dim)
    if step > 0:
        last = _bound(last, 0, dim)
        low = dim if first is None else maximum(first, 0) if decide_less(first, ZERO) is not False else first
        span = last - low  # the clamp of first from above only matters where the span is negative
        first = _bound(first, 0, dim)
    else:
        first, last = _bound(first, 0, dim - 1), _bound(last, -1, dim - 1)
        span = first - last
    return first, _nonnegative(ceildiv(span, min(abs(step), LONGEST_STEP)))


def _bound(e: IntExpr | None, low: int, high: IntExpr) -> IntExpr:
    return high if e is None else _clamp(e, low, high)


def _from_end(e: IntExpr, dim: IntExpr) -> IntExpr | None:
    """``e`` counted from the front; None for "to the end"."""
    v = e.value()
    if v is None:
        _, hi = interval(e, {})
        return e + dim if hi is not None and hi < 0 else e
    if v >= _END:
        return None
    return const(-1) if v <= -_END else (e + dim if v < 0 else e)


def _nonnegative(e: IntExpr) -> IntExpr:
    if decide_less(ZERO, e) is False:
        return ZERO
    return maximum(e, 0) if decide_less(e, ZERO) is not False else e


def _slice(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, ", n, n, n, n")
    s = ctx.shape(0)
    starts, ends = ctx.data(1), ctx.data(2)
    axes = ctx.ints(3) if ctx.has(3) else None
    if not ctx.has(3):
        n = ctx.count(1)
        axes = None if n is None else tuple(range(n))
    if axes is None:
        return (tensor(ctx.dtype(0), [ctx.fresh() for _ in s]),)
    steps = ctx.ints(4) if ctx.has(4) else (1,) * len(axes)
    out = list(s)
    firsts = []
    for k, a in enumerate(axes):
        a = ctx.normal_axis(a, len(s))
        step = None if steps is None else steps[k]
        ctx.require(step != 0, "steps other than 0", 0)
        if starts is None or ends is None or step is None:
            out[a] = ctx.fresh()
            continue
        if not _sign_known(starts[k]) or not _sign_known(ends[k]):
            out[a] = ctx.fresh()
            continue
        first, out[a] = slice_bounds(s[a], starts[k], ends[k], step)
        firsts.append((first, step))
    data = ctx.data(0)
    if data is not None and len(s) == 1 and len(firsts) == 1 and out[0].is_const and firsts[0][0].is_const:
        first, step = firsts[0]
        data = tuple(data[first.const + i * step] for i in range(out[0].const))
    else:
        data = data if not axes else None
    return (tensor(ctx.dtype(0), out, data),)


def _sign_known(e: IntExpr) -> bool:
    lo, hi = interval(e, {})
    return (lo is not None and lo >= 0) or (hi is not None and hi < 0)


def _split(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    axis = ctx.axis(len(s))
    n = len(ctx.node.outputs)
    sizes: Data | None
    if ctx.has(1):
        sizes = ctx.data(1)
        if sizes is None:
            sizes = tuple(ctx.fresh() for _ in range(n))
        ctx.require(len(sizes) == n, f"{n} split sizes", len(sizes))
        if all(x.is_const for x in sizes) and s[axis].is_const:
            whole = sum(x.const for x in sizes)
            ctx.require(whole == s[axis].const, f"split sizes that add up to {s[axis]}", whole)
    else:
        count = ctx.int_attr("num_outputs", n)
        ctx.require(count >= max(n, 1), f"at most num_outputs = {count} outputs", n)
        chunk = ceildiv(s[axis], count)
        sizes = tuple(chunk if i < count - 1 else s[axis] - chunk * (count - 1) for i in range(n))
    outs, at = [], 0
    data = ctx.data(0) if len(s) == 1 else None
    for size in sizes:
        part = None
        if data is not None and size.is_const:
            part, at = data[at : at + size.const], at + size.const
        else:
            data = None
        outs.append(tensor(ctx.dtype(0), [size if i == axis else d for i, d in enumerate(s)], part))
    return tuple(outs)


def _concat(ctx: InferContext) -> tuple[Inferred, ...]:
    known = [t.shape for i in range(len(ctx.inputs)) if (t := ctx.tensor_type(i)).shape is not None]
    shapes = [ctx.shape(i, len(known[0]) if known else None) for i in range(len(ctx.inputs))]
    first = shapes[0]
    axis = ctx.axis(len(first))
    out = list(first)
    for i, s in enumerate(shapes[1:], 1):
        ctx.require(len(s) == len(first), f"inputs of rank {len(first)}", f"rank {len(s)} as input {i}")
        ctx.require(ctx.dtype(i) == ctx.dtype(0), f"inputs of one element type ({ctx.dtype(0)})", ctx.dtype(i))
        for k, d in enumerate(s):
            if k != axis:
                out[k] = merge_dims(ctx, out[k], d, broadcast=False)
    out[axis] = with_parts_joined(sum((s[axis] for s in shapes[1:]), first[axis]))
    if axis:
        return (tensor(ctx.dtype(0), out),)
    parts = [ctx.elements(i) for i in range(len(shapes))]
    joined = None if any(p is None for p in parts) else tuple(d for p in parts for d in p or ())
    if joined is None or any(d is None for d in joined):
        return (tensor(ctx.dtype(0), out, known=joined),)
    return (tensor(ctx.dtype(0), out, [d for d in joined if d is not None]),)


def _tile(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, ", r")
    repeats = ctx.data(1)
    s = ctx.shape(0, ctx.shape(1, 1)[0].value())
    if repeats is None:
        return (tensor(ctx.dtype(0), [ctx.fresh() for _ in s]),)
    ctx.require(len(repeats) == len(s), f"{len(s)} repeats", len(repeats))
    out = [d * r for d, r in zip(s, repeats, strict=True)]
    data = ctx.data(0)
    if data is not None and len(s) == 1 and repeats[0].is_const and repeats[0].const * len(data) <= MAX_DATA:
        data = data * repeats[0].const
    else:
        data = None
    return (tensor(ctx.dtype(0), out, data),)


def _expand(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    match_operands(ctx, ", r")
    sizes = ctx.elements(1)
    if sizes is None:
        count = ctx.shape(1, 1)[0].value()
        if count is None:
            return (tensor(ctx.dtype(0), None),)
        return (tensor(ctx.dtype(0), ctx.fresh_shape(max(count, len(s)))),)
    rank = max(len(sizes), len(s))
    ctx.require_rank(rank)
    if any(d is None for d in sizes):
        target, operand = (ONE,) * (rank - len(sizes)) + sizes, (ONE,) * (rank - len(s)) + s
        dims = [ctx.fresh() if a is None else merge_dims(ctx, a, b) for a, b in zip(target, operand, strict=True)]
        return (tensor(ctx.dtype(0), dims),)
    out = broadcast_shapes(ctx, [tuple(d for d in sizes if d is not None), s])
    return (tensor(ctx.dtype(0), out, _expanded(ctx.data(0), s, out)),)


def _expanded(data: Data | None, shape: Shape, out: Shape) -> Data | None:
    source, dims = const_shape(shape), const_shape(out)
    if data is None or source is None or dims is None:
        return None
    n = 1
    for d in dims:
        n *= d
    return tuple(data[broadcast_index(i, dims, source)] for i in range(n)) if n <= MAX_DATA else None


def _pad(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 2)
    pads = ctx.data(1)
    s = ctx.shape(0, None if pads is None or ctx.has(3) else len(pads) // 2)
    axes = ctx.ints(3) if ctx.has(3) else tuple(range(len(s)))
    if pads is None or axes is None:
        return (tensor(ctx.dtype(0), [ctx.fresh() for _ in s]),)
    ctx.require(len(pads) == 2 * len(axes), f"{2 * len(axes)} pads", len(pads))
    out = list(s)
    for k, a in enumerate(axes):
        a = ctx.normal_axis(a, len(s))
        out[a] = out[a] + pads[k] + pads[len(axes) + k]
        ctx.require(not out[a].is_const or out[a].const >= 0, "pads that leave a size >= 0", out[a])
    return (tensor(ctx.dtype(0), out),)


def _same(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(ctx.value(0).type),)


def _reverse_sequence(ctx: InferContext) -> tuple[Inferred, ...]:
    batch, time = ctx.int_attr("batch_axis", 1), ctx.int_attr("time_axis")
    ctx.require({batch, time} == {0, 1}, "batch_axis and time_axis 0 and 1", f"{batch} and {time}")
    match_operands(ctx, "t b ..., b" if batch else "b t ..., b")
    return _same(ctx)


def _trilu(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 1)
    t = ctx.tensor_type(0)
    ctx.require(t.shape is None or len(t.shape) >= 2, "an input of rank >= 2", t)
    return (Inferred(TensorType(t.dtype, t.shape)),)


def _center_crop_pad(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    axes = ctx.ints_attr("axes") or tuple(range(len(s)))
    sizes = ctx.data(1) or tuple(ctx.fresh() for _ in axes)
    ctx.require(len(sizes) == len(axes), f"{len(axes)} sizes", len(sizes))
    out = list(s)
    for a, d in zip(axes, sizes, strict=True):
        out[ctx.normal_axis(a, len(s))] = d
    return (tensor(ctx.dtype(0), out),)


OPS = table(
    OpDef("Transpose", PatternKind.INJECTIVE, _transpose, 1, 1, cost=ElementCost.LOAD),
    OpDef("Slice", PatternKind.INJECTIVE, _slice, 3, 5, shape_operands=(1, 2, 3, 4), cost=ElementCost.LOAD),
    OpDef("Split", PatternKind.INJECTIVE, _split, 1, 2, 1, None, shape_operands=(1,)),
    OpDef("Concat", PatternKind.INJECTIVE, _concat, 1, None),
    OpDef("Tile", PatternKind.INJECTIVE, _tile, 2, 2, shape_operands=(1,)),
    OpDef(
        "Expand",
        PatternKind.BROADCAST,
        _expand,
        2,
        2,
        shape_operands=(1,),
        mixed_operands=True,
        cost=ElementCost.LOAD,
    ),
    OpDef("Pad", PatternKind.INJECTIVE, _pad, 2, 4, shape_operands=(1, 3)),
    OpDef("ReverseSequence", PatternKind.INJECTIVE, _reverse_sequence, 2, 2, fold_limit=1 << 18),
    OpDef("Trilu", PatternKind.INJECTIVE, _trilu, 1, 2),
    OpDef("CenterCropPad", PatternKind.INJECTIVE, _center_crop_pad, 2, 2, shape_operands=(1,)),
)
