"""A function as LLVM IR: the kernel that the runtime calls, and inside it the nests spread over a team of threads.

``void kernel(ptr args, ptr dims, i64 tid, i64 nthreads, ptr barrier)`` reads the pointers and the dims from its
tables and calls one internal function for each phase, with a barrier in between. A phase is a run of root nests that
need no barrier: one stands between two nests of which at least one is parallel if one writes what the other uses.
Within a phase a parallel loop gives thread ``tid`` the iterations ``[tid*N/T, (tid+1)*N/T)``; other nests run on
thread 0.

The parameters of a phase carry the aliasing facts: every buffer is ``noalias`` (the memory plan never lets two
arguments overlap unless the function says so with the attribute ``inplace = "out:in, ..."``). Phases are functions
of their own because such facts must not reach across a barrier, after which other threads have written the same
buffers.
"""

from __future__ import annotations

from tilewright.codegen.builder import Code, ModuleText
from tilewright.codegen.context import Context
from tilewright.codegen.expressions import evaluate
from tilewright.codegen.flatten import BufferInfo
from tilewright.codegen.statements import StatementEmitter, vector_pad
from tilewright.core.errors import InternalError
from tilewright.core.intbounds import loop_range, simplify
from tilewright.core.intexpr import IntExpr, const
from tilewright.core.target import Target
from tilewright.tensor_ir.empty_reductions import store_empty_inits
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    Func,
    Guard,
    Load,
    Loop,
    Seq,
    Stmt,
    Store,
    loads,
    walk,
    walk_index,
)


def emit_kernel(func: Func, target: Target, symbol: str) -> str:
    """The LLVM IR module of one kernel, exported as ``symbol``."""
    module = ModuleText(target)
    func = store_empty_inits(func)
    nests, allocs = root_nests(func)
    buffers = [*func.params, *(b for b in allocs if b.scope == "global")]
    local = [b for b in allocs if b.scope == "local"]
    phases = _phases(nests)
    _require_private(phases, {b.name for b in local})
    pad = vector_pad(func.body)
    for i, phase in enumerate(phases):
        module.functions.append(_phase_function(module, f"phase{i}", func, buffers, local, phase, pad))
    module.functions.append(_kernel_function(func, symbol, len(buffers), len(phases)))
    return module.text()


def workspaces(func: Func) -> tuple[Buffer, ...]:
    """The root-level global allocations in order of appearance: the pointers that follow the parameters in ``args``."""
    return tuple(b for b in root_nests(func)[1] if b.scope == "global")


def is_parallel(func: Func) -> bool:
    """True if more than one thread has work in the kernel."""
    return any(isinstance(s, Loop) and s.kind == "parallel" for s in root_nests(func)[0])


def root_nests(func: Func) -> tuple[list[Stmt], list[Buffer]]:
    """The statements at the root in order, and the buffers allocated around them."""
    nests: list[Stmt] = []
    allocs: list[Buffer] = []

    def visit(s: Stmt) -> None:
        if isinstance(s, Seq):
            for c in s.stmts:
                visit(c)
        elif isinstance(s, Alloc):
            allocs.append(s.buffer)
            visit(s.body)
        else:
            nests.append(s)

    visit(func.body)
    return nests, allocs


def _strides(b: Buffer) -> tuple[IntExpr, ...]:
    out: list[IntExpr] = []
    step = const(1)
    for d in reversed(b.shape):
        out.append(step)
        step = step * d
    return tuple(reversed(out))


# -- functions -------------------------------------------------------------------------------------------------------
def _phase_function(
    module: ModuleText, name: str, func: Func, buffers: list[Buffer], local: list[Buffer], nests: list[Stmt], pad: int
) -> str:
    """The internal function that runs ``nests``."""
    code = Code(module)
    ctx = Context(code, evaluate)
    shared = _inplace(func)
    uses = [_uses(s) for s in nests]
    read = {b for r, _ in uses for b in r}
    written = {b for _, w in uses for b in w}
    params: list[str] = []
    for i, b in enumerate(buffers):
        ctx.buffers[b.name] = BufferInfo(b.name, b.dtype, f"%p{i}", _strides(b))
        facts = ["ptr"]
        if b.name not in shared:
            facts.append("noalias")
        if b.name not in written:
            facts.append("readonly")
        if b.name in read | written and (size := _bytes(b)):
            facts.append(f"dereferenceable({size})")
        params.append(f"{' '.join(facts)} %p{i}")
    for i, d in enumerate(func.dims):
        ctx.indexer.env[d] = f"%d{i}"
        ctx.indexer.define(f"%d{i}", 0)
        params.append(f"i64 %d{i}")
    emitter = StatementEmitter(ctx, pad)
    for b in local:
        if b.name in read | written:
            emitter.allocate(b)
    for s in nests:
        if isinstance(s, Loop) and s.kind == "parallel":
            _parallel(ctx, emitter, s)
        else:
            _alone(ctx, emitter, s)
    code.block.terminator = "ret void"
    params += ["i64 %tid", "i64 %nthreads"]
    return f"define internal void @{name}({', '.join(params)}) noinline nounwind {{\n{code.text()}\n}}"


def _bytes(b: Buffer) -> int | None:
    total = b.dtype.itemsize
    for d in b.shape:
        n = d.value()
        if n is None:
            return None
        total *= n
    return total


def _inplace(func: Func) -> set[str]:
    """Buffers that may share their bytes exactly, from the attribute ``inplace``: ``"out:in, out2:in2"``."""
    text = dict(func.attrs).get("inplace", "")
    return {name.strip() for pair in text.split(",") for name in pair.split(":") if name.strip()}


def _kernel_function(func: Func, symbol: str, pointers: int, phases: int) -> str:
    lines: list[str] = []
    operands: list[str] = []
    for i in range(pointers):
        lines.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
        lines.append(f"  %p{i} = load ptr, ptr %s{i}, align 8")
        operands.append(f"ptr %p{i}")
    for i in range(len(func.dims)):
        lines.append(f"  %t{i} = getelementptr i64, ptr %dims, i64 {i}")
        lines.append(f"  %d{i} = load i64, ptr %t{i}, align 8")
        operands.append(f"i64 %d{i}")
    operands += ["i64 %tid", "i64 %nthreads"]
    if phases > 1:
        lines.append("  %several = icmp sgt i64 %nthreads, 1")
    for i in range(phases):
        if i:
            lines.append(f"  br i1 %several, label %wait{i}, label %ready{i}")
            lines.append(f"wait{i}:\n  call void %barrier()\n  br label %ready{i}\nready{i}:")
        lines.append(f"  call void @phase{i}({', '.join(operands)})")
    lines.append("  ret void")
    head = f"define void @{symbol}(ptr %args, ptr %dims, i64 %tid, i64 %nthreads, ptr %barrier) nounwind"
    return "\n".join([head + " {", "entry:", *lines, "}"])


# -- nests and threads -----------------------------------------------------------------------------------------------
def _phases(nests: list[Stmt]) -> list[list[Stmt]]:
    """Nests in runs between which all threads must wait for each other."""
    phases: list[list[Stmt]] = []
    pending: list[tuple[bool, set[str], set[str]]] = []
    for s in nests:
        parallel = isinstance(s, Loop) and s.kind == "parallel"
        reads, writes = _uses(s)
        clash = any((parallel or p) and bool(w & (reads | writes) or writes & r) for p, r, w in pending)
        if clash or not phases:
            phases.append([])
            pending = []
        phases[-1].append(s)
        pending.append((parallel, reads, writes))
    return phases


def _require_private(phases: list[list[Stmt]], local: set[str]) -> None:
    """A local buffer at the root belongs to one phase, and no parallel loop shares it."""
    seen: dict[str, int] = {}
    for i, phase in enumerate(phases):
        for s in phase:
            reads, writes = _uses(s)
            for name in sorted(local & (reads | writes)):
                parallel = isinstance(s, Loop) and s.kind == "parallel"
                if parallel or seen.setdefault(name, i) != i:
                    raise InternalError(f"codegen: local buffer {name} at the root is used across threads")


def _alone(ctx: Context, emitter: StatementEmitter, s: Stmt) -> None:
    """A nest for thread 0."""
    code = ctx.code
    first, after = code.new_block("alone"), code.new_block("together")
    alone = code.emit("i1", 0, "icmp eq i64 %tid, 0")
    code.branch_if(alone.text, first, after)
    code.start(first)
    ctx.indexer.push(first)
    emitter.emit(s)
    ctx.indexer.pop()
    code.branch(after)
    code.start(after)


def _parallel(ctx: Context, emitter: StatementEmitter, s: Loop) -> None:
    """The contiguous chunk of this thread."""
    code, indexer = ctx.code, ctx.indexer
    indexer.ranges[s.var] = loop_range(s.extent)
    n = indexer.operand(simplify(s.extent, indexer.ranges))
    low = code.emit("i64", 0, f"mul nsw i64 %tid, {n}")
    start = code.emit("i64", 0, f"udiv i64 {low.text}, %nthreads")
    high = code.emit("i64", 0, f"add nsw i64 {low.text}, {n}")
    stop = code.emit("i64", 0, f"udiv i64 {high.text}, %nthreads")
    emitter.counted(s.var, start.text, stop.text, s.extent, lambda: emitter.emit(s.body))


def _uses(s: Stmt) -> tuple[set[str], set[str]]:
    """Names of the buffers read and written anywhere in ``s``."""
    reads: set[str] = set()
    writes: set[str] = set()

    def value(e: Expr) -> None:
        reads.update(x.buffer for x in loads(e))

    def index(i: IntExpr) -> None:
        reads.update(x.buffer for x in walk_index(i) if isinstance(x, Load))

    for x in walk(s):
        if isinstance(x, (Block, Store)):
            writes.add(x.buffer)
            value(x.value)
            for i in x.indices:
                index(i)
            if isinstance(x, Block):
                for i in x.bindings:
                    index(i)
                if x.init is not None:
                    value(x.init)
        elif isinstance(x, Guard):
            value(x.condition)
        elif isinstance(x, Loop):
            index(x.extent)
    return reads, writes
