"""Copies of a statement that compute a long function at once, so that their operations alternate.

A function like exp is twenty operations of which each waits for the one before. Copies that are written out one after
the other fill the window in which a processor looks for work with operations that wait; where the same operation of
several copies comes together, they go on side by side. A look-up in a table of bytes takes as long for a few bytes as
for a register full, so copies fill it together. The hint ``joined`` on the outermost of the loops that are written out
says how many (:mod:`tilewright.codegen.emit.copies`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from tilewright.codegen.prepare.byte_look_ups import looked_up_byte
from tilewright.codegen.prepare.interleave_stores import is_independent
from tilewright.codegen.prepare.map_loops import map_loops
from tilewright.core.arith.bounds import Ranges
from tilewright.core.arith.expr import product
from tilewright.machine.target import Target
from tilewright.machine.vectors import shuffled_bytes
from tilewright.tensor_ir.analysis.access import linear_address
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.hints import Joined, with_hint
from tilewright.tensor_ir.ir import Block, Expr, Func, Index, Load, Loop, Op, Select, Stmt, walk_expr
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_LONG = 12
"""Arithmetic operations of a function from which on it is long."""

Nest: TypeAlias = tuple[list[Loop], Loop, Block]
"""Unrolled loops, the vectorized one inside them, and its block."""


def join_calls(func: Func, target: Target) -> Func:
    """``func`` with the hint on each nest whose copies may be joined."""
    tables = {b.name: b for b in buffers(func)}

    def is_look_up(x: Load) -> bool:
        table = tables[x.buffer]
        offset = linear_address(x.indices, table.shape)
        return looked_up_byte(target, table.dtype, product(table.shape).value(), offset) is not None

    def marked(s: Loop, ranges: Ranges, lanes: bool) -> Loop:
        most = 1 if lanes else _copies(s, target, is_look_up)
        return dataclasses.replace(s, hints=with_hint(s.hints, Joined(most))) if most > 1 else s

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


def is_long(e: Expr, is_look_up: Callable[[Load], bool]) -> bool:
    """True if a value has a long function or a look-up in it."""
    return any(_is_function(x) or (isinstance(x, Load) and is_look_up(x)) for x in walk_expr(e))


def _is_function(e: Expr) -> bool:
    return isinstance(e, Op) and SCALAR_OPS[e.name].flops >= _LONG


def _copies(s: Loop, target: Target, is_look_up: Callable[[Load], bool]) -> int:
    """How many copies of what ``s`` writes out may be computed at once."""
    nest = unrolled_nest(s)
    if nest is None:
        return 1
    _, inner, block = nest
    lanes = inner.extent.value() or 0
    if lanes < 2 or lanes & (lanes - 1) or not is_independent(block) or not is_long(block.value, is_look_up):
        return 1
    for x in walk_expr(block.value):
        # operands of functions are read first: a select around one says what may be read, an index is of one copy
        apart = isinstance(x, Select | Index) or (isinstance(x, Load) and not is_look_up(x))
        if apart and is_long(x, is_look_up):
            return 1
    functions = any(map(_is_function, walk_expr(block.value)))
    return target.costs.joined_calls if functions else shuffled_bytes(target) // lanes
