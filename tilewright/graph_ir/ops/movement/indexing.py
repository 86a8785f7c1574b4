"""Gathers, scatters, selections and orderings."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands, match_same, require_at_most, require_single
from tilewright.graph_ir.ops.shapes import decide_less, merge_dims, total

_SIZE = "the size of the result depends on the data"


def _gather(ctx: InferContext) -> tuple[Inferred, ...]:
    s, idx = ctx.shape(0), ctx.shape(1)
    ctx.require(len(s) > 0, "data of rank >= 1", "a scalar")
    ctx.require(ctx.dtype(1).is_integer, "integer indices", ctx.dtype(1))
    axis = ctx.axis(len(s))
    data = ctx.data(0)
    picked = None
    if data is not None and len(s) == 1:
        at = ctx.ints(1)
        if at is not None and all(-len(data) <= i < len(data) for i in at):
            picked = [data[i] for i in at]
    return (tensor(ctx.dtype(0), (*s[:axis], *idx, *s[axis + 1 :]), picked),)


def _gather_elements(ctx: InferContext) -> tuple[Inferred, ...]:
    s, idx = ctx.shape(0), ctx.shape(1)
    ctx.require(len(s) == len(idx), f"indices of rank {len(s)}", len(idx))
    _require_inside(ctx, ctx.axis(len(s)))
    return (tensor(ctx.dtype(0), idx),)


def _require_inside(ctx: InferContext, axis: int) -> None:
    """The indices of input 1 must name places of input 0: along axes other than ``axis`` by where they stand."""
    for k, (d, n) in enumerate(zip(ctx.shape(0), ctx.shape(1), strict=True)):
        if k != axis:
            require_at_most(ctx, f"indices of size (axis {k})", n, d)


def _gather_nd(ctx: InferContext) -> tuple[Inferred, ...]:
    s, idx = ctx.shape(0), ctx.shape(1)
    batch = ctx.int_attr("batch_dims")
    ctx.require(len(s) >= 1 and len(idx) >= 1, "data and indices of rank >= 1", f"ranks {len(s)} and {len(idx)}")
    ctx.require(0 <= batch < min(len(s), len(idx)), f"batch_dims in [0, {min(len(s), len(idx))})", batch)
    for k in range(batch):
        merge_dims(ctx, s[k], idx[k], broadcast=False)
    last = idx[-1].value()
    if last is None:
        return (tensor(ctx.dtype(0), None),)
    ctx.require(batch + last <= len(s), f"at most {len(s) - batch} indices a place", last)
    return (tensor(ctx.dtype(0), (*idx[:-1], *s[batch + last :])),)


def _scatter(ctx: InferContext) -> tuple[Inferred, ...]:
    ctx.require(ctx.dtype(0) == ctx.dtype(2), f"updates of type {ctx.dtype(0)}", ctx.dtype(2))
    return (Inferred(ctx.value(0).type),)


def _scatter_elements(ctx: InferContext) -> tuple[Inferred, ...]:
    match_same(ctx, 2, 1)
    if all(ctx.tensor_type(i).shape is not None for i in (0, 1)):
        s, idx = ctx.shape(0), ctx.shape(1)
        ctx.require(len(s) == len(idx), f"indices of rank {len(s)}", len(idx))
        _require_inside(ctx, ctx.axis(len(s)))
    return _scatter(ctx)


def _scatter_nd(ctx: InferContext) -> tuple[Inferred, ...]:
    if all(ctx.tensor_type(i).shape is not None for i in range(3)):
        s, idx, new = (ctx.shape(i) for i in range(3))
        ctx.require(len(idx) >= 1, "indices of rank >= 1", len(idx))
        last = idx[-1].value()
        if last is not None:
            ctx.require(last <= len(s), f"at most {len(s)} indices a place", last)
            want = (*idx[:-1], *s[last:])
            ctx.require(len(new) == len(want), f"updates of rank {len(want)}", len(new))
            for a, b in zip(want, new, strict=True):
                merge_dims(ctx, a, b, broadcast=False)
    return _scatter(ctx)


def _tensor_scatter(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(ctx.value(0).type),)


def _one_hot(ctx: InferContext) -> tuple[Inferred, ...]:
    idx = ctx.shape(0)
    axis = ctx.axis(len(idx) + 1, default=-1)
    require_single(ctx, 1)
    match_operands(ctx, ", , 2")
    depth = ctx.data(1)
    constant = ctx.constant(1)
    if constant is not None:
        depth = (const(int(constant.reshape(-1)[0])),)
    d = ctx.fresh() if depth is None else depth[0]
    return (tensor(ctx.dtype(2), (*idx[:axis], d, *idx[axis:])),)


def _top_k(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    axis = ctx.axis(len(s), default=-1)
    require_single(ctx, 1)
    k = ctx.data(1)
    size = ctx.fresh() if k is None else k[0]
    ctx.require(decide_less(s[axis], size) is not True, f"K <= {s[axis]}", size)
    out = [size if i == axis else d for i, d in enumerate(s)]
    return tensor(ctx.dtype(0), out), tensor(dtypes.int64, out)


def _non_zero(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.tensor_type(0).shape
    return (tensor(dtypes.int64, (ctx.fresh() if s is None else const(len(s)), ctx.fresh())),)


def _compress(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, ", n")
    s = ctx.shape(0)
    if ctx.node.attr("axis") is None:
        return (tensor(ctx.dtype(0), (_chosen(ctx, total(s)),)),)
    axis = ctx.axis(len(s))
    size = _chosen(ctx, s[axis])
    return (tensor(ctx.dtype(0), [size if i == axis else d for i, d in enumerate(s)]),)


def _chosen(ctx: InferContext, whole: IntExpr) -> IntExpr:
    """How many of ``whole`` elements the condition chooses; what it says of elements beyond those does not count."""
    condition = ctx.constant(1)
    if condition is None:
        return ctx.fresh()
    most = whole.value()
    places = np.flatnonzero(condition[:most])
    if most is None and places.size and decide_less(const(int(places[-1])), whole) is not True:
        return ctx.fresh()
    return const(places.size)


def _unique(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    n = ctx.fresh()
    if ctx.node.attr("axis") is None:
        out, whole = [n], total(s)
    else:
        axis = ctx.axis(len(s))
        out, whole = [n if i == axis else d for i, d in enumerate(s)], s[axis]
    counts = tensor(dtypes.int64, (n,))
    return tensor(ctx.dtype(0), out), counts, tensor(dtypes.int64, (whole,)), counts


def _nms(ctx: InferContext) -> tuple[Inferred, ...]:
    return (tensor(dtypes.int64, (ctx.fresh(), const(3))),)


def _int64s(_: InferContext) -> tuple[dtypes.DType, ...]:
    return (dtypes.int64,)


def _top_k_types(ctx: InferContext) -> tuple[dtypes.DType, ...]:
    return ctx.dtype(0), dtypes.int64


def _unique_types(ctx: InferContext) -> tuple[dtypes.DType, ...]:
    return ctx.dtype(0), dtypes.int64, dtypes.int64, dtypes.int64


def _one_hot_types(ctx: InferContext) -> tuple[dtypes.DType, ...]:
    return (ctx.dtype(2),)


OPS = table(
    OpDef("Gather", PatternKind.INJECTIVE, _gather, 2, 2),
    OpDef("GatherElements", PatternKind.INJECTIVE, _gather_elements, 2, 2),
    OpDef("GatherND", PatternKind.INJECTIVE, _gather_nd, 2, 2, fold_limit=1 << 18),
    OpDef("ScatterElements", PatternKind.OPAQUE, _scatter_elements, 3, 3, updates=0, fold_limit=1 << 18),
    OpDef("ScatterND", PatternKind.OPAQUE, _scatter_nd, 3, 3, updates=0, fold_limit=1 << 18),
    OpDef("TensorScatter", PatternKind.OPAQUE, _tensor_scatter, 2, 3, reads_once=True, updates=0),
    OpDef("OneHot", PatternKind.INJECTIVE, _one_hot, 3, 3, dtypes=_one_hot_types, shape_operands=(1,)),
    OpDef("TopK", PatternKind.OPAQUE, _top_k, 2, 2, 2, 2, dtypes=_top_k_types, shape_operands=(1,)),
    OpDef("NonZero", PatternKind.HOST, _non_zero, 1, 1, host=_SIZE, dtypes=_int64s),
    OpDef("Compress", PatternKind.HOST, _compress, 2, 2, host=_SIZE),
    OpDef("Unique", PatternKind.HOST, _unique, 1, 1, 1, 4, host=_SIZE, dtypes=_unique_types),
    OpDef("NonMaxSuppression", PatternKind.HOST, _nms, 2, 5, host=_SIZE, dtypes=_int64s, fold_limit=1 << 12),
)
