"""Softmax and normalizations. ``data_layout`` NHWC (ours) is known to BatchNormalization and InstanceNormalization."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import DataLayout, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.broadcasting import broadcast_onto, dims_of
from tilewright.graph_ir.ops.operands import match_operands
from tilewright.graph_ir.ops.shapes import is_channels_last, merge_dims


def _over_axis(ctx: InferContext) -> tuple[Inferred, ...]:
    if ctx.tensor_type(0).shape is not None:
        ctx.axis(ctx.rank(0), default=-1)
    return (Inferred(ctx.value(0).type),)


def _same(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(ctx.value(0).type),)


def _mean_variance(ctx: InferContext) -> tuple[Inferred, ...]:
    axes = ctx.ints_attr("axes") or (0, 2, 3)
    for a in axes if ctx.tensor_type(0).shape is not None else ():
        ctx.normal_axis(a, ctx.rank(0))
    return _same(ctx)


def _lrn(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, "n c ...")
    return _same(ctx)


def _layer_norm(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    axis = ctx.axis(len(x), default=-1)
    for i in range(1, len(ctx.inputs)):
        broadcast_onto(ctx, dims_of(ctx, i), dims_of(ctx, 0))
    stash = ctx.dtype_attr("stash_type", dtypes.float32) or dtypes.float32
    stats = tensor(stash, [*x[:axis], *(ONE for _ in x[axis:])])
    return Inferred(TensorType(ctx.dtype(0), x)), stats, stats


def _rms_norm(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    ctx.axis(len(x), default=-1)
    broadcast_onto(ctx, dims_of(ctx, 1), dims_of(ctx, 0))
    return (tensor(ctx.dtype(0), x),)


def _per_channel(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    ctx.require(len(x) >= 2, "an input of rank >= 2", f"rank {len(x)}")
    channels = x[-1] if is_channels_last(ctx) else x[1]
    for i in range(1, len(ctx.inputs)):
        s = ctx.shape(i)
        ctx.require(len(s) == 1, f"a vector as input {i}", f"rank {len(s)}")
        merge_dims(ctx, channels, s[0], broadcast=False)
    return (tensor(ctx.dtype(0), x),)


def _batch_norm(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    if len(x) == 1:
        match_operands(ctx, "n, 1, 1, 1, 1")
        return (tensor(ctx.dtype(0), x), tensor(ctx.dtype(3), ctx.shape(3)), tensor(ctx.dtype(4), ctx.shape(4)))
    return (*_per_channel(ctx), tensor(ctx.dtype(3), ctx.shape(3)), tensor(ctx.dtype(4), ctx.shape(4)))


def _group_norm(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    match_operands(ctx, "n c ..., c, c")
    groups = ctx.int_attr("num_groups")
    ctx.require(groups >= 1, "num_groups >= 1", groups)
    c = x[1].value()
    ctx.require(c is None or c % groups == 0, f"channels divisible by {groups}", c)
    return (tensor(ctx.dtype(0), x),)


OPS = table(
    OpDef("Softmax", PatternKind.OPAQUE, _over_axis, 1, 1, rowwise=True, arithmetic=True),
    OpDef("LogSoftmax", PatternKind.OPAQUE, _over_axis, 1, 1, rowwise=True, arithmetic=True),
    OpDef("Hardmax", PatternKind.OPAQUE, _over_axis, 1, 1),
    OpDef("LpNormalization", PatternKind.OPAQUE, _over_axis, 1, 1),
    OpDef("MeanVarianceNormalization", PatternKind.OPAQUE, _mean_variance, 1, 1),
    OpDef("LRN", PatternKind.OPAQUE, _lrn, 1, 1, arithmetic=True),
    OpDef("LayerNormalization", PatternKind.OPAQUE, _layer_norm, 2, 3, 1, 3, rowwise=True, arithmetic=True),
    OpDef("RMSNormalization", PatternKind.OPAQUE, _rms_norm, 2, 2, rowwise=True),
    OpDef("GroupNormalization", PatternKind.OPAQUE, _group_norm, 3, 3, arithmetic=True),
    OpDef(
        "InstanceNormalization",
        PatternKind.OPAQUE,
        _per_channel,
        3,
        3,
        layout=DataLayout.SUPPORTED,
        arithmetic=True,
        ends_elementwise=True,
    ),
    OpDef(
        "BatchNormalization",
        PatternKind.BROADCAST,
        _batch_norm,
        5,
        5,
        1,
        3,
        layout=DataLayout.SUPPORTED,
        mixed_operands=True,
        arithmetic=True,
    ),
)
