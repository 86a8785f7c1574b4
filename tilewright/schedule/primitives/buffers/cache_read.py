"""cache_read: let a block read a copy of a buffer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, get_args

from tilewright.core.arith.expr import var
from tilewright.schedule.base import Primitive, find_buffer, refuse
from tilewright.schedule.stage_motion import (
    alloc_of,
    block_and_path,
    is_written_whole,
    map_statements,
    require_local,
    root_statement,
    sites,
    with_buffer,
)
from tilewright.tensor_ir.analysis.scopes import loads_of
from tilewright.tensor_ir.ir import Alloc, Axis, Block, Buffer, Func, Load, Loop, Scope, Stmt, seq, walk, walk_index
from tilewright.tensor_ir.loads import map_block_loads
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class CacheRead(Primitive):
    """Copy a buffer in front of a block's nest and let the block read the copy; ``compute_at`` then moves the copy.

    The copy and its block are called ``<buffer>_<scope>``.

    Rewrite:
        for i in N: B[i] = f(A[i])
        --> cache_read("B", buffer="A", scope="global")
        alloc A_global[N] global:
            for i0 in N: A_global[i0] = A[i0]
            for i in N: B[i] = f(A_global[i])

    Keeps: every value, bit for bit.
    Refuses:
        - the block or the buffer is not there
        - the scope is unknown
        - the block does not read the buffer, or writes it
        - a binding of the block reads the buffer
        - the buffer is written in the block's nest or after it
        - the buffer is allocated inside the block's nest
        - an intermediate buffer is not proved to be written whole
        - to local: the shape is not constant
        - to local: the block is inside a parallel loop
        - to local: a parallel loop stands in the block's nest
    Cost: one copy of the buffer; pays off when the copy is moved to where it is used often or with better strides.
    """

    name: ClassVar[str] = "cache_read"
    block: str
    buffer: str
    scope: Scope = "global"

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return (fresh_in(names_of(func), f"{self.buffer}_{self.scope}"),)

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        source = find_buffer(func, self.buffer, self)
        if self.scope not in get_args(Scope):
            raise refuse(self, f"expected scope global or local, got {self.scope!r}")
        if block.buffer == self.buffer or all(x.buffer != self.buffer for x in loads_of(block)):
            raise refuse(self, f"expected a block that reads {self.buffer} and does not write it")
        if any(isinstance(x, Load) and x.buffer == self.buffer for b in block.bindings for x in walk_index(b)):
            raise refuse(self, f"a binding of the block reads {self.buffer}")
        nest = root_statement(path)
        self._require_complete(func, nest, path, source)
        taken = names_of(func)
        name = fresh_in(taken, f"{self.buffer}_{self.scope}")
        copy = Buffer(name, source.dtype, source.shape, self.scope)
        loops = [fresh_in(taken, f"{name}_i{d}") for d in range(len(source.shape))]
        axes = tuple(Axis(fresh_in(taken, f"{v}_"), d) for v, d in zip(loops, source.shape, strict=True))
        index = tuple(var(a.name) for a in axes)
        stage: Stmt = Block(name, axes, tuple(map(var, loops)), name, index, Load(self.buffer, index, source.dtype))
        for v, d in reversed(list(zip(loops, source.shape, strict=True))):
            stage = Loop(v, d, stage)

        def redirect(x: Load) -> Load:
            return dataclasses.replace(x, buffer=name) if x.buffer == self.buffer else x

        changes: dict[int, Stmt] = {id(block): map_block_loads(block, redirect)}
        return with_buffer(func, nest, seq(stage, map_statements(nest, changes)), copy)

    def _require_complete(self, func: Func, nest: Stmt, path: tuple[Stmt, ...], source: Buffer) -> None:
        """Everything of the buffer must have been written before ``nest``."""
        inside = {id(s) for s in walk(nest)}
        reached = False
        for site in sites(func.body):
            reached = reached or id(site.stmt) in inside
            if reached and site.written == source.name:
                raise refuse(self, f"{site.label} writes {source.name} in the block's nest or after it")
        if any(isinstance(s, Alloc) and s.buffer.name == source.name for s in walk(nest)):
            raise refuse(self, f"{source.name} is allocated inside the block's nest")
        if alloc_of(func, source.name) is not None and not is_written_whole(func, source):
            raise refuse(self, f"{source.name} is not proved to be written whole; padding has no value to copy")
        if self.scope == "local":
            require_local(self, source.shape, path)
