"""A statement copied under fresh names, so that names stay unique in a function."""

from __future__ import annotations

import dataclasses

from tilewright.core.arith.expr import IntExpr, var
from tilewright.schedule.base import substitute_stmt
from tilewright.tensor_ir.ir import Alloc, Block, Loop, Stmt, map_children, walk
from tilewright.tensor_ir.loads import rename_buffers
from tilewright.tensor_ir.names import fresh_in


def fresh_copy(s: Stmt, suffix: str, taken: set[str]) -> Stmt:
    """``s`` with every loop, block and buffer that it declares renamed by ``suffix``; ``taken`` gains the new names."""
    loops: dict[str, IntExpr] = {}
    blocks: dict[str, str] = {}
    buffers: dict[str, str] = {}
    for x in walk(s):
        if isinstance(x, Loop):
            loops[x.var] = var(fresh_in(taken, x.var + suffix))
        elif isinstance(x, Block):
            blocks[x.name] = fresh_in(taken, x.name + suffix)
        elif isinstance(x, Alloc):
            buffers[x.buffer.name] = fresh_in(taken, x.buffer.name + suffix)
    s = rename_buffers(s, buffers)
    s = substitute_stmt(s, loops)

    def visit(x: Stmt) -> Stmt:
        x = map_children(x, visit)
        if isinstance(x, Loop):
            return dataclasses.replace(x, var=str(loops[x.var]))
        if isinstance(x, Block):
            return dataclasses.replace(x, name=blocks[x.name])
        return x

    return visit(s)
