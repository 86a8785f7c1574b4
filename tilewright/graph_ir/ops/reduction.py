"""Reductions over axes, arg-reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE, IntExpr, product
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import Data, InferContext, Inferred, InferRule, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import require_single

Fold = Callable[[Data], IntExpr]


def _reduce(fold: Fold | None = None) -> InferRule:
    def infer(ctx: InferContext) -> tuple[Inferred, ...]:
        keep = ctx.int_attr("keepdims", 1)
        dt = ctx.dtype(0)
        raw = ctx.ints(1) if ctx.has(1) else ()
        if raw == () and not keep and not ctx.int_attr("noop_with_empty_axes") and ctx.tensor_type(0).shape is None:
            return (tensor(dt, ()),)
        shape = ctx.shape(0)
        if raw is None:
            if keep:
                return (tensor(dt, [ctx.fresh() for _ in shape]),)
            count = ctx.count(1)
            return (tensor(dt, None if count is None else [ctx.fresh() for _ in range(len(shape) - count)]),)
        if not raw and ctx.int_attr("noop_with_empty_axes"):
            return (Inferred(TensorType(dt, shape)),)
        axes = {ctx.normal_axis(a, len(shape)) for a in raw} or set(range(len(shape)))
        out = [ONE if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
        data = ctx.data(0)
        known = fold is not None and data is not None and len(axes) == len(shape) and len(data) > 0
        return (tensor(dt, out, [fold(data)] if known and fold is not None and data is not None else None),)

    return infer


def _arg(ctx: InferContext) -> tuple[Inferred, ...]:
    shape = ctx.shape(0)
    axis = ctx.axis(len(shape))
    keep = ctx.int_attr("keepdims", 1)
    out = [ONE if i == axis else d for i, d in enumerate(shape) if keep or i != axis]
    return (tensor(dtypes.int64, out),)


def _int64(_: InferContext) -> tuple[DType, ...]:
    return (dtypes.int64,)


def _running(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 1)
    axis = ctx.ints(1)
    if axis is not None and ctx.tensor_type(0).shape is not None:
        ctx.normal_axis(axis[0], ctx.rank(0))
    return (Inferred(ctx.value(0).type),)


def _op(name: str, fold: Fold | None = None) -> OpDef:
    return OpDef(name, PatternKind.REDUCTION, _reduce(fold), 1, 2, shape_operands=(1,), arithmetic=True)


OPS = table(
    _op("ReduceSum", lambda d: sum(d[1:], d[0])),
    _op("ReduceProd", product),
    _op("ReduceMax", lambda d: maximum(*d)),
    _op("ReduceMin", lambda d: minimum(*d)),
    _op("ReduceMean"),
    _op("ReduceL1"),
    _op("ReduceL2"),
    _op("ReduceLogSum"),
    _op("ReduceLogSumExp"),
    _op("ReduceSumSquare"),
    OpDef("ArgMax", PatternKind.REDUCTION, _arg, 1, 1, dtypes=_int64),
    OpDef("ArgMin", PatternKind.REDUCTION, _arg, 1, 1, dtypes=_int64),
    OpDef("CumSum", PatternKind.OPAQUE, _running, 2, 2, arithmetic=True),
    OpDef("CumProd", PatternKind.OPAQUE, _running, 2, 2, arithmetic=True),
)
