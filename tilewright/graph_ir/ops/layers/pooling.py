"""Pooling. ``data_layout`` NHWC (ours): X and Y are channels-last; such a MaxPool has no second output."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE, const
from tilewright.core.index_ranges import unpooled_shape
from tilewright.graph_ir.kinds import DataLayout, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands, match_same
from tilewright.graph_ir.ops.shapes import (
    decide_less,
    is_channels_last,
    list_attr,
    to_channels_first,
    to_channels_last,
    window_sizes,
)


def _pool(ctx: InferContext) -> tuple[Inferred, ...]:
    last = is_channels_last(ctx)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0, len(ctx.ints_attr("kernel_shape") or ()) + 2)
    ctx.require(len(x) >= 3, "an input of rank >= 3", f"rank {len(x)}")
    ctx.require(not last or len(ctx.node.outputs) == 1, "one output with data_layout NHWC", len(ctx.node.outputs))
    kernel = list_attr(ctx, "kernel_shape", len(x) - 2)
    out = (*x[:2], *window_sizes(ctx, x[2:], [const(k) for k in kernel], bool(ctx.int_attr("ceil_mode"))))
    shape = to_channels_last(out) if last else out
    return tensor(ctx.dtype(0), shape), tensor(dtypes.int64, shape)


def _global(ctx: InferContext) -> tuple[Inferred, ...]:
    last = is_channels_last(ctx)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0)
    ctx.require(len(x) >= 3, "an input of rank >= 3", f"rank {len(x)}")
    out = (*x[:2], *(ONE for _ in x[2:]))
    return (tensor(ctx.dtype(0), to_channels_last(out) if last else out),)


def _max_unpool(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0)
    ctx.require(len(x) >= 3, "an input of rank >= 3", f"rank {len(x)}")
    match_same(ctx, 1, 0)
    n = len(x) - 2
    kernel, strides = list_attr(ctx, "kernel_shape", n), list_attr(ctx, "strides", n)
    pads = ctx.ints_attr("pads") or (0,) * (2 * n)
    ctx.require(len(pads) == 2 * n, f"{2 * n} pads", len(pads))
    whole = unpooled_shape({"kernel_shape": kernel, "strides": strides, "pads": pads}, x)
    if not ctx.has(2):
        return (tensor(ctx.dtype(0), whole),)
    sizes = ctx.data(2)
    if sizes is None:
        return (tensor(ctx.dtype(0), [ctx.fresh() for _ in x]),)
    fits = len(sizes) == len(x) and not any(decide_less(s, w) is True for s, w in zip(sizes, whole, strict=True))
    ctx.require(fits, f"an output_shape of at least {whole}", sizes)
    return (tensor(ctx.dtype(0), sizes),)


def _max_roi_pool(ctx: InferContext) -> tuple[Inferred, ...]:
    pooled = ctx.ints_attr("pooled_shape") or (1, 1)
    ctx.require(len(pooled) == 2, "a pooled_shape of 2 sizes", pooled)
    match_operands(ctx, "n c h w, r 5")
    return (tensor(ctx.dtype(0), (ctx.shape(1)[0], ctx.shape(0)[1], *map(const, pooled))),)


_MOST_SAMPLES = 1024
"""Along each side of a bin: no image has more of them, and a run takes the square of them a bin."""


def _roi_align(ctx: InferContext) -> tuple[Inferred, ...]:
    h, w = ctx.int_attr("output_height", 1), ctx.int_attr("output_width", 1)
    ratio = ctx.int_attr("sampling_ratio")
    ctx.require(0 <= ratio <= _MOST_SAMPLES, f"a sampling_ratio from 0 to {_MOST_SAMPLES}", ratio)
    match_operands(ctx, "n c h w, r 4, r")
    return (tensor(ctx.dtype(0), (ctx.shape(1)[0], ctx.shape(0)[1], const(h), const(w))),)


def _lp_pool(ctx: InferContext) -> tuple[Inferred, ...]:
    return _pool(ctx)[:1]


OPS = table(
    OpDef("MaxPool", PatternKind.OPAQUE, _pool, 1, 1, 1, 2, layout=DataLayout.SUPPORTED, window=True, arithmetic=True),
    OpDef("AveragePool", PatternKind.OPAQUE, _lp_pool, 1, 1, layout=DataLayout.SUPPORTED, window=True, arithmetic=True),
    OpDef("LpPool", PatternKind.OPAQUE, _lp_pool, 1, 1, layout=DataLayout.SUPPORTED, window=True, arithmetic=True),
    OpDef("GlobalAveragePool", PatternKind.REDUCTION, _global, 1, 1, layout=DataLayout.SUPPORTED),
    OpDef("GlobalMaxPool", PatternKind.REDUCTION, _global, 1, 1, layout=DataLayout.SUPPORTED),
    OpDef("GlobalLpPool", PatternKind.REDUCTION, _global, 1, 1, layout=DataLayout.SUPPORTED),
    OpDef("MaxUnpool", PatternKind.OPAQUE, _max_unpool, 2, 3),
    OpDef("MaxRoiPool", PatternKind.OPAQUE, _max_roi_pool, 2, 2, fold_limit=1 << 12),
    OpDef("RoiAlign", PatternKind.OPAQUE, _roi_align, 3, 3, fold_limit=1 << 12),
)
