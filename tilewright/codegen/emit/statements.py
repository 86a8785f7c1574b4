"""Statements: loops of every kind, guards, allocations and stores of one function body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.copies import copies_of, slp_values, store_interleaved
from tilewright.codegen.emit.digits import CountedLoop
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import BufferInfo, FlatStore
from tilewright.codegen.emit.intrinsics import call_intrinsic, call_stepwise
from tilewright.codegen.emit.memory import prefetch, store
from tilewright.codegen.emit.trailing import Slices
from tilewright.codegen.llvm.builder import Value
from tilewright.codegen.llvm.types import memory_type
from tilewright.codegen.prepare.assign_storage import stack_shape
from tilewright.codegen.prepare.join_calls import unrolled_nest
from tilewright.codegen.prepare.trail_sums import private_buffers, trail_of
from tilewright.core.arith.bounds import loop_range, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.analysis.intrinsic_match import intrinsic_of
from tilewright.tensor_ir.analysis.prefetching import FetchedLines, steps_written_out
from tilewright.tensor_ir.hints import Interleaved, Joined, Rolled, Trails, find_hint
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Func, Guard, Loop, Seq, Stmt, Store, expr_free_vars


class StatementEmitter:
    """Writes statements of ``func`` into a context. ``vector_pad``: elements by which local buffers are longer than
    their shape; ``prefetches``: the lines that loops fetch ahead; ``streamed``: blocks that store past the caches;
    ``copies``: where the local buffers are that have no place on the stack."""

    def __init__(
        self, ctx: Context, func: Func, vector_pad: int, prefetches: Mapping[str, Sequence[FetchedLines]],
        streamed: frozenset[str], copies: Mapping[str, BufferInfo],
    ) -> None:  # fmt: skip
        self.ctx = ctx
        self.func = func
        self.vector_pad = vector_pad
        self.prefetches = prefetches
        self.streamed = streamed
        self.copies = copies
        self.parts: tuple[Lanes, ...] = ()  # the vectorized loop around, in vectors of a power of two of lanes
        self._loops = 0  # written so far
        self._behind_first: dict[str, str] = {}  # of steps written out: the loop that fetches behind the first
        self._slots: dict[tuple[str, int], BufferInfo] = {}
        self._local = private_buffers(func)
        self._slices: Slices | None = None  # of what trails the products that are being written

    def emit(self, s: Stmt) -> None:
        """Write one statement."""
        if isinstance(s, (Block, Store)):
            self._store(s)
        elif isinstance(s, Seq):
            self._sequence(s.stmts)
        elif isinstance(s, Loop):
            self._loop(s)
        elif isinstance(s, Alloc):
            self.allocate(s.buffer)
            self.emit(s.body)
        else:
            self._guard(s)

    def _sequence(self, stmts: Sequence[Stmt]) -> None:
        """One after the other, but what trails sums together with the products that compute these."""
        left = [*stmts]
        while left:
            s = left.pop(0)
            slices = self._trailing(s, left[0]) if left else None
            if slices is None:
                self.emit(s)
                continue
            self._slices = slices
            self.emit(s)
            self._slices = None
            slices.finish()
            del left[0]

    def _trailing(self, s: Stmt, following: Stmt) -> Slices | None:
        hint = find_hint(following.hints, Trails) if isinstance(following, Loop) else None
        trail = None if hint is None else trail_of(s, following, self._local, self.ctx.indexer.ranges)
        return None if hint is None or trail is None else Slices(self.ctx, trail, hint.slices, self.emit)

    # -- stores --------------------------------------------------------------------------------------------------
    def _store(self, s: Block | Store) -> None:
        ctx = self.ctx
        flat = ctx.flattener.store(s)
        ctx.streaming = isinstance(s, Block) and s.name in self.streamed
        for ctx.lanes in self.parts or (None,):
            ctx.memo = {}
            ctx.stored = (flat.buffer, flat.offset)
            value = evaluate(ctx, flat.value)
            ctx.stored = None
            store(ctx, flat.buffer, flat.offset, value)
        ctx.lanes, ctx.memo, ctx.streaming = None, {}, False

    # -- loops ---------------------------------------------------------------------------------------------------
    def _loop(self, s: Loop) -> None:
        ctx = self.ctx
        if s.var not in ctx.indexer.ranges:
            ctx.indexer.ranges[s.var] = loop_range(s.extent)
        extent = ctx.indexer.value(simplify(s.extent, ctx.indexer.ranges))
        if isinstance(extent, int) and extent <= 0:
            return
        if intrinsic_of(s) is not None and self._slices is not None:
            call_stepwise(ctx, self.func, s, self.counted, self._slices.follow)
        elif intrinsic_of(s) is not None:
            call_intrinsic(ctx, self.func, s)
        elif s.kind == "vectorized":
            self._vectorized(s, extent)
        elif (nest := unrolled_nest(s)) is not None and find_hint(s.hints, Interleaved) is not None:
            self._interleaved(*nest)
        elif nest is not None and (joined := find_hint(s.hints, Joined)) is not None:
            self._slp_calls(*nest, joined.most)
        elif s.kind == "unrolled":
            self._unrolled(s, extent)
        elif extent == 1:
            self._with_value(s, 0)
        else:
            unroll = find_hint(s.hints, Rolled) is None
            self.counted(s.var, "0", extent, s.extent, lambda: self._step(s), unroll)

    def _step(self, s: Loop) -> None:
        """One step of a counted loop: what it fetches ahead, then its body. Of steps that are written out it is behind
        the first: LLVM would move the loads of all of them together, which takes more registers than there are."""
        steps = steps_written_out(s) if s.var in self.prefetches else None
        if steps is None:
            self._fetch(s.var)
        else:
            self._behind_first[steps.var] = s.var
        self.emit(s.body)

    def _fetch(self, loop: str) -> None:
        for p in self.prefetches.get(loop, ()):
            prefetch(self.ctx, p)

    def _with_value(self, s: Loop, value: int) -> None:
        env = self.ctx.indexer.env
        env[s.var] = value
        self.emit(s.body)
        del env[s.var]

    def counted(
        self, var: str, start: str, stop: int | str, extent: IntExpr, body: Callable[[], None], unroll: bool = True
    ) -> None:
        """A loop of ``var`` from operand ``start`` up to ``stop``, one scope deeper.

        With ``unroll``, LLVM may write out the steps of an innermost one. Of one around others it must not: the taps of
        a window would become one piece of code, in which what overlaps is loaded once and kept, in more registers than
        there are.
        """
        ctx = self.ctx
        code, indexer = ctx.code, ctx.indexer
        before = code.block
        head, latch, after = code.new_block("loop"), code.new_block("latch"), code.new_block("after")
        runs = isinstance(stop, int) or (start == "0" and indexer.nonneg(extent - 1))
        if runs:
            code.branch(head)
        else:
            some = code.emit("i1", 0, f"icmp slt i64 {start}, {stop}")
            code.branch_if(some.text, head, after)
        code.start(head)
        level = indexer.push(head)
        i, following = code.name(), code.name()
        head.lines.append(f"  {i} = phi i64 [ {start}, %{before.label} ], [ {following}, %{latch.label} ]")
        indexer.define(i, level)
        indexer.digits.add_loop(CountedLoop(before, head, latch, level), i, start)
        indexer.env[var] = i
        loops = self._loops
        body()
        is_innermost, self._loops = self._loops == loops, loops + 1
        del indexer.env[var]
        code.branch(latch)
        code.start(latch)
        code.line(f"{following} = add nuw nsw i64 {i}, 1")
        more = code.emit("i1", 0, f"icmp slt i64 {following}, {stop}")
        remark = "" if unroll and is_innermost else code.module.rolled()
        code.branch_if(more.text, head, after, remark)
        indexer.pop()
        code.start(after)

    def _interleaved(self, unrolled: Sequence[Loop], vectorized: Loop, block: Block) -> None:
        """Copies of a block whose elements alternate in memory, stored at once."""
        flat, lanes = self._flat(unrolled, vectorized, block)
        store_interleaved(self.ctx, flat, unrolled[0], lanes)

    def _slp_calls(self, unrolled: Sequence[Loop], vectorized: Loop, block: Block, most: int) -> None:
        """Copies of a block that computes a long function, ``most`` at once."""
        ctx = self.ctx
        flat, lanes = self._flat(unrolled, vectorized, block)
        for copies in copies_of(unrolled, most):
            values = slp_values(ctx, flat, lanes, copies)
            ctx.streaming = block.name in self.streamed
            for at, value in zip(copies, values, strict=True):
                ctx.indexer.env.update(at)
                ctx.lanes = lanes
                store(ctx, flat.buffer, flat.offset, value)
            ctx.lanes, ctx.streaming = None, False
        for x in unrolled:
            del ctx.indexer.env[x.var]

    def _flat(self, unrolled: Sequence[Loop], vectorized: Loop, block: Block) -> tuple[FlatStore, Lanes]:
        for x in (*unrolled, vectorized):
            self.ctx.indexer.ranges.setdefault(x.var, loop_range(x.extent))
        return self.ctx.flattener.store(block), Lanes(vectorized.var, vectorized.extent.value() or 0)

    def _unrolled(self, s: Loop, extent: int | str) -> None:
        code = self.ctx.code
        for i in range(self._bound(s, extent)):
            if isinstance(extent, int):
                self._with_value(s, i)
                if i == 0 and s.var in self._behind_first:
                    self._fetch(self._behind_first.pop(s.var))
                continue
            inside = code.emit("i1", 0, f"icmp sgt i64 {extent}, {i}")
            body, after = code.new_block("copy"), code.new_block("next")
            code.branch_if(inside.text, body, after)
            code.start(body)
            self._with_value(s, i)
            code.branch(after)
            code.start(after)

    def _bound(self, s: Loop, extent: int | str) -> int:
        if isinstance(extent, int):
            return extent
        bound = upper_bound(s.extent, self.ctx.indexer.ranges)
        if bound is None:
            raise InternalError(f"codegen: {s.kind} loop {s.var} has no constant upper bound of its extent {s.extent}")
        return bound

    def _vectorized(self, s: Loop, extent: int | str) -> None:
        ctx = self.ctx
        code = ctx.code
        count = self._bound(s, extent)
        if count <= 0:
            return
        if count == 1 and isinstance(extent, int):
            self._with_value(s, 0)
            return
        pieces = _pieces(count)
        if isinstance(extent, int):
            self._body_in_lanes(s, tuple(Lanes(s.var, n, first) for first, n in pieces))
            return
        after = None
        if not ctx.indexer.nonneg(s.extent - 1):
            body, after = code.new_block("some"), code.new_block("none")
            some = code.emit("i1", 0, f"icmp sgt i64 {extent}, 0")
            code.branch_if(some.text, body, after)
            code.start(body)
        narrow = code.convert("trunc", Value("i64", 0, extent), "i32")
        parts = []
        for first, n in pieces:
            mask = code.compare("slt", code.lane_numbers(n, "i32", first), narrow)
            parts.append(Lanes(s.var, n, first, mask, extent=s.extent))
        self._body_in_lanes(s, tuple(parts))
        if after is not None:
            code.branch(after)
            code.start(after)

    def _body_in_lanes(self, s: Loop, parts: tuple[Lanes, ...]) -> None:
        self.parts = parts
        self.emit(s.body)
        self.parts = ()

    # -- guards --------------------------------------------------------------------------------------------------
    def _guard(self, s: Guard) -> None:
        ctx = self.ctx
        code = ctx.code
        ctx.memo = {}
        condition = ctx.flattener.value(s.condition)
        body, after = code.new_block("guarded"), code.new_block("unguarded")
        parts = self.parts
        if parts and parts[0].var in expr_free_vars(condition):
            narrowed = []
            on: Value | None = None
            for ctx.lanes in parts:
                ctx.memo = {}
                mask = code.splat(evaluate(ctx, condition), ctx.lanes.count)
                mask = mask if ctx.lanes.mask is None else code.binary("and", ctx.lanes.mask, mask)
                narrowed.append(replace(ctx.lanes, mask=mask, tail=False))
                some = code.any_lane(mask)
                on = some if on is None else code.binary("or", on, some)
            self.parts = tuple(narrowed)
        else:
            on = evaluate(ctx, condition)
        ctx.lanes, ctx.memo = None, {}
        if on is None:
            raise InternalError("codegen: a guard without lanes")
        code.branch_if(on.text, body, after)
        code.start(body)
        self.emit(s.body)
        self.parts = parts
        code.branch(after)
        code.start(after)

    # -- local buffers -------------------------------------------------------------------------------------------
    def allocate(self, b: Buffer) -> None:
        """Make a local buffer accessible: a stack slot in the entry block, shared by all copies of the allocation."""
        ctx = self.ctx
        if b.name in self.copies:
            ctx.buffers[b.name] = self.copies[b.name]
            return
        key = (b.name, self._lane_count())
        if key not in self._slots:
            self._slots[key] = self._slot(b)
        ctx.buffers[b.name] = self._slots[key]

    def _lane_count(self) -> int:
        return sum(p.count for p in self.parts)

    def _slot(self, b: Buffer) -> BufferInfo:
        ctx = self.ctx
        sizes = stack_shape(b)
        if b.scope != "stack" or sizes is None:
            raise InternalError(f"codegen: expected local buffer {b.name} on the stack, got {b.scope}{list(b.shape)}")
        copies = max(1, self._lane_count())
        elements = copies * prod(sizes) + self.vector_pad
        t = memory_type(b.dtype)
        name = ctx.code.name()
        ctx.code.entry.lines.insert(0, f"  {name} = alloca [{elements} x {t}], align 64")
        strides: list[IntExpr] = [const(1)] * len(sizes)
        for i in range(len(sizes) - 2, -1, -1):
            strides[i] = strides[i + 1] * sizes[i + 1]
        private = self.parts[0].var if self.parts else None
        return BufferInfo(b.name, b.dtype, name, tuple(strides), True, private, copies, elements)


def _pieces(count: int) -> list[tuple[int, int]]:
    """``(first lane, lanes)``: vectors of powers of two, at least 2 and at most 64 lanes, that cover ``count``
    lanes."""
    out: list[tuple[int, int]] = []
    first = 0
    while first < count:
        size = min(64, max(2, 1 << ((count - first).bit_length() - 1)))
        if size > count - first:  # an odd lane at the end is its own
            size = count - first
        out.append((first, size))
        first += size
    return out
