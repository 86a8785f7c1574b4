"""Stores of a few vectors whose elements alternate in memory: planes that become the channels of pixels.

Written out, ``for c in unrolled(3): for x in vectorized(8): B[x, c] = f(c, x)`` stores 24 single elements that lie one
after the other. The vectors are shuffled into that order instead and stored as one, which LLVM cuts into registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import FlatStore
from tilewright.codegen.emit.memory import store
from tilewright.codegen.emit.slp_calls import is_independent
from tilewright.codegen.llvm.builder import Code, Value
from tilewright.core.arith.expr import var
from tilewright.tensor_ir.ir import Block, Loop

_MOST = 4


def interleaved_nest(s: Loop) -> tuple[Loop, Block] | None:
    """The vectorized loop inside the unrolled loop ``s``, and its block, if all copies may be read before any is
    stored; else None."""
    inner = s.body
    if s.kind != "unrolled" or not isinstance(inner, Loop) or inner.kind != "vectorized":
        return None
    copies, lanes, block = s.extent.value() or 0, inner.extent.value() or 0, inner.body
    if not 2 <= copies <= _MOST or lanes < 4 or lanes & (lanes - 1) or not isinstance(block, Block):
        return None
    return (inner, block) if is_independent(block) else None


def store_interleaved(ctx: Context, flat: FlatStore, copies: Loop, lanes: Lanes) -> bool:
    """Store all of ``copies`` if they alternate in memory; False, and nothing done, if not."""
    count = copies.extent.value() or 0
    form = ctx.split(flat.offset, lanes)
    if form is None or form[0] != count or form[1].coefficient(copies.var) != 1:
        return False
    values = []
    for k in range(count):
        ctx.indexer.env[copies.var] = k
        ctx.lanes, ctx.memo = lanes, {}
        values.append(ctx.code.splat(evaluate(ctx, flat.value), lanes.count))
    del ctx.indexer.env[copies.var]
    wide = Lanes(lanes.var, lanes.count * count)
    ctx.lanes, ctx.memo = wide, {}
    first = form[1].substitute({copies.var: 0})
    store(ctx, flat.buffer, first + var(lanes.var), _alternate(ctx.code, values))
    ctx.lanes = None
    return True


def _alternate(code: Code, values: Sequence[Value]) -> Value:
    """The first lane of each of two to four values, then the second of each, and so on."""
    n = values[0].lanes
    pairs = [
        code.shuffle(values[k], values[min(k + 1, len(values) - 1)], range(2 * n)) for k in range(0, len(values), 2)
    ]
    order = [k * n + lane for lane in range(n) for k in range(len(values))]
    return code.shuffle(pairs[0], pairs[1] if len(pairs) > 1 else None, order)


__all__ = ["interleaved_nest", "store_interleaved"]
