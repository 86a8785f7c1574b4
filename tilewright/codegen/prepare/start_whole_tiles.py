"""Sums begin in all registers of their tile, not only in those of the rows that a partial one has.

Of a symbolic number of rows each row of the last tile is tested, when its sums begin too. What is not begun keeps what
the tile before left there, which LLVM carries along in registers. So all of it is set, wherever that is the first thing
that happens to a buffer on the stack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.codegen.prepare.assign_storage import stack_shape
from tilewright.core.arith.bounds import Ranges, loop_range, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.scopes import block_environment, blocks_in
from tilewright.tensor_ir.ir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Const,
    Func,
    Loop,
    Seq,
    Stmt,
    loads,
    map_children,
    walk,
    with_body,
)


def start_whole_tiles(func: Func, target: Target) -> Func:
    """``func`` with each written-out loop in full that sets a buffer on the stack to a constant before anything else
    uses that."""

    def visit(s: Stmt, ranges: Ranges) -> Stmt:
        if isinstance(s, Loop):
            ranges = {**ranges, s.var: loop_range(s.extent)}
        s = map_children(s, lambda c: visit(c, ranges))
        if isinstance(s, Alloc) and s.buffer.scope == "stack":
            return with_body(s, _started(s.body, s.buffer, ranges))
        return s

    body = visit(func.body, {})
    return func if body is func.body else dataclasses.replace(func, body=body)


def _started(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """``s`` with what uses ``buffer`` first in full, if all that does is to set it."""
    if isinstance(s, Alloc):
        return with_body(s, _started(s.body, buffer, ranges))
    if isinstance(s, Seq):
        first = next((n for n, c in enumerate(s.stmts) if _uses(c, buffer.name)), None)
        if first is None:
            return s
        stmts = list(s.stmts)
        stmts[first] = _started(stmts[first], buffer, ranges)
        return s if stmts[first] is s.stmts[first] else dataclasses.replace(s, stmts=tuple(stmts))
    partial = any(isinstance(x, Loop) and x.kind == "unrolled" and not x.extent.is_const for x in walk(s))
    return (_in_full(s, buffer, ranges, {}) if partial else None) or s


def _uses(s: Stmt, buffer: str) -> bool:
    return any(b.buffer == buffer or any(x.buffer == buffer for x in loads(b.value)) for b in blocks_in(s))


def _in_full(s: Stmt, buffer: Buffer, ranges: Ranges, steps: Mapping[str, IntExpr]) -> Stmt | None:
    """``s`` with all steps that its written-out loops may have; None if it does anything but to set elements that
    ``buffer`` has to a constant. ``steps``: the extents of the loops around that are in ``s``."""
    if isinstance(s, Loop):
        most = upper_bound(s.extent, ranges) if s.kind == "unrolled" else None
        full = s if most is None else dataclasses.replace(s, extent=const(most))
        inside = {**ranges, s.var: loop_range(full.extent)}
        body = _in_full(s.body, buffer, inside, {**steps, s.var: full.extent})
        return None if body is None else with_body(full, body)
    if not isinstance(s, Block) or s.buffer != buffer.name or not isinstance(s.value, Const) or s.init is not None:
        return None
    shape, env = stack_shape(buffer), block_environment(s)
    places = [simplify(i.substitute(env), ranges) for i in s.indices]
    ends = [upper_bound(i, ranges) for i in places]
    if shape is None or any(e is None or e >= n for e, n in zip(ends, shape, strict=True)):
        return None
    if any(i.free_vars() - steps.keys() for i in places) or not all(e.is_const for e in steps.values()):
        return None
    own = {loop: var(f"{loop}_") for loop in steps}
    axes = tuple(Axis(f"{loop}_", extent) for loop, extent in steps.items())
    return Block(s.name, axes, tuple(map(var, steps)), s.buffer, tuple(i.substitute(own) for i in places), s.value)
