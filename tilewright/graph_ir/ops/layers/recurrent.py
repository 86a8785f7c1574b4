"""LSTM, GRU, RNN: the whole sequence as one operator."""

from __future__ import annotations

from tilewright.core.arith.expr import const
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, InferRule, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands
from tilewright.graph_ir.ops.shapes import merge_dims


def _recurrent(gates: int) -> InferRule:
    def infer(ctx: InferContext) -> tuple[Inferred, ...]:
        x, w, r = (ctx.shape(i, 3) for i in range(3))
        ctx.require(len(x) == 3, "an input of rank 3", f"rank {len(x)}")
        ctx.require(len(w) == 3 and len(r) == 3, "weights of rank 3", f"ranks {len(w)} and {len(r)}")
        batch_first = ctx.int_attr("layout")
        steps, batch = (x[1], x[0]) if batch_first else (x[0], x[1])
        hidden = merge_dims(ctx, r[2], w[1] // gates, broadcast=False)
        declared = ctx.int_attr("hidden_size")
        if declared:
            merge_dims(ctx, hidden, const(declared), broadcast=False)
        merge_dims(ctx, x[2], w[2], broadcast=False)
        directions = const(2 if ctx.str_attr("direction", "forward") == "bidirectional" else 1)
        merge_dims(ctx, w[0], directions, broadcast=False)
        state = "b d h" if batch_first else "d b h"
        forms = f", d {gates}h i, d {gates}h h, d {2 * gates}h, b, {state}, {state}, d 3h"
        match_operands(ctx, forms, b=batch, d=directions, h=hidden)
        dt = ctx.dtype(0)
        if batch_first:
            last = tensor(dt, (batch, directions, hidden))
            return tensor(dt, (batch, steps, directions, hidden)), last, last
        last = tensor(dt, (directions, batch, hidden))
        return tensor(dt, (steps, directions, batch, hidden)), last, last

    return infer


OPS = table(
    OpDef("LSTM", PatternKind.OPAQUE, _recurrent(4), 3, 8, 1, 3, arithmetic=True, fold_limit=1 << 16),
    OpDef("GRU", PatternKind.OPAQUE, _recurrent(3), 3, 6, 1, 2, arithmetic=True, fold_limit=1 << 16),
    OpDef("RNN", PatternKind.OPAQUE, _recurrent(1), 3, 6, 1, 2, arithmetic=True, fold_limit=1 << 16),
)
