"""Vector loads at indices that run up to a limit and stay there: ``min(i, n - 1)`` along the lanes.

So an operand is read that is repeated where its size turns out to be 1: the limit is 0 then, else the end of the loop,
and which of the two is known before the loop only. Lanes up to the limit are one masked load, the others the element
at the limit, which is the one that the last lane reads.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.llvm.builder import Value
from tilewright.core.arith.expr import IntExpr, of_atom
from tilewright.core.arith.minmax import Min, maximum, minimum


class Limited(NamedTuple):
    """An index ``rest + min(first + lane, limit)``; ``last``: in the last lane of all that are on."""

    rest: IntExpr
    first: IntExpr
    limit: IntExpr
    last: IntExpr


def limited_index(ctx: Context, index: IntExpr, lanes: Lanes) -> Limited | None:
    """``index`` in that form; None where it is another, or some lane in the middle may be off."""
    if lanes.mask is not None and (not lanes.tail or lanes.extent is None):
        return None
    moving = [(mono, c) for mono, c in index.terms if any(lanes.var in a.free_vars() for a in mono)]
    if len(moving) != 1 or moving[0][1] != 1 or len(moving[0][0]) != 1:
        return None
    atom = moving[0][0][0]
    if not isinstance(atom, Min):
        return None
    running = [x for x in atom.args if lanes.var in x.free_vars()]
    form = ctx.split(running[0], lanes) if len(running) == 1 else None
    if form is None or form[0] != 1:
        return None
    limit = minimum(*(x for x in atom.args if x is not running[0]))
    end = lanes.extent if lanes.mask is not None and lanes.extent is not None else lanes.first + lanes.count
    return Limited(index - of_atom(atom), form[1], limit, index.substitute({lanes.var: end - 1}))


def lanes_below(ctx: Context, index: Limited, lanes: Lanes) -> Value:
    """The lanes that are on and not beyond the limit."""
    code = ctx.code
    last = maximum(minimum(index.limit - index.first, lanes.count), -1)  # a narrow number
    bound = code.resize(Value("i64", 0, ctx.indexer.operand(last)), "i32", True)
    below = code.compare("sle", code.lane_numbers(lanes.count), bound)
    return below if lanes.mask is None else code.binary("and", lanes.mask, below)
