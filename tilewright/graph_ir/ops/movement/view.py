"""Operators that move no data: the reshape family; and questions about shapes."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE, IntExpr, const, product
from tilewright.core.assumptions import Ones
from tilewright.graph_ir.ir import Shape, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands
from tilewright.graph_ir.ops.shapes import decide_equal, total


def _identity(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(ctx.value(0).type, ctx.data(0)),)


def _reshape(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, ", r")
    target = ctx.data(1)
    dt = ctx.dtype(0)
    if target is None:
        count = ctx.shape(1, 1)[0].value()
        if count is None:
            return (tensor(dt, None),)
        return (tensor(dt, _fit(ctx, ctx.fresh_shape(count))),)
    allow_zero = ctx.int_attr("allowzero")
    if ctx.tensor_type(0).shape is None:
        open_ = [t == -1 or (t == 0 and not allow_zero) for t in target]
        return (tensor(dt, [ctx.fresh() if o else t for t, o in zip(target, open_, strict=True)]),)
    shape = ctx.shape(0)
    out: list[IntExpr | None] = []
    for i, t in enumerate(target):
        if t == 0 and not allow_zero:
            ctx.require(i < len(shape), f"a 0 in shape only at positions below {len(shape)}", i)
            out.append(shape[i])
        elif t == -1:
            out.append(None)
        else:
            ctx.require(not t.is_const or t.const >= 0, "sizes >= 0 (or one -1) in shape", t)
            out.append(t)
    if sum(d is None for d in out) > 1:
        ctx.error("at most one -1 in shape", f"{[str(t) for t in target]}")
    known = product(d for d in out if d is not None)
    count_in = total(shape)
    if None in out:
        if known == 0:
            ctx.error("sizes from which -1 follows", f"{[str(t) for t in target]}")
        if count_in.is_const and known.is_const and count_in.const % known.const:
            ctx.error(f"a shape for {count_in} elements", f"{[str(t) for t in target]}")
        rest = count_in // known
        ctx.assume(rest * known, count_in)
        out = [rest if d is None else d for d in out]
    elif decide_equal(count_in, known) is False:
        ctx.error(f"a shape for {count_in} elements", f"{[str(t) for t in target]}")
    else:
        ctx.assume(known, count_in)
    return (tensor(dt, [d for d in out if d is not None], ctx.data(0)),)


def _fit(ctx: InferContext, out: list[IntExpr]) -> list[IntExpr]:
    """A one-dimensional result has all elements; else the fresh symbols stay."""
    shape = ctx.tensor_type(0).shape
    return [total(shape)] if len(out) == 1 and shape is not None else out


def _flatten(ctx: InferContext) -> tuple[Inferred, ...]:
    if ctx.tensor_type(0).shape is None:
        return (tensor(ctx.dtype(0), (ctx.fresh(), ctx.fresh())),)
    s = ctx.shape(0)
    axis = ctx.axis(len(s), default=1, inclusive=True)
    return (tensor(ctx.dtype(0), (product(s[:axis]), product(s[axis:])), ctx.data(0)),)


def _squeeze(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    if not ctx.has(1):
        return (tensor(ctx.dtype(0), _without_ones(ctx, s), ctx.data(0)),)
    raw = ctx.ints(1)
    if raw is None:
        n = ctx.count(1)
        return (tensor(ctx.dtype(0), None if n is None else [ctx.fresh() for _ in range(len(s) - n)]),)
    axes = {ctx.normal_axis(a, len(s)) for a in raw}
    for a in axes:
        ctx.require(not s[a].is_const or s[a] == 1, f"size 1 along axis {a}", s[a])
        ctx.assume(s[a], ONE)
    return (tensor(ctx.dtype(0), [d for i, d in enumerate(s) if i not in axes], ctx.data(0)),)


def _without_ones(ctx: InferContext, s: Shape) -> Shape | None:
    """The dims other than 1. Those that only a call tells are taken to be others; where nothing may be taken for
    granted (:attr:`InferContext.broadcasts`), they leave the rank unknown."""
    unsure = [d for d in s if decide_equal(d, ONE) is None]
    if unsure and ctx.broadcasts:
        return None
    for d in unsure:
        ctx.assume(d, ONE, Ones.APART)
    return tuple(d for d in s if d != 1)


def _unsqueeze(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    raw = ctx.ints(1)
    if raw is None:
        n = ctx.count(1)
        return (tensor(ctx.dtype(0), None if n is None else [ctx.fresh() for _ in range(len(s) + n)]),)
    rank = len(s) + len(raw)
    axes = {ctx.normal_axis(a, rank) for a in raw}
    ctx.require(len(axes) == len(raw), "different axes", raw)
    dims = iter(s)
    return (tensor(ctx.dtype(0), [ONE if i in axes else next(dims) for i in range(rank)], ctx.data(0)),)


def _shape(ctx: InferContext) -> tuple[Inferred, ...]:
    t = ctx.tensor_type(0)
    if t.shape is None:
        return (tensor(dtypes.int64, [ctx.fresh()]),)
    end = ctx.node.attr("end")
    picked: Shape = t.shape[slice(ctx.int_attr("start"), end if isinstance(end, int) else None)]
    return (tensor(dtypes.int64, [len(picked)], picked),)


def _sizes_dtype(_: InferContext) -> tuple[dtypes.DType, ...]:
    return (dtypes.int64,)


def _size(ctx: InferContext) -> tuple[Inferred, ...]:
    t = ctx.tensor_type(0)
    return (Inferred(TensorType(dtypes.int64, ()), None if t.shape is None else (total(t.shape),)),)


def _constant(ctx: InferContext) -> tuple[Inferred, ...]:
    array = ctx.array_attr("value")
    if array is None:
        ctx.error("a tensor as attribute value", repr(ctx.node.attr("value")))
    return (tensor(dtypes.from_numpy(array.dtype), [const(d) for d in array.shape]),)


OPS = table(
    OpDef("Identity", PatternKind.VIEW, _identity, 1, 1),
    OpDef("Reshape", PatternKind.VIEW, _reshape, 2, 2, shape_operands=(1,)),
    OpDef("Flatten", PatternKind.VIEW, _flatten, 1, 1),
    OpDef("Squeeze", PatternKind.VIEW, _squeeze, 1, 2, shape_operands=(1,)),
    OpDef("Unsqueeze", PatternKind.VIEW, _unsqueeze, 2, 2, shape_operands=(1,)),
    OpDef("Shape", PatternKind.OPAQUE, _shape, 1, 1, dtypes=_sizes_dtype, queries_shape=True),
    OpDef("Size", PatternKind.OPAQUE, _size, 1, 1, dtypes=_sizes_dtype, queries_shape=True),
    OpDef("Constant", PatternKind.HOST, _constant, 0, 0, host="becomes a graph constant", fold_limit=0),
)
