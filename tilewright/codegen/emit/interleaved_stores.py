"""Vectors whose elements alternate in memory (:mod:`tilewright.codegen.prepare.interleave_stores`).

They are shuffled into that order and stored as one, which LLVM cuts into registers.
"""

from __future__ import annotations

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import FlatStore
from tilewright.codegen.emit.memory import store
from tilewright.core.arith.expr import var
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Loop


def store_interleaved(ctx: Context, flat: FlatStore, copies: Loop, lanes: Lanes) -> None:
    """Store all of ``copies``, whose elements alternate in memory."""
    count = copies.extent.value() or 0
    form = ctx.split(flat.offset, lanes)
    if form is None or form[0] != count or form[1].coefficient(copies.var) != 1:
        raise InternalError(f"codegen: the copies of {copies.var} do not alternate in {flat.buffer}")
    values = []
    for k in range(count):
        ctx.indexer.env[copies.var] = k
        ctx.lanes, ctx.memo = lanes, {}
        values.append(ctx.code.splat(evaluate(ctx, flat.value), lanes.count))
    del ctx.indexer.env[copies.var]
    wide = Lanes(lanes.var, lanes.count * count)
    ctx.lanes, ctx.memo = wide, {}
    first = form[1].substitute({copies.var: 0})
    store(ctx, flat.buffer, first + var(lanes.var), ctx.code.interleave(values))
    ctx.lanes = None


__all__ = ["store_interleaved"]
