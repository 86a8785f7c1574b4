"""Local buffers whose size depends on symbolic dims: too open for a stack frame, so they live in workspaces.

A thread needs its own, and uses it again in each iteration. In a parallel loop the workspace has a copy for each chunk,
since a chunk is run by one thread from beginning to end; a loop with fewer iterations than chunks has one for each
iteration. Elsewhere one copy is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.emit.context import Context
from tilewright.codegen.emit.flatten import BufferInfo
from tilewright.codegen.emit.memory import reads_memory
from tilewright.codegen.llvm.types import memory_type
from tilewright.core.arith.bounds import Ranges, loop_range, simplify, upper_bound
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


def is_open(buffer: Buffer, dims: Sequence[str], ranges: Ranges) -> bool:
    """True if the size of a local buffer is given by the function's dims and has no constant bound."""
    known = all(d.free_vars() <= set(dims) and not reads_memory(d) for d in buffer.shape)
    return known and any(upper_bound(simplify(d, ranges), ranges) is None for d in buffer.shape)


def privatized_buffers(func: Func, nests: Sequence[Stmt], target: Target, pad: int) -> tuple[Privatized, ...]:
    """The open local buffers of ``nests`` in order of appearance, each copy longer than its shape by ``pad``."""
    out: list[Privatized] = []

    def visit(s: Stmt, ranges: Ranges, parallel: Loop | None) -> None:
        if isinstance(s, Loop):
            ranges = {**ranges, s.var: loop_range(s.extent)}
            parallel = s if s.kind == "parallel" else parallel
        elif isinstance(s, Alloc) and s.buffer.scope == "local" and is_open(s.buffer, func.dims, ranges):
            step = max(1, LINE_BYTES // s.buffer.dtype.itemsize)
            elements = ceildiv(product(s.buffer.shape) + pad, step) * step
            out.append(Privatized(s.buffer, parallel, _copies(func, parallel, target), elements))
        for c in stmt_children(s):
            visit(c, ranges, parallel)

    for s in nests:
        visit(s, {}, None)
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
