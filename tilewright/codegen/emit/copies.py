"""Copies of a block in a loop that is written out, computed at once.

Those whose elements alternate in memory (:mod:`tilewright.codegen.prepare.interleave_stores`) are shuffled into that
order and stored as one. Of those that are joined (:mod:`tilewright.codegen.prepare.join_calls`) the arguments are read
copy by copy and put side by side in one vector; the results are stored copy by copy. LLVM cuts wide vectors into
registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import FlatStore
from tilewright.codegen.emit.memory import store
from tilewright.codegen.llvm.builder import Value
from tilewright.codegen.prepare.byte_look_ups import looked_up_byte
from tilewright.codegen.prepare.join_calls import is_long
from tilewright.core.arith.expr import var
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Const, Expr, Load, Loop, Op, expr_children


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


def copies_of(unrolled: Sequence[Loop], most: int) -> Iterator[list[dict[str, int]]]:
    """The values of the unrolled variables in each copy, in order, in groups of those that are joined: a power of two
    each, ``most`` or less."""
    names = [x.var for x in unrolled]
    left = [dict(zip(names, at, strict=True)) for at in product(*(range(x.extent.value() or 0) for x in unrolled))]
    size = most
    while left:
        while size > len(left):
            size //= 2
        yield left[:size]
        left = left[size:]


def slp_values(ctx: Context, flat: FlatStore, lanes: Lanes, copies: Sequence[Mapping[str, int]]) -> list[Value]:
    """What each of the copies stores."""
    code, n = ctx.code, lanes.count
    arguments = list(_arguments(ctx, flat.value, lanes))
    found: list[list[Value]] = []
    for at in copies:
        ctx.indexer.env.update(at)
        ctx.lanes, ctx.memo = lanes, {}
        found.append([evaluate(ctx, e) for e in arguments])
    ctx.memo = {}
    for e, values in zip(arguments, zip(*found, strict=True), strict=True):
        uniform = all(v == values[0] and not v.lanes for v in values)
        ctx.memo[id(e)] = values[0] if uniform else _side_by_side(ctx, values, n)
    wide = code.splat(evaluate(ctx, flat.value), n * len(copies))
    ctx.lanes, ctx.memo = None, {}
    return [code.shuffle(wide, None, range(k * n, (k + 1) * n)) for k in range(len(copies))]


def _side_by_side(ctx: Context, values: Sequence[Value], lanes: int) -> Value:
    """The lanes of all values in one vector."""
    parts = [ctx.code.splat(v, lanes) for v in values]  # as many as a power of two
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [ctx.code.shuffle(a, b, range(a.lanes + b.lanes)) for a, b in pairs]
    return parts[0]


def _arguments(ctx: Context, e: Expr, lanes: Lanes) -> Iterator[Expr]:
    """The largest parts of a value without a long function or a look-up, but for constants; of a product its factors,
    as it may become one with an addition."""
    if isinstance(e, Load):
        place = _place(ctx, e) if lanes.var in e.indices[0].free_vars() else None
        if place is None:
            yield e
        else:
            yield from _arguments(ctx, ctx.flattener.value(place), lanes)
    elif is_long(e, lambda x: _place(ctx, x) is not None) or (isinstance(e, Op) and e.name == "mul"):
        for c in expr_children(e):
            yield from _arguments(ctx, c, lanes)
    elif not isinstance(e, Const):
        yield e


def _place(ctx: Context, e: Load) -> Expr | None:
    info = ctx.buffers[e.buffer]
    return looked_up_byte(ctx.target, info.dtype, info.capacity, e.indices[0])


__all__ = ["copies_of", "slp_values", "store_interleaved"]
