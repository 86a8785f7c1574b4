"""Copies of a statement that compute a long function at once, so that their operations alternate.

A function like exp is twenty operations of which each waits for the one before. Copies that are written out one after
the other fill the window in which a processor looks for work with operations that wait; where the same operation of
several copies comes together, they go on side by side. The hint ``joined`` on the outermost of the loops that are
written out says how many (:mod:`tilewright.codegen.emit.slp_calls`).
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from tilewright.codegen.prepare.interleave_stores import is_independent
from tilewright.codegen.prepare.map_loops import map_loops
from tilewright.core.arith.bounds import Ranges
from tilewright.machine.target import Target
from tilewright.tensor_ir.hints import Joined, with_hint
from tilewright.tensor_ir.ir import Block, Expr, Func, Loop, Op, Select, Stmt, walk_expr
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_LONG = 12
"""Arithmetic operations of a function from which on it is long."""

Nest: TypeAlias = tuple[list[Loop], Loop, Block]
"""Unrolled loops, the vectorized one inside them, and its block."""


def join_calls(func: Func, target: Target) -> Func:
    """``func`` with the hint on each nest whose copies may be joined."""
    hint = Joined(target.costs.joined_calls)

    def marked(s: Loop, ranges: Ranges, lanes: bool) -> Loop:
        return dataclasses.replace(s, hints=with_hint(s.hints, hint)) if not lanes and _may_be_joined(s) else s

    return map_loops(func, marked)


def unrolled_nest(s: Loop) -> Nest | None:
    """The loops that are written out from ``s`` on, down to a vectorized one of a constant extent, and its block."""
    unrolled: list[Loop] = []
    inner: Stmt = s
    while isinstance(inner, Loop) and inner.kind == "unrolled" and inner.extent.is_const:
        unrolled.append(inner)
        inner = inner.body
    if not unrolled or not isinstance(inner, Loop) or inner.kind != "vectorized" or not inner.extent.is_const:
        return None
    return (unrolled, inner, inner.body) if isinstance(inner.body, Block) else None


def is_long(e: Expr) -> bool:
    """True if a value has a long function in it."""
    return any(isinstance(x, Op) and SCALAR_OPS[x.name].flops >= _LONG for x in walk_expr(e))


def _may_be_joined(s: Loop) -> bool:
    nest = unrolled_nest(s)
    if nest is None:
        return False
    _, inner, block = nest
    lanes = inner.extent.value() or 0
    if lanes < 2 or lanes & (lanes - 1) or not is_long(block.value) or not is_independent(block):
        return False
    # a select around a function says what may be read
    return not any(isinstance(x, Select) and is_long(x) for x in walk_expr(block.value))
