"""Copies of a statement that compute a long function at once, so that their operations alternate.

A function like exp is twenty operations of which each waits for the one before. Copies that are written out one after
the other fill the window in which a processor looks for work with operations that wait; where the same operation of
several copies comes together, they go on side by side. So the arguments are read copy by copy, put side by side in one
vector, which LLVM cuts into registers again, and the results are stored copy by copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import FlatStore
from tilewright.codegen.llvm.builder import Value
from tilewright.tensor_ir.ir import Block, Const, Expr, Load, Loop, Op, Select, expr_children, walk_expr
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_LONG = 12
"""Arithmetic operations of a function from which on it is long."""


Nest: TypeAlias = tuple[list[Loop], Loop, Block]
"""Unrolled loops, the vectorized one inside them, and its block."""


def slp_nest(s: Loop) -> Nest | None:
    """The nest that begins with ``s`` if its copies may be joined; else None."""
    unrolled: list[Loop] = []
    inner: object = s
    while isinstance(inner, Loop) and inner.kind == "unrolled" and inner.extent.is_const:
        unrolled.append(inner)
        inner = inner.body
    if not isinstance(inner, Loop) or inner.kind != "vectorized" or not isinstance(inner.body, Block):
        return None
    lanes, block = inner.extent.value(), inner.body
    if lanes is None or lanes < 2 or lanes & (lanes - 1):
        return None
    if not _is_long(block.value) or not is_independent(block):
        return None
    allows = any(isinstance(x, Select) and _is_long(x) for x in walk_expr(block.value))
    return None if allows else (unrolled, inner, block)  # a select around a function says what may be read


def is_independent(block: Block) -> bool:
    """True if no copy of a block reads what another writes."""
    if block.init is not None or any(a.kind != "spatial" for a in block.axes):
        return False
    return not any(isinstance(x, Load) and x.buffer == block.buffer for x in walk_expr(block.value))


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
    arguments = list(_arguments(flat.value))
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


def _arguments(e: Expr) -> Iterator[Expr]:
    """The largest parts of a value without a long function, but for constants; of a product its factors, as it may
    become one with an addition."""
    if _is_long(e) or (isinstance(e, Op) and e.name == "mul"):
        for c in expr_children(e):
            yield from _arguments(c)
    elif not isinstance(e, Const):
        yield e


def _is_long(e: Expr) -> bool:
    return any(isinstance(x, Op) and SCALAR_OPS[x.name].flops >= _LONG for x in walk_expr(e))


__all__ = ["Nest", "copies_of", "is_independent", "slp_nest", "slp_values"]
