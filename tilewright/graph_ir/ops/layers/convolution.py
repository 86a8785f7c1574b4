"""Convolutions. ``data_layout`` NHWC (ours): X and Y are channels-last, the weight stays as ONNX has it.
``output_dtype`` (ours): a Conv or ConvTranspose of narrower operands, one or both, gives its sums in this type,
unrounded."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, product
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.kinds import DataLayout, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.broadcasting import broadcast_onto, dims_of
from tilewright.graph_ir.ops.operands import match_operands, require_single
from tilewright.graph_ir.ops.shapes import (
    is_channels_last,
    list_attr,
    merge_dims,
    to_channels_first,
    to_channels_last,
    window_sizes,
)


def _conv_result(ctx: InferContext, w_index: int, dtype: DType) -> tuple[Inferred, ...]:
    last = is_channels_last(ctx)
    w = ctx.shape(w_index)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0, len(w))
    ctx.require(len(x) >= 3, "an input of rank >= 3", f"rank {len(x)}")
    ctx.require(len(w) == len(x), f"a weight of rank {len(x)}", f"rank {len(w)}")
    group = _groups(ctx, w[0])
    merge_dims(ctx, x[1], w[1] * group, broadcast=False)
    kernel = w[2:]
    declared = ctx.ints_attr("kernel_shape")
    if declared:
        ctx.require(len(declared) == len(kernel), f"a kernel_shape of {len(kernel)} sizes", declared)
        for d, k in zip(declared, kernel, strict=True):
            merge_dims(ctx, k, k * 0 + d, broadcast=False)
    out = (x[0], w[0], *window_sizes(ctx, x[2:], kernel))
    return (tensor(dtype, to_channels_last(out) if last else out),)


def _groups(ctx: InferContext, channels: IntExpr) -> int:
    """The attribute ``group``, of which these channels have a whole number each."""
    group = ctx.int_attr("group", 1)
    ctx.require(group >= 1, "group >= 1", group)
    ctx.require(not channels.is_const or channels.const % group == 0, f"channels divisible by {group}", channels)
    return group


def _conv(ctx: InferContext) -> tuple[Inferred, ...]:
    to = _sum_type(ctx)
    match_operands(ctx, ", m ..., m")
    return _conv_result(ctx, 1, to)


def _sum_type(ctx: InferContext) -> DType:
    """The type of the sums, that of the operands if none is given."""
    to = ctx.dtype_attr("output_dtype")
    ctx.require(to is not None or ctx.dtype(0) == ctx.dtype(1), f"a weight of type {ctx.dtype(0)}", ctx.dtype(1))
    return to or ctx.dtype(0)


def _conv_integer(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 2)
    _check_parameters(ctx, 1, (3,))
    return _conv_result(ctx, 1, dtypes.int32)


def _qlinear_conv(ctx: InferContext) -> tuple[Inferred, ...]:
    _check_parameters(ctx, 3, (4, 5))
    require_single(ctx, 1, 2, 6, 7)
    match_operands(ctx, ", , , m ..., , , , , m")
    return _conv_result(ctx, 3, ctx.dtype(7))


def _check_parameters(ctx: InferContext, weight: int, parameters: Sequence[int]) -> None:
    """Scales and zero points of a weight: one number, or one for each of its output channels."""
    for i in parameters:
        if ctx.has(i):
            broadcast_onto(ctx, dims_of(ctx, i), dims_of(ctx, weight)[:1])


def _conv_transpose(ctx: InferContext) -> tuple[Inferred, ...]:
    to = _sum_type(ctx)
    last = is_channels_last(ctx)
    w = ctx.shape(1)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0, len(w))
    ctx.require(len(x) >= 3 and len(w) == len(x), "an input and a weight of one rank >= 3", f"{len(x)} and {len(w)}")
    merge_dims(ctx, x[1], w[0], broadcast=False)
    group = _groups(ctx, w[0])
    match_operands(ctx, ", , m", m=w[1] * group)
    n = len(x) - 2
    strides, dilations = list_attr(ctx, "strides", n), list_attr(ctx, "dilations", n)
    extra = ctx.ints_attr("output_padding") or (0,) * n
    pads = ctx.ints_attr("pads") or (0,) * (2 * n)
    auto = ctx.str_attr("auto_pad", "NOTSET")
    given = ctx.ints_attr("output_shape")
    ctx.require(len(extra) == n, f"{n} output_padding", len(extra))
    ctx.require(len(pads) == 2 * n, f"{2 * n} pads", len(pads))
    ctx.require(all(p >= 0 for p in pads), "pads >= 0", pads)
    ctx.require(not given or len(given) >= n, f"an output_shape of {n} sizes", given)
    spatial: list[IntExpr] = []
    for i in range(n):
        if given:
            spatial.append(x[0] * 0 + given[-n:][i])
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            spatial.append(x[2 + i] * strides[i])
        else:
            reach = (w[2 + i] - 1) * dilations[i] + 1
            trim = 0 if auto == "VALID" else pads[i] + pads[n + i]
            spatial.append((x[2 + i] - 1) * strides[i] + extra[i] + reach - trim)
    out: Shape = (x[0], w[1] * group, *spatial)
    return (tensor(to, to_channels_last(out) if last else out),)


def _deform_conv(ctx: InferContext) -> tuple[Inferred, ...]:
    out = _conv_result(ctx, 1, ctx.dtype(0))
    shares = ctx.int_attr("offset_group", 1)
    ctx.require(shares >= 1, "offset_group >= 1", shares)
    if len(ctx.shape(1)) == 4:
        m, _, high, wide = ctx.shape(1)
        x = to_channels_first(ctx.shape(0)) if is_channels_last(ctx) else ctx.shape(0, 4)
        y = window_sizes(ctx, x[2:], (high, wide))
        ctx.require(not x[1].is_const or x[1].const % shares == 0, f"channels divisible by {shares}", x[1])
        places = high * wide * shares
        match_operands(ctx, ", , n o y x, m, n p y x", n=x[0], m=m, y=y[0], x=y[1], o=places * 2, p=places)
    return out


def _causal_conv(ctx: InferContext) -> tuple[Inferred, ...]:
    x, w = ctx.shape(0), ctx.shape(1)
    ctx.require(len(x) >= 1 and len(w) >= 1, "an input and a weight of rank >= 1", f"{len(x)} and {len(w)}")
    return tensor(ctx.dtype(0), x), tensor(ctx.dtype(0), (*x[:-1], w[-1] - 1))


def _col2im(ctx: InferContext) -> tuple[Inferred, ...]:
    x = ctx.shape(0, 3)
    match_operands(ctx, "n c l, d, d")
    image, block = ctx.data(1), ctx.data(2)
    if image is None or block is None:
        lengths = [d.const for d in (ctx.shape(1)[0], ctx.shape(2)[0]) if d.is_const]
        if not lengths:
            return (tensor(ctx.dtype(0), None),)
        return (tensor(ctx.dtype(0), (x[0], ctx.fresh(), *ctx.fresh_shape(lengths[0]))),)
    n = len(image)
    ctx.require(all(not b.is_const or b.const >= 1 for b in block), "a block_shape of sizes >= 1", block)
    whole = product(block)
    ctx.require(not (x[1] % whole).is_const or (x[1] % whole) == 0, f"channels divisible by {whole}", x[1])
    if len(block) == n:
        match_operands(ctx, "n c l", l=product(window_sizes(ctx, image, block)))
    return (tensor(ctx.dtype(0), (x[0], x[1] // whole, *image)),)


OPS = table(
    OpDef(
        "Conv",
        PatternKind.OUT_FUSABLE,
        _conv,
        2,
        3,
        layout=DataLayout.PREFERRED,
        window=True,
        output_dtype=True,
        arithmetic=True,
    ),
    OpDef(
        "ConvTranspose",
        PatternKind.OUT_FUSABLE,
        _conv_transpose,
        2,
        3,
        layout=DataLayout.PREFERRED,
        window=True,
        output_dtype=True,
        arithmetic=True,
    ),
    OpDef(
        "ConvInteger",
        PatternKind.OUT_FUSABLE,
        _conv_integer,
        2,
        4,
        layout=DataLayout.PREFERRED,
        window=True,
        arithmetic=True,
    ),
    OpDef("QLinearConv", PatternKind.OUT_FUSABLE, _qlinear_conv, 8, 9, window=True, arithmetic=True),
    OpDef("DeformConv", PatternKind.OPAQUE, _deform_conv, 3, 5, window=True, arithmetic=True, fold_limit=1 << 12),
    OpDef("CausalConvWithState", PatternKind.OPAQUE, _causal_conv, 2, 4, 1, 2, window=True, arithmetic=True),
    OpDef("Col2Im", PatternKind.OPAQUE, _col2im, 3, 3, arithmetic=True, fold_limit=1 << 12),
)
