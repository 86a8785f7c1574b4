"""cache_write: let a block write a buffer of its own, and copy that to the original."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, get_args

from tilewright.core.arith.expr import IntExpr, var
from tilewright.schedule.base import Primitive, find_buffer, refuse
from tilewright.schedule.stage_motion import (
    block_and_path,
    map_statements,
    require_local,
    require_no_guard,
    require_only_writer,
    root_statement,
    sites,
    with_buffer,
)
from tilewright.tensor_ir.analysis.scopes import loop_ranges, loops_in
from tilewright.tensor_ir.analysis.sweeps import covers_once
from tilewright.tensor_ir.ir import Alloc, Axis, Block, Func, Load, Loop, Scope, Stmt, seq, walk, walk_index
from tilewright.tensor_ir.loads import map_block_loads
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class CacheWrite(Primitive):
    """Let a block write a new buffer and copy it to the original behind the block's nest.

    The new buffer is ``<buffer>_<scope>``, the copying block ``<block>_write``. ``compute_at`` of the block then puts
    the computation into a tile of the copy.

    Rewrite:
        for i in N: for k in K: C[i] = (init 0) C[i] + A[i, k]
        --> cache_write("C", scope="global")
        alloc C_global[N] global:
            for i in N: for k in K: C_global[i] = (init 0) C_global[i] + A[i, k]
            for C_i in N: C[C_i] = C_global[C_i]

    Keeps: every value, bit for bit.
    Refuses:
        - the block is not there
        - the scope is unknown
        - another statement writes the buffer
        - the block stands under a guard
        - an axis is ordered
        - the store indices use a reduce axis or read memory
        - the block's nest does not run over the axes of the store indices once
        - the buffer is read in the block's nest by another block
        - the buffer is allocated inside the block's nest
        - to local: the shape is not constant
        - to local: the block is inside a parallel loop
    Cost: one copy of the buffer; pays off when the block is then computed in a tile of the copy.
    """

    name: ClassVar[str] = "cache_write"
    block: str
    scope: Scope = "global"

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return (fresh_in(names_of(func), f"{self.block}_write"),)

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        target = find_buffer(func, block.buffer, self)
        if self.scope not in get_args(Scope):
            raise refuse(self, f"expected scope global or local, got {self.scope!r}")
        require_only_writer(self, func, block, block.buffer)
        require_no_guard(self, path)
        nest = root_statement(path)
        used = self._require_block(block)
        self._require_covered(block, path, used)
        for site in sites(nest):
            if site.stmt is not block and site.reads(block.buffer):
                raise refuse(self, f"{site.label} reads {block.buffer} in the block's nest")
        if any(isinstance(s, Alloc) and s.buffer.name == block.buffer for s in walk(nest)):
            raise refuse(self, f"{block.buffer} is allocated inside the block's nest")
        if self.scope == "local":
            require_local(self, target.shape, path)
        taken = names_of(func)
        name, copier = fresh_in(taken, f"{block.buffer}_{self.scope}"), fresh_in(taken, f"{block.name}_write")
        axes = [a for a in block.axes if a.name in used]
        loops = [fresh_in(taken, f"{a.name.rstrip('_')}_write") for a in axes]
        new_axes = [Axis(fresh_in(taken, f"{v}_"), a.extent) for v, a in zip(loops, axes, strict=True)]
        env: dict[str, IntExpr] = {a.name: var(n.name) for a, n in zip(axes, new_axes, strict=True)}
        index = tuple(i.substitute(env) for i in block.indices)
        copy: Stmt = Block(
            copier, tuple(new_axes), tuple(map(var, loops)), block.buffer, index, Load(name, index, target.dtype)
        )
        for v, a in reversed(list(zip(loops, axes, strict=True))):
            copy = Loop(v, a.extent, copy)

        def redirect(x: Load) -> Load:
            return dataclasses.replace(x, buffer=name) if x.buffer == block.buffer else x

        changes: dict[int, Stmt] = {id(block): dataclasses.replace(map_block_loads(block, redirect), buffer=name)}
        both = seq(map_statements(nest, changes), copy)
        return with_buffer(func, nest, both, dataclasses.replace(target, name=name, scope=self.scope))

    def _require_covered(self, block: Block, path: tuple[Stmt, ...], used: frozenset[str]) -> None:
        loops = loops_in(path)
        ranges = loop_ranges(loops)
        for a, b in zip(block.axes, block.bindings, strict=True):
            if a.name in used and not covers_once(b, loops, a.extent, ranges):
                raise refuse(self, f"the block's nest is not proved to run over axis {a.name} = {b} once")

    def _require_block(self, block: Block) -> frozenset[str]:
        """The axes that the store indices use."""
        kinds = {a.name: a.kind for a in block.axes}
        for a in block.axes:
            if a.kind == "ordered":
                raise refuse(self, f"axis {a.name} is ordered, it writes elements again later")
        used: frozenset[str] = frozenset().union(*(i.free_vars() for i in block.indices)) & kinds.keys()
        reads_memory = any(True for i in block.indices for _ in walk_index(i))
        if reads_memory or any(kinds[a] == "reduce" for a in used):
            shown = ", ".join(map(str, block.indices))
            raise refuse(self, f"expected store indices in spatial axes only, got [{shown}]")
        return used
