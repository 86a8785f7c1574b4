"""Images: Resize, sampling grids, and moves between depth and space.

``data_layout`` NHWC (ours) is known to Resize, DepthToSpace and SpaceToDepth. Resize's scales, sizes and axes then
still count in N, C, spatial order, as in ONNX.
"""

from __future__ import annotations

import math

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.limits import MAX_ELEMENTS
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.kinds import DataLayout, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands
from tilewright.graph_ir.ops.shapes import is_channels_last, to_channels_first, to_channels_last
from tilewright.reference.spatial.resize import scaled_size


def _resize(ctx: InferContext) -> tuple[Inferred, ...]:
    last = is_channels_last(ctx)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0)
    axes = tuple(ctx.normal_axis(a, len(x)) for a in ctx.ints_attr("axes") or range(len(x)))
    ctx.require(len(set(axes)) == len(axes), "axes that differ", ctx.ints_attr("axes"))
    out = list(x)
    has_sizes = ctx.has(3) and ctx.count(3) != 0
    has_scales = ctx.has(2) and ctx.count(2) != 0
    ctx.require(has_sizes or has_scales, "scales or sizes", "neither")
    both = has_sizes and ctx.has(2) and ctx.count(2) not in (0, None)
    ctx.require(not both, "scales or sizes", "both")
    match_operands(ctx, ", , , k" if has_sizes else ", , k", k=len(axes))
    if ctx.str_attr("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        match_operands(ctx, ", r", r=2 * len(axes))
    if has_sizes:
        sizes = ctx.data(3)
        if sizes is None:
            for a in axes:
                out[a] = ctx.fresh()
        else:
            ctx.require(len(sizes) == len(axes), f"{len(axes)} sizes", len(sizes))
            for a, s in zip(axes, _kept_ratio(ctx, [x[a] for a in axes], sizes), strict=True):
                out[a] = s
    else:
        scales = _known_scales(ctx, len(axes))
        whole = ctx.data(2)
        ctx.require(whole is None or len(whole) == len(axes), f"{len(axes)} scales", whole)
        for k, a in enumerate(axes):
            if scales is not None:
                out[a] = _scaled(ctx, x[a], scales[k])
            elif whole is not None:
                out[a] = x[a] * whole[k]
            else:
                out[a] = ctx.fresh()
    return (tensor(ctx.dtype(0), to_channels_last(tuple(out)) if last else out),)


def _known_scales(ctx: InferContext, count: int) -> list[float] | None:
    array = ctx.constant(2)
    if array is None:
        return None
    scales = [float(v) for v in array.reshape(-1)]
    ctx.require(len(scales) == count, f"{count} scales", len(scales))
    ctx.require(all(0 < v < math.inf for v in scales), "finite scales > 0", scales)
    return scales


def _kept_ratio(ctx: InferContext, dims: list[IntExpr], sizes: Shape) -> Shape:
    policy = ctx.str_attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes
    if any(not d.is_const for d in (*dims, *sizes)):
        return tuple(ctx.fresh() for _ in sizes)
    ratios = [s.const / d.const for s, d in zip(sizes, dims, strict=True) if d.const]
    scale = (min if policy == "not_larger" else max)(ratios, default=1.0)
    return tuple(const(math.floor(scale * d.const + 0.5)) for d in dims)


def _scaled(ctx: InferContext, d: IntExpr, scale: float) -> IntExpr:
    """``floor(d * scale)`` in float32 as the scales are, symbolically where the scale or its inverse is whole."""
    v = d.value()
    if v is not None:
        ctx.require(v * scale <= MAX_ELEMENTS, f"scales that give sizes up to {MAX_ELEMENTS}", scale)
        return const(scaled_size(v, scale))
    if scale == int(scale):
        return d * int(scale)
    if scale > 0 and 1 / scale == int(1 / scale):
        return d // int(1 / scale)
    return ctx.fresh()


def _grid_sample(ctx: InferContext) -> tuple[Inferred, ...]:
    x, grid = ctx.shape(0), ctx.shape(1)
    ctx.require(len(grid) == len(x) >= 3, "an input and a grid of one rank >= 3", f"ranks {len(x)} and {len(grid)}")
    match_operands(ctx, "n c ..., n ... d", d=len(x) - 2)
    return (tensor(ctx.dtype(0), (*x[:2], *grid[1:-1])),)


def _affine_grid(ctx: InferContext) -> tuple[Inferred, ...]:
    size = ctx.data(1)
    if size is None:
        theta = ctx.tensor_type(0).shape
        columns = theta[2].value() if theta is not None and len(theta) == 3 else None
        size = tuple(ctx.fresh_shape(ctx.shape(1, 1)[0].value() or (columns or 3) + 1))
    ctx.require(len(size) in (4, 5), "a size of 4 or 5 numbers", len(size))
    match_operands(ctx, "n r c, d", n=size[0], r=len(size) - 2, c=len(size) - 1)
    return (tensor(ctx.dtype(0), (size[0], *size[2:], const(len(size) - 2))),)


def _blocks(ctx: InferContext) -> tuple[Shape, int, bool]:
    last = is_channels_last(ctx)
    x = to_channels_first(ctx.shape(0)) if last else ctx.shape(0, 4)
    ctx.require(len(x) == 4, "an input of rank 4", f"rank {len(x)}")
    b = ctx.int_attr("blocksize")
    ctx.require(b >= 1, "blocksize >= 1", b)
    return x, b, last


def _depth_to_space(ctx: InferContext) -> tuple[Inferred, ...]:
    (n, c, h, w), b, last = _blocks(ctx)
    ctx.require(not c.is_const or c.const % (b * b) == 0, f"channels divisible by {b * b}", c)
    out = (n, c // (b * b), h * b, w * b)
    return (tensor(ctx.dtype(0), to_channels_last(out) if last else out),)


def _space_to_depth(ctx: InferContext) -> tuple[Inferred, ...]:
    (n, c, h, w), b, last = _blocks(ctx)
    out = (n, c * (b * b), h // b, w // b)
    return (tensor(ctx.dtype(0), to_channels_last(out) if last else out),)


def _image_decoder(ctx: InferContext) -> tuple[Inferred, ...]:
    channels = 1 if ctx.str_attr("pixel_format", "RGB") == "Grayscale" else 3
    return (tensor(dtypes.uint8, (ctx.fresh(), ctx.fresh(), const(channels))),)


OPS = table(
    OpDef(
        "Resize",
        PatternKind.OPAQUE,
        _resize,
        1,
        4,
        shape_operands=(1, 2, 3),
        layout=DataLayout.SUPPORTED,
        arithmetic=True,
    ),
    OpDef("GridSample", PatternKind.OPAQUE, _grid_sample, 2, 2, arithmetic=True, fold_limit=1 << 12),
    OpDef("AffineGrid", PatternKind.OPAQUE, _affine_grid, 2, 2, shape_operands=(1,), arithmetic=True),
    OpDef("DepthToSpace", PatternKind.INJECTIVE, _depth_to_space, 1, 1, layout=DataLayout.SUPPORTED),
    OpDef("SpaceToDepth", PatternKind.INJECTIVE, _space_to_depth, 1, 1, layout=DataLayout.SUPPORTED),
    OpDef("ImageDecoder", PatternKind.HOST, _image_decoder, 1, 1, host="decodes a compressed image", fold_limit=0),
)
