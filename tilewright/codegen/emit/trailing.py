"""What trails products in matrix tiles (:mod:`tilewright.codegen.prepare.trail_sums`): its slices, and which is next.

The next one is counted in slots on the stack, which LLVM turns into registers.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.emit.context import Context
from tilewright.codegen.llvm.builder import BasicBlock
from tilewright.codegen.prepare.trail_sums import Trail
from tilewright.core.arith.bounds import loop_range, simplify
from tilewright.tensor_ir.ir import Loop, Stmt


class Slices:
    """The steps of the loops that finish sums, in order. ``most`` follow a step of the products at most; ``emit``
    writes a statement."""

    def __init__(self, ctx: Context, trail: Trail, most: int, emit: Callable[[Stmt], None]) -> None:
        self._ctx = ctx
        self._trail = trail
        self._most = most
        self._emit = emit
        for x in trail.loops:
            ctx.indexer.ranges[x.var] = loop_range(x.extent)
        self._slots = {x.var: self._slot() for x in trail.loops}
        self._left = self._slot()
        for slot in self._slots.values():
            ctx.code.line(f"store i64 0, ptr {slot}, align 8")

    def _slot(self) -> str:
        name = self._ctx.code.name()
        self._ctx.code.entry.lines.insert(0, f"  {name} = alloca i64, align 8")
        return name

    def follow(self) -> None:
        """A few slices, of those whose sums are complete before the nest that is being run."""
        self._ctx.code.line(f"store i64 {self._most}, ptr {self._left}, align 8")
        self._run(self._complete())

    def finish(self) -> None:
        """All that are left."""
        self._run(None)

    def _complete(self) -> str:
        """The number of rows whose sums are complete."""
        ctx, trail = self._ctx, self._trail
        rows = ctx.indexer.operand(simplify(trail.begin, ctx.indexer.ranges))
        for x in trail.turns:
            last = ctx.indexer.operand(simplify(x.extent - 1, ctx.indexer.ranges))
            is_last = ctx.code.emit("i1", 0, f"icmp eq i64 {ctx.indexer.env[x.var]}, {last}")
            rows = ctx.code.emit("i64", 0, f"select i1 {is_last.text}, i64 {rows}, i64 0").text
        return rows

    def _run(self, complete: str | None) -> None:
        code, indexer, loops = self._ctx.code, self._ctx.indexer, self._trail.loops
        head, body, after = code.new_block("trailing"), code.new_block("slice"), code.new_block("trailed")
        code.branch(head)
        self._enter(head)
        more = code.emit("i1", 0, f"icmp slt i64 {indexer.env[loops[0].var]}, {self._extent(loops[0])}").text
        if complete is not None:
            left = code.emit("i64", 0, f"load i64, ptr {self._left}, align 8")
            tests = [f"icmp sgt i64 {left.text}, 0"]
            for row in self._trail.rows:
                tests.append(f"icmp slt i64 {indexer.operand(simplify(row, indexer.ranges))}, {complete}")
            for test in tests:
                more = code.emit("i1", 0, f"and i1 {more}, {code.emit('i1', 0, test).text}").text
        code.branch_if(more, body, after)
        indexer.pop()
        self._enter(body)
        self._emit(loops[-1].body)
        self._advance()
        if complete is not None:
            left = code.emit("i64", 0, f"load i64, ptr {self._left}, align 8")
            fewer = code.emit("i64", 0, f"sub i64 {left.text}, 1")
            code.line(f"store i64 {fewer.text}, ptr {self._left}, align 8")
        code.block.terminator = f"br label %{head.label}{code.module.rolled()}"
        indexer.pop()
        for x in loops:
            del indexer.env[x.var]
        code.start(after)

    def _enter(self, block: BasicBlock) -> None:
        """Start ``block``, one scope deeper, with the loops' variables as they are."""
        code, indexer = self._ctx.code, self._ctx.indexer
        code.start(block)
        level = indexer.push(block)
        for name, slot in self._slots.items():
            value = code.emit("i64", 0, f"load i64, ptr {slot}, align 8").text
            indexer.define(value, level)
            indexer.env[name] = value

    def _extent(self, loop: Loop) -> str:
        return self._ctx.indexer.operand(simplify(loop.extent, self._ctx.indexer.ranges))

    def _advance(self) -> None:
        """To the next slice: a step of the innermost loop, or its first one in the next step of the loop around."""
        code, indexer = self._ctx.code, self._ctx.indexer
        carry = "1"
        for x in reversed(self._trail.loops):
            following = code.emit("i64", 0, f"add nsw i64 {indexer.env[x.var]}, {carry}").text
            if x is not self._trail.loops[0]:
                full = code.emit("i1", 0, f"icmp eq i64 {following}, {self._extent(x)}").text
                carry = code.emit("i64", 0, f"zext i1 {full} to i64").text
                following = code.emit("i64", 0, f"select i1 {full}, i64 0, i64 {following}").text
            code.line(f"store i64 {following}, ptr {self._slots[x.var]}, align 8")


__all__ = ["Slices"]
