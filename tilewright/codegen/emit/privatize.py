"""Local buffers in workspaces (:mod:`tilewright.codegen.prepare.assign_storage`), and which copy is whose.

A thread needs its own, and uses it again in each iteration. In a parallel loop the workspace has a copy for each chunk,
since a chunk is run by one thread from beginning to end; a loop with fewer iterations than chunks has one for each
iteration. Elsewhere one copy is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.emit.context import Context
from tilewright.codegen.emit.flatten import BufferInfo
from tilewright.codegen.llvm.types import memory_type
from tilewright.codegen.prepare.assign_storage import vector_pad
from tilewright.core.arith.bounds import loop_range, simplify
from tilewright.core.arith.expr import IntExpr, ceildiv, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.machine.memory import LINE_BYTES
from tilewright.machine.target import Target
from tilewright.runtime.resources.thread_pool import CHUNKS_PER_THREAD
from tilewright.tensor_ir.ir import Alloc, Buffer, Func, Loop, Stmt, stmt_children


@dataclass(frozen=True, slots=True)
class Privatized:
    """A local buffer in a workspace. ``copies`` of ``elements`` each; ``loop``: the parallel loop around it, if any."""

    buffer: Buffer
    loop: Loop | None
    copies: IntExpr
    elements: IntExpr

    def workspace(self) -> Buffer:
        """The buffer of all copies."""
        return Buffer(self.buffer.name, self.buffer.dtype, (self.copies, self.elements))


def most_chunks(target: Target) -> int:
    """Chunks of a parallel loop that have a copy of their own."""
    return CHUNKS_PER_THREAD * target.threads


def privatized_buffers(func: Func, target: Target) -> tuple[Privatized, ...]:
    """The buffers in workspaces in order of appearance, each copy longer than its shape by the pad of vectors."""
    out: list[Privatized] = []
    pad = vector_pad(func.body)

    def visit(s: Stmt, parallel: Loop | None) -> None:
        if isinstance(s, Loop) and s.kind == "parallel":
            parallel = s
        elif isinstance(s, Alloc) and s.buffer.scope == "workspace":
            step = max(1, LINE_BYTES // s.buffer.dtype.itemsize)
            elements = ceildiv(product(s.buffer.shape) + pad, step) * step
            out.append(Privatized(s.buffer, parallel, _copies(func, parallel, target), elements))
        for c in stmt_children(s):
            visit(c, parallel)

    visit(func.body, None)
    return tuple(out)


def _copies(func: Func, loop: Loop | None, target: Target) -> IntExpr:
    if loop is None:
        return const(1)
    most = const(most_chunks(target))
    return minimum(loop.extent, most) if loop.extent.free_vars() <= set(func.dims) else most


def own_copy(ctx: Context, p: Privatized, pointer: str, strides: tuple[IntExpr, ...]) -> BufferInfo:
    """Where the running chunk finds its copy; ``pointer`` is that of the workspace.

    Chunk ``c`` of ``C`` uses copy ``c * min(N, C) // C``: its own number, or that of its only iteration.
    """
    indexer, text = ctx.indexer, pointer
    if p.loop is not None:
        indexer.ranges[p.loop.var] = loop_range(p.loop.extent)
        n = indexer.operand(simplify(p.loop.extent, indexer.ranges))
        ctx.code.module.declare("llvm.umin.i64", "i64", ("i64", "i64"))
        used = indexer.pure(0, f"call i64 @llvm.umin.i64(i64 {n}, i64 %chunks)")
        scaled = indexer.pure(0, f"mul i64 {used}, %chunk")
        copy = indexer.pure(0, f"udiv i64 {scaled}, %chunks")
        offset = indexer.pure(0, f"mul i64 {copy}, {indexer.operand(p.elements)}")
        text = indexer.pure(0, f"getelementptr {memory_type(p.buffer.dtype)}, ptr {pointer}, i64 {offset}")
    return BufferInfo(p.buffer.name, p.buffer.dtype, text, strides, local=True, capacity=0)
