"""Operators that ONNX does not have, made by graph passes.

FusedAttention(Q, K, V [, mask]) {scale, causal, nan_rows_to_zero}
    ``softmax(scale * Q @ K^T + mask) @ V`` over the last axis. Q[..., S, D], K[..., T, D], V[..., T, Dv]; the leading
    dims broadcast; ``mask`` is added and broadcasts to [..., S, T]; ``causal`` 1 hides key t from query s when
    ``t > s + T - S``. A row whose scores are all -inf gives NaN, as Softmax does; with ``nan_rows_to_zero`` 1, weights
    of 0 take the place of weights that are NaN, which are those of whole rows. Result [..., S, Dv].

MatMulDequantized(x, w, scale [, zero_point])
    ``x @ ((w - zero_point) * scale)``: ``w[K, N]`` of at most 8 bits, ``scale`` and ``zero_point`` ``[B, N]``, a number
    for each of the B blocks of ``K / B`` neighbours in a column. Result as MatMul's, in the type of ``x``.

LookUp(q, table)
    ``table[q]``, element by element: ``q`` of bytes, ``table[256]``; where ``q`` is int8, ``table[q + 256]`` for a
    ``q`` below 0, so that a byte's bits are the index. Result of ``q``'s shape, in the type of ``table``.

CommonSizes(x0, x1, ...) {axes, operands, dims}
    The last sizes of a shape to repeat an operand to, as int64: element ``axes[k]`` is what the sizes of
    ``x[operands[k]]`` along ``dims[k]`` broadcast to, over all ``k`` with that axis; elements without any are 1.
BroadcastTo(x, sizes)
    ``x`` repeated along each axis whose element of ``sizes`` (one for each axis of ``x``) is not 1.

The attribute ``output_dtype`` of Conv, ConvTranspose, MatMul, MatMulDequantized and FusedAttention is ours: they give
sums of narrower operands in this type, unrounded.

``split_operands`` 1 of Conv, ConvTranspose and MatMul: each operand of float32 may be taken for the sum of two bfloat16
numbers.

So is ``flush`` 1 of a Cast from float32 to bfloat16: numbers below the normal ones may become 0.

The attribute ``in_place`` 1 says that a result takes the memory of the operand that it updates (the trait ``updates``).

The attribute ``data_layout`` ("NCHW", the default, or "NHWC") is ours too; operators with the trait ``layout`` know it.
"""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.layers.linear import matmul_shape
from tilewright.graph_ir.ops.shapes import broadcast_shapes, common_size, merge_dims


def _attention(ctx: InferContext) -> tuple[Inferred, ...]:
    q, k, v = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    ctx.require(min(len(q), len(k), len(v)) >= 2, "inputs of rank >= 2", f"{len(q)}, {len(k)}, {len(v)}")
    merge_dims(ctx, q[-1], k[-1], broadcast=False)
    keys = merge_dims(ctx, k[-2], v[-2], broadcast=False)
    batch = broadcast_shapes(ctx, [q[:-2], k[:-2], v[:-2]])
    if ctx.has(3):
        broadcast_shapes(ctx, [(*batch, q[-2], keys), ctx.shape(3)])
    return (tensor(ctx.dtype_attr("output_dtype") or ctx.dtype(0), (*batch, q[-2], v[-1])),)


def _matmul_dequantized(ctx: InferContext) -> tuple[Inferred, ...]:
    w, scale = ctx.shape(1, 2), ctx.shape(2, 2)
    merge_dims(ctx, w[1], scale[1], broadcast=False)
    for i in range(2, 4 if ctx.has(3) else 3):
        ctx.require(ctx.shape(i, 2) == scale, f"shape {scale} of the scale", ctx.shape(i, 2))
    blocks, depth = scale[0].value(), w[0].value()
    ctx.require(bool(blocks and depth and depth % blocks == 0), "blocks of one size", f"{scale[0]} of {w[0]}")
    return (tensor(ctx.dtype_attr("output_dtype") or ctx.dtype(0), matmul_shape(ctx, 0, 1)),)


def _look_up(ctx: InferContext) -> tuple[Inferred, ...]:
    ctx.require(ctx.dtype(0) in (dtypes.int8, dtypes.uint8), "bytes as input 0", ctx.dtype(0))
    ctx.require(ctx.shape(1, 1) == (const(256),), "a table of 256 elements", ctx.shape(1, 1))
    return (Inferred(TensorType(ctx.dtype(1), ctx.tensor_type(0).shape)),)


def _look_up_type(ctx: InferContext) -> tuple[dtypes.DType, ...]:
    return (ctx.dtype(1),)


def _common_sizes(ctx: InferContext) -> tuple[Inferred, ...]:
    axes, operands, dims = (ctx.ints_attr(key) or () for key in ("axes", "operands", "dims"))
    rank = ctx.int_attr("rank")
    ctx.require(all(0 <= a < rank for a in axes), f"axes in [0, {rank})", axes)
    sizes: list[list[IntExpr]] = [[] for _ in range(rank)]
    for a, i, d in zip(axes, operands, dims, strict=True):
        sizes[a].append(ctx.shape(i)[d])
    return (tensor(dtypes.int64, [rank], [common_size(*s) for s in sizes]),)


def _broadcast_to(ctx: InferContext) -> tuple[Inferred, ...]:
    x, sizes = ctx.shape(0), ctx.data(1)
    if sizes is None or len(sizes) != len(x):
        ctx.error(f"{len(x)} known sizes", "none" if sizes is None else f"{len(sizes)}")
    return (tensor(ctx.dtype(0), [d if s == 1 else s for d, s in zip(x, sizes, strict=True)]),)


OPS = table(
    OpDef("FusedAttention", PatternKind.OUT_FUSABLE, _attention, 3, 4, own=True, output_dtype=True, arithmetic=True),
    OpDef(
        "MatMulDequantized",
        PatternKind.OUT_FUSABLE,
        _matmul_dequantized,
        3,
        4,
        own=True,
        output_dtype=True,
        arithmetic=True,
    ),
    OpDef("LookUp", PatternKind.BROADCAST, _look_up, 2, 2, own=True, mixed_operands=True, dtypes=_look_up_type),
    OpDef("CommonSizes", PatternKind.HOST, _common_sizes, 1, None, host="reads sizes only", own=True),
    OpDef(
        "BroadcastTo",
        PatternKind.BROADCAST,
        _broadcast_to,
        2,
        2,
        own=True,
        shape_operands=(1,),
        mixed_operands=True,
        cost=ElementCost.LOAD,
    ),
)
