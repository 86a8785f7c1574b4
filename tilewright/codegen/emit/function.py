"""A function as LLVM IR: the kernel that the runtime calls, and inside it the nests that threads share.

``void kernel(ptr args, ptr dims, ptr pool)`` runs phase after phase (:mod:`tilewright.codegen.prepare.phases`). A
serial loop around parallel ones is run by the kernel itself, with the phases of its body in each iteration. A phase
with a parallel loop is handed to the pool (:mod:`tilewright.codegen.native.thread_pool`) as ``void phase(ptr args, ptr
dims, i64 chunk, i64 chunks)``: chunk ``c`` of ``C`` takes the iterations ``[c*N/C, (c+1)*N/C)`` of a parallel loop, and
chunk 0 the other nests. Without a pool (null), for other phases, and where it is not worth it
(:mod:`tilewright.tensor_ir.analysis.parallel_if`), the one call is chunk 0 of 1. A pool of more chunks than have copies
of the local buffers in workspaces (:mod:`tilewright.codegen.emit.privatize`) is not used.

The parameters of a phase carry the aliasing facts: every buffer is ``noalias`` (the arena never lets a kernel
touch an element through two arguments).
Phases are functions of their own because such facts must not reach from one to the next, where other threads have
written the same buffers.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from tilewright.codegen.emit.context import Context
from tilewright.codegen.emit.expressions import evaluate
from tilewright.codegen.emit.flatten import BufferInfo
from tilewright.codegen.emit.intrinsics import set_up
from tilewright.codegen.emit.privatize import Privatized, most_chunks, own_copy, privatized_buffers
from tilewright.codegen.emit.statements import StatementEmitter
from tilewright.codegen.llvm.builder import Code, ModuleText
from tilewright.codegen.prepare.assign_storage import vector_pad
from tilewright.codegen.prepare.phases import (
    Phase,
    Steps,
    is_parallel_loop,
    ordered_phases,
    phases_in,
    root_nests,
    steps_in,
    uses,
)
from tilewright.core.arith.bounds import loop_range, simplify
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.prefetching import prefetches
from tilewright.tensor_ir.analysis.scopes import parallel_loops_in
from tilewright.tensor_ir.analysis.streaming import streamed_blocks
from tilewright.tensor_ir.hints import Trails, find_hint
from tilewright.tensor_ir.ir import Buffer, Func, Loop, Seq, Stmt


def emit_kernel(func: Func, target: Target, symbol: str) -> str:
    """The LLVM IR module of the kernel of a function that is ready
    (:func:`tilewright.codegen.prepare.steps.prepare`), exported as ``symbol``."""
    module = ModuleText(target)
    _, allocs = root_nests(func)
    buffers = [*func.params, *(b for b in allocs if b.scope == "global")]
    local = [b for b in allocs if b.scope != "global"]
    order = ordered_phases(func)
    pad = vector_pad(func.body)
    private = privatized_buffers(func, target)
    conditional: set[int] = set()
    for p in phases_in(order):
        module.functions.append(_phase_function(module, p, func, buffers, local, private, pad))
        module.functions.append(_phase_table_function(func, p, len(buffers) + len(private), target))
        if (condition := p.condition(func)) is not None:
            conditional.add(p.index)
            module.functions.append(_integer_function(module, f"condition{p.index}", condition, func))
            table = _integer_table_function(f"parallel_if{p.index}", f"condition{p.index}", len(func.dims))
            module.functions.append(table)
    for steps in steps_in(order):
        i, integers = steps.index, len(func.dims) + len(steps.around)
        module.functions.append(_integer_function(module, f"extent{i}", steps.loop.extent, func, steps.around))
        module.functions.append(_integer_table_function(f"count{i}", f"extent{i}", integers))
    chunks = most_chunks(target) if any(p.loop is not None for p in private) else None
    module.functions.append(_kernel_function(symbol, len(func.dims), order, conditional, chunks))
    return module.text()


def workspaces(func: Func, target: Target) -> tuple[Buffer, ...]:
    """What the pointers that follow the parameters in ``args`` of the kernel of a prepared function point to: the
    root-level global allocations in order of appearance, then the copies of local buffers in workspaces."""
    shared = (b for b in root_nests(func)[1] if b.scope == "global")
    return (*shared, *(p.workspace() for p in privatized_buffers(func, target)))


def is_parallel(func: Func) -> bool:
    """True if more than one thread has work in the kernel."""
    return bool(parallel_loops_in(func.body))


def _strides(b: Buffer) -> tuple[IntExpr, ...]:
    out: list[IntExpr] = []
    step = const(1)
    for d in reversed(b.shape):
        out.append(step)
        step = step * d
    return tuple(reversed(out))


# -- functions -------------------------------------------------------------------------------------------------------
def _phase_function(
    module: ModuleText, phase: Phase, func: Func, buffers: list[Buffer], local: list[Buffer],
    private: Sequence[Privatized], pad: int,
) -> str:  # fmt: skip
    """The internal function that runs the nests of a phase."""
    name, nests = f"phase{phase.index}", phase.nests
    code = Code(module)
    ctx = Context(code, evaluate)
    used = [uses(s) for s in nests]
    read = {b for r, _ in used for b in r}
    written = {b for _, w in used for b in w}
    params: list[str] = []
    for i, b in enumerate(buffers):
        ctx.buffers[b.name] = BufferInfo(b.name, b.dtype, f"%p{i}", _strides(b), capacity=product(b.shape).value())
        facts = ["ptr", "noalias"]
        if b.name not in written:
            facts.append("readonly")
        if b.name in read | written and (size := _bytes(b)):
            facts.append(f"dereferenceable({size})")
        params.append(f"{' '.join(facts)} %p{i}")
    params += [f"ptr noalias %p{len(buffers) + i}" for i in range(len(private))]
    params += _integers(ctx, func, phase.around)
    copies = {
        p.buffer.name: own_copy(ctx, p, f"%p{i}", _strides(p.buffer))
        for i, p in enumerate(private, len(buffers))
        if p.buffer.name in read | written
    }
    teardown = set_up(ctx, func, nests)
    emitter = StatementEmitter(ctx, func, pad, prefetches(func), streamed_blocks(func), copies)
    for b in local:
        if b.name in read | written:
            emitter.allocate(b)
    for s in _with_what_trails(nests):
        if isinstance(s, Loop) and is_parallel_loop(s):
            _parallel(ctx, emitter, s)
        else:
            _alone(ctx, emitter, s)
    if ctx.has_streamed:
        code.line("fence seq_cst")  # stores past the caches are not ordered with what tells other threads of them
    for line in teardown:
        code.line(line)
    code.block.terminator = "ret void"
    params += ["i64 %chunk", "i64 %chunks"]
    return f"define internal void @{name}({', '.join(params)}) noinline nounwind {{\n{code.text()}\n}}"


def _with_what_trails(nests: Sequence[Stmt]) -> list[Stmt]:
    """The nests, but one that trails sums together with the products before it."""
    found: list[Stmt] = []
    for s in nests:
        trails = isinstance(s, Loop) and find_hint(s.hints, Trails) is not None
        found[-1:] = [Seq((found[-1], s))] if trails else [*found[-1:], s]
    return found


def _bytes(b: Buffer) -> int | None:
    total = b.dtype.itemsize
    for d in b.shape:
        n = d.value()
        if n is None:
            return None
        total *= n
    return total


def _integers(ctx: Context, func: Func, around: Sequence[Loop]) -> list[str]:
    """Parameters for the dims and for the variables of the loops around, known to ``ctx`` by name."""
    for x in around:
        ctx.indexer.ranges[x.var] = loop_range(x.extent)
    names = [*func.dims, *(x.var for x in around)]
    for i, name in enumerate(names):
        ctx.indexer.env[name] = f"%d{i}"
        ctx.indexer.define(f"%d{i}", 0)
    return [f"i64 %d{i}" for i in range(len(names))]


def _integer_function(module: ModuleText, name: str, e: IntExpr, func: Func, around: Sequence[Loop] = ()) -> str:
    """The function that gives the value of ``e``: a phase's condition, or the extent of a loop around phases."""
    code = Code(module)
    ctx = Context(code, evaluate)
    params = _integers(ctx, func, around)
    value = ctx.indexer.operand(simplify(e, ctx.indexer.ranges))
    code.block.terminator = f"ret i64 {value}"
    return f"define internal i64 @{name}({', '.join(params)}) nounwind {{\n{code.text()}\n}}"


def _phase_table_function(func: Func, phase: Phase, pointers: int, target: Target) -> str:
    """A phase in the form in which a pool calls it: pointers and integers are read from their tables."""
    lines: list[str] = []
    operands: list[str] = []
    for i in range(pointers):
        lines.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
        lines.append(f"  %p{i} = load ptr, ptr %s{i}, align {target.pointer_bytes}")
        operands.append(f"ptr %p{i}")
    more, integers = _from_table(len(func.dims) + len(phase.around))
    operands += [*integers, "i64 %chunk", "i64 %chunks"]
    call = f"  call void @phase{phase.index}({', '.join(operands)})"
    head = f"define internal void @chunk{phase.index}(ptr %args, ptr %dims, i64 %chunk, i64 %chunks) nounwind"
    return "\n".join([head + " {", "entry:", *lines, *more, call, "  ret void", "}"])


def _integer_table_function(name: str, of: str, integers: int) -> str:
    """The integer function ``of`` as one of the table of the integers."""
    lines, operands = _from_table(integers)
    lines += [f"  %n = call i64 @{of}({', '.join(operands)})", "  ret i64 %n"]
    return "\n".join([f"define internal i64 @{name}(ptr %dims) nounwind {{", "entry:", *lines, "}"])


def _from_table(integers: int) -> tuple[list[str], list[str]]:
    """The lines that read the dims and loop variables from ``%dims``, and the operands they are then."""
    lines: list[str] = []
    for i in range(integers):
        lines.append(f"  %t{i} = getelementptr i64, ptr %dims, i64 {i}")
        lines.append(f"  %d{i} = load i64, ptr %t{i}, align 8")
    return lines, [f"i64 %d{i}" for i in range(integers)]


def _kernel_function(
    symbol: str, dims: int, order: Sequence[Phase | Steps], conditional: Set[int], chunks: int | None
) -> str:
    """The kernel. ``conditional``: the phases that threads share only if a condition holds; ``chunks``: the largest
    number of chunks of a pool that it may use, None for any."""
    lines: list[str] = ["  %alone = icmp eq ptr %pool, null"] if chunks is None else _alone_or_large(chunks)
    depth = max((len(p.around) for p in phases_in(order)), default=0)
    table = "%dims"
    if depth:  # the variables of loops around phases follow the dims in a table of this call
        table = "%table"
        lines.append(f"  %table = alloca [{dims + depth} x i64], align 8")
        for i in range(dims):
            lines.append(f"  %from{i} = getelementptr i64, ptr %dims, i64 {i}")
            lines.append(f"  %dim{i} = load i64, ptr %from{i}, align 8")
            lines.append(f"  %to{i} = getelementptr i64, ptr %table, i64 {i}")
            lines.append(f"  store i64 %dim{i}, ptr %to{i}, align 8")
    for item in order:
        lines += _calls(item, table, dims, conditional)
    lines.append("  ret void")
    head = f"define void @{symbol}(ptr %args, ptr %dims, ptr %pool) nounwind"
    return "\n".join([head + " {", "entry:", *lines, "}"])


def _alone_or_large(chunks: int) -> list[str]:
    return [
        "  %nobody = icmp eq ptr %pool, null\n  br i1 %nobody, label %counted, label %count",
        "count:\n  %size.at = getelementptr i8, ptr %pool, i64 8\n  %size = load i64, ptr %size.at, align 8",
        f"  %large = icmp ugt i64 %size, {chunks}\n  br label %counted",
        "counted:\n  %alone = phi i1 [ true, %entry ], [ %large, %count ]",
    ]


def _calls(item: Phase | Steps, table: str, dims: int, conditional: Set[int]) -> list[str]:
    """The calls that run a phase, or the loop over those that run the phases of its steps."""
    i = item.index
    if isinstance(item, Steps):
        place = dims + len(item.around)
        return [
            f"  %n{i} = call i64 @count{i}(ptr {table})",
            f"  %at{i} = getelementptr i64, ptr {table}, i64 {place}",
            f"  store i64 0, ptr %at{i}, align 8\n  br label %more{i}",
            f"more{i}:\n  %step{i} = load i64, ptr %at{i}, align 8\n  %left{i} = icmp slt i64 %step{i}, %n{i}",
            f"  br i1 %left{i}, label %body{i}, label %done{i}\nbody{i}:",
            *(line for x in item.body for line in _calls(x, table, dims, conditional)),
            f"  %last{i} = load i64, ptr %at{i}, align 8\n  %following{i} = add i64 %last{i}, 1",
            f"  store i64 %following{i}, ptr %at{i}, align 8\n  br label %more{i}",
            f"done{i}:",
        ]
    call = f"  call void @chunk{i}(ptr %args, ptr {table}, i64 0, i64 1)"
    if not item.is_shared():
        return [call]
    alone, lines = "%alone", []
    if i in conditional:
        alone = f"%few{i}"
        lines.append(f"  %above{i} = call i64 @parallel_if{i}(ptr {table})\n  %small{i} = icmp slt i64 %above{i}, 1")
        lines.append(f"  {alone} = or i1 %alone, %small{i}")
    return [
        *lines,
        f"  br i1 {alone}, label %one{i}, label %many{i}",
        f"one{i}:\n{call}\n  br label %next{i}",
        f"many{i}:\n  %for{i} = load ptr, ptr %pool, align 8",
        f"  call void %for{i}(ptr %pool, ptr @chunk{i}, ptr %args, ptr {table})\n  br label %next{i}",
        f"next{i}:",
    ]


def _alone(ctx: Context, emitter: StatementEmitter, s: Stmt) -> None:
    """A nest that chunk 0 runs."""
    code = ctx.code
    first, after = code.new_block("alone"), code.new_block("together")
    alone = code.emit("i1", 0, "icmp eq i64 %chunk, 0")
    code.branch_if(alone.text, first, after)
    code.start(first)
    ctx.indexer.push(first)
    emitter.emit(s)
    ctx.indexer.pop()
    code.branch(after)
    code.start(after)


def _parallel(ctx: Context, emitter: StatementEmitter, s: Loop) -> None:
    """The contiguous iterations of this chunk."""
    code, indexer = ctx.code, ctx.indexer
    indexer.ranges[s.var] = loop_range(s.extent)
    n = indexer.operand(simplify(s.extent, indexer.ranges))
    low = code.emit("i64", 0, f"mul nsw i64 %chunk, {n}")
    start = code.emit("i64", 0, f"udiv i64 {low.text}, %chunks")
    high = code.emit("i64", 0, f"add nsw i64 {low.text}, {n}")
    stop = code.emit("i64", 0, f"udiv i64 {high.text}, %chunks")
    emitter.counted(s.var, start.text, stop.text, s.extent, lambda: emitter.emit(s.body))
