"""Operators that ONNX does not have, made by graph passes.

FusedAttention(Q, K, V [, mask]) {scale, causal, nan_rows_to_zero}
    ``softmax(scale * Q @ K^T + mask) @ V`` over the last axis. Q[..., S, D], K[..., T, D], V[..., T, Dv]; the leading
    dims broadcast; ``mask`` is added and broadcasts to [..., S, T]; ``causal`` 1 hides key t from query s when
    ``t > s + T - S``. A row whose scores are all -inf gives NaN, as Softmax does; with ``nan_rows_to_zero`` 1, weights
    of 0 take the place of weights that are NaN, which are those of whole rows. Result [..., S, Dv].

The attribute ``data_layout`` ("NCHW", the default, or "NHWC") is ours too; it is known to Conv, ConvTranspose, the
pools, BatchNormalization, InstanceNormalization, Resize, DepthToSpace and SpaceToDepth.
"""

from __future__ import annotations

from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.shapes import broadcast_shapes, merge_dims


def _attention(ctx: InferContext) -> tuple[Inferred, ...]:
    q, k, v = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    ctx.require(min(len(q), len(k), len(v)) >= 2, "inputs of rank >= 2", f"{len(q)}, {len(k)}, {len(v)}")
    merge_dims(ctx, q[-1], k[-1], broadcast=False)
    keys = merge_dims(ctx, k[-2], v[-2], broadcast=False)
    batch = broadcast_shapes(ctx, [q[:-2], k[:-2], v[:-2]])
    if ctx.has(3):
        broadcast_shapes(ctx, [(*batch, q[-2], keys), ctx.shape(3)])
    return (tensor(ctx.dtype(0), (*batch, q[-2], v[-1])),)


OPS = table(OpDef("FusedAttention", PatternKind.OUT_FUSABLE, _attention, 3, 4, own=True))
