"""compute_inline: substitute a stage into everything that reads it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import loop_range
from tilewright.schedule.base import Primitive, refuse, replace_stmt, require_open, simplify_expr
from tilewright.schedule.stage_motion import (
    block_and_path,
    drop_alloc,
    map_statements,
    plain_axes,
    require_inputs_reach,
    require_intermediate,
    require_no_guard,
    sites,
)
from tilewright.tensor_ir.analysis.scopes import block_path, loads_of
from tilewright.tensor_ir.ir import Block, Expr, Func, Load, Stmt, substitute_expr, walk_index
from tilewright.tensor_ir.loads import map_block_loads


@dataclass(frozen=True, slots=True)
class ComputeInline(Primitive):
    """Compute an elementwise stage where it is read instead of storing it; its nest and its buffer go.

    Rewrite:
        for i in N: B[i] = f(A[i])
        for i in N: C[i] = g(B[i])
        --> compute_inline("B")
        for i in N: C[i] = g(f(A[i]))

    Keeps: every value, bit for bit; readers may be several, and may be reductions.
    Refuses:
        - the block is not there
        - the block writes a parameter
        - another statement writes the buffer
        - an axis is a reduction or ordered
        - the store indices are not the block's axes, each once
        - the block reads its own buffer
        - the block stands under a guard
        - nothing reads the buffer
        - a reader is not a block, or reads the buffer in a binding
        - a reader is part of an opaque loop
        - an input is written again between the block and a reader
        - an input is not allocated at a reader
    Cost: one computation for each read; saves the buffer's memory traffic.
    """

    name: ClassVar[str] = "compute_inline"
    block: str

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        buffer = block.buffer
        require_intermediate(self, func, buffer, block)
        env_names = self._require_injective(block)
        require_no_guard(self, path)
        changes: dict[int, Stmt] = {}

        for site in sites(func.body):
            reader = site.stmt
            if not site.reads(buffer):
                continue
            if not isinstance(reader, Block):
                raise refuse(self, f"expected every reader of {buffer} to be a block, but {site.label} reads it")
            if any(isinstance(x, Load) and x.buffer == buffer for b in reader.bindings for x in walk_index(b)):
                raise refuse(self, f"a binding of block {reader.name} reads {buffer}")
            require_open(block_path(func, reader.name), self, f"block {reader.name}")
            require_inputs_reach(self, func, block, path, block_path(func, reader.name))
            changes[id(reader)] = _inlined(block, env_names, reader)
        if not changes:
            raise refuse(self, f"nothing reads {buffer}")
        func = dataclasses.replace(func, body=map_statements(func.body, changes))
        return drop_alloc(replace_stmt(func, block, None), buffer)

    def _require_injective(self, block: Block) -> list[str | None]:
        for a in block.axes:
            if a.kind != "spatial":
                raise refuse(self, f"expected spatial axes only, got the {a.kind} axis {a.name}")
        axes = plain_axes(block)
        if axes is None or {a.name for a in block.axes} != set(axes) - {None}:
            shown = ", ".join(map(str, block.indices))
            raise refuse(self, f"expected store indices that are the block's axes, each once, got [{shown}]")
        if any(x.buffer == block.buffer for x in loads_of(block)):
            raise refuse(self, f"the block reads its own buffer {block.buffer}")
        return axes


def _inlined(block: Block, axes: list[str | None], reader: Block) -> Block:
    """``reader`` with its loads of the block's buffer replaced by the block's value."""
    ranges = {a.name: loop_range(a.extent) for a in reader.axes}

    def value_at(x: Load) -> Expr:
        if x.buffer != block.buffer:
            return x
        env = {a: i for a, i in zip(axes, x.indices, strict=True) if a is not None}
        return simplify_expr(substitute_expr(block.value, env), ranges)

    return map_block_loads(reader, value_at)
