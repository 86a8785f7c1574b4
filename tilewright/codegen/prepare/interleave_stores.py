"""Stores of a few vectors whose elements alternate in memory: planes that become the channels of pixels.

Written out, ``for c in unrolled(3): for x in vectorized(8): B[x, c] = f(c, x)`` stores 24 single elements that lie one
after the other. With the hint ``interleaved`` on its outer loop they are one store
(:mod:`tilewright.codegen.emit.copies`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.codegen.prepare.assign_storage import stack_shape
from tilewright.codegen.prepare.map_loops import map_loops
from tilewright.core.arith.bounds import Ranges, loop_range, simplify
from tilewright.core.arith.expr import IntExpr, const
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.access import linear_address
from tilewright.tensor_ir.analysis.scopes import block_environment, buffers
from tilewright.tensor_ir.analysis.streaming import streamed_blocks
from tilewright.tensor_ir.hints import Interleaved, with_hint
from tilewright.tensor_ir.ir import Block, Buffer, Func, Load, Loop, walk_expr

_MOST = 4


def interleave_stores(func: Func, target: Target) -> Func:
    """``func`` with the hint on each unrolled loop whose copies alternate in memory and may be read all before any is
    stored."""
    streamed = streamed_blocks(func)
    shapes = {b.name: _lying(b) for b in buffers(func)}

    def marked(s: Loop, ranges: Ranges, lanes: bool) -> Loop:
        inner = s.body
        if lanes or s.kind != "unrolled" or not isinstance(inner, Loop) or not isinstance(inner.body, Block):
            return s
        if inner.body.name in streamed or not _alternate(s, inner, inner.body, shapes, ranges):
            return s
        return dataclasses.replace(s, hints=with_hint(s.hints, Interleaved()))

    return map_loops(func, marked)


def is_independent(block: Block) -> bool:
    """True if no copy of a block reads what another writes."""
    if block.init is not None or any(a.kind != "spatial" for a in block.axes):
        return False
    return not any(isinstance(x, Load) and x.buffer == block.buffer for x in walk_expr(block.value))


def _alternate(outer: Loop, inner: Loop, block: Block, shapes: Mapping[str, Sequence[IntExpr]], ranges: Ranges) -> bool:
    """True if the copies of ``outer`` in a few lanes of ``inner`` store neighbours, lane by lane."""
    copies, lanes = outer.extent.value() or 0, inner.extent.value() or 0
    if inner.kind != "vectorized" or not 2 <= copies <= _MOST or lanes < 4 or lanes & (lanes - 1):
        return False
    if not is_independent(block):
        return False
    ranges = {**ranges, outer.var: loop_range(outer.extent), inner.var: loop_range(inner.extent)}
    env = {name: simplify(e, ranges) for name, e in block_environment(block).items()}
    offset = simplify(linear_address([i.substitute(env) for i in block.indices], shapes[block.buffer]), ranges)
    return offset.coefficient(inner.var) == copies and offset.substitute({inner.var: 0}).coefficient(outer.var) == 1


def _lying(b: Buffer) -> Sequence[IntExpr]:
    """The shape that gives the distances of elements in memory."""
    bounds = stack_shape(b) if b.scope == "stack" else None
    return b.shape if bounds is None else [const(n) for n in bounds]
