"""What the parts of the emitter share while one function is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.codegen.emit.flatten import BufferInfo, Flattener
from tilewright.codegen.emit.indexing import HERE, Indexer
from tilewright.codegen.llvm.builder import BasicBlock, Code, Value
from tilewright.core.arith.expr import IntExpr
from tilewright.tensor_ir.ir import Expr


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of the vectorized loop that is being emitted: its variable, how many lanes starting at iteration
    ``first``, and which of them are on (None: all).

    ``tail``: the mask comes from the loop's ``extent`` alone, so the loop's first iteration is on, and all iterations
    below the last one that is on. ``elsewhere``: where no lane is on, an address may lie far outside of its buffer; a
    CPU that finds no page there takes a hundred times as long for a load of nothing.
    """

    var: str
    count: int
    first: int = 0
    mask: Value | None = None
    tail: bool = True
    extent: IntExpr | None = None
    elsewhere: bool = False


class Context:
    """One function under construction."""

    def __init__(self, code: Code, evaluate: Callable[[Context, Expr], Value]) -> None:
        self.code = code
        self.target = code.target
        self.buffers: dict[str, BufferInfo] = {}
        self.indexer = Indexer(code, self._dynamic)
        self.flattener = Flattener(self.buffers, self.indexer.ranges)
        self.lanes: Lanes | None = None
        self.memo: dict[int, Value] = {}
        self.stored: tuple[str, IntExpr] | None = None  # the element being stored: loading it is always allowed
        self.streaming = False  # the store being written goes past the caches
        self.has_streamed = False  # some store of this function may have
        self._evaluate = evaluate
        self._splits: dict[tuple[IntExpr, str, int], tuple[IntExpr, IntExpr] | None] = {}

    def split(self, e: IntExpr, lanes: Lanes) -> tuple[IntExpr, IntExpr] | None:
        """``(coefficient, value in the first lane)`` of ``e`` over the lanes; None where it is not linear."""
        key = (e, lanes.var, lanes.first)
        if key not in self._splits:
            c = e.coefficient(lanes.var)
            self._splits[key] = None if c is None else (c, e.substitute({lanes.var: lanes.first}))
        return self._splits[key]

    def evaluate(self, e: Expr) -> Value:
        """The value of a flat expression."""
        return self._evaluate(self, e)

    def scalar_at(self, lane: int) -> _Lane:
        """A context manager in which the code of one lane is emitted as scalars."""
        return _Lane(self, lane)

    def branch_on(self, condition: str, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """``condition ? then() : otherwise()`` with real branches: the side not taken is not executed."""
        code = self.code
        yes, no, done = code.new_block("then"), code.new_block("else"), code.new_block("join")
        code.branch_if(condition, yes, no)
        a, from_a = self._arm(yes, then, done)
        b, from_b = self._arm(no, otherwise, done)
        lanes = a.lanes or b.lanes
        if a.lanes != b.lanes:
            a, b = code.splat_in(a, lanes, from_a), code.splat_in(b, lanes, from_b)
        code.start(done)
        return code.emit(a.type, lanes, f"phi {a.full} [ {a.text}, %{from_a.label} ], [ {b.text}, %{from_b.label} ]")

    def _arm(self, block: BasicBlock, body: Callable[[], Value], done: BasicBlock) -> tuple[Value, BasicBlock]:
        saved = self.memo
        self.memo = dict(saved)
        self.code.start(block)
        value = body()
        end = self.code.block
        self.code.branch(done)
        self.memo = saved
        return value, end

    def _dynamic(self, e: Expr) -> str:
        """A value inside an index, as an i64 operand in the current block."""
        saved, self.lanes = self.lanes, None
        value = self._evaluate(self, self.flattener.value(e))
        self.lanes = saved
        value = self.code.resize(value, "i64", e.dtype.kind == "i")
        if value.text[0] == "%":
            self.indexer.define(value.text, HERE)
        return value.text


class _Lane:
    """See :meth:`Context.scalar_at`."""

    def __init__(self, ctx: Context, lane: int) -> None:
        self.ctx, self.lane = ctx, lane

    def __enter__(self) -> None:
        ctx = self.ctx
        if ctx.lanes is None:
            raise RuntimeError("scalar_at outside a vectorized loop")
        self.saved = (ctx.lanes, ctx.memo, ctx.indexer.env.get(ctx.lanes.var))
        ctx.indexer.env[ctx.lanes.var] = ctx.lanes.first + self.lane
        ctx.lanes, ctx.memo = None, {}

    def __exit__(self, *exc: object) -> None:
        ctx = self.ctx
        lanes, ctx.memo, old = self.saved
        if old is None:
            del ctx.indexer.env[lanes.var]
        else:
            ctx.indexer.env[lanes.var] = old
        ctx.lanes = lanes
