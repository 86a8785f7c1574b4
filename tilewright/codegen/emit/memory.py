"""Loads and stores: scalars, contiguous vectors, constant strides by shuffles, gathers and scatters, all maskable.

Accesses carry the alignment of one element only: current CPUs lose nothing by it, and a caller's array need not be
aligned to a vector. Local buffers are padded by one vector, so that the unused lanes of a ragged access to them stay
inside; their masked stores are blends, which lets LLVM keep the buffer in registers. Stores past the caches need
alignment: they are written twice, and the buffer's address decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.flatten import BufferInfo
from tilewright.codegen.emit.indexing import Linear
from tilewright.codegen.emit.limited import Limited, lanes_below, limited_index
from tilewright.codegen.llvm.builder import Code, Value
from tilewright.codegen.llvm.types import full_type, memory_type, register_type, suffix
from tilewright.codegen.math.byte_tables import look_up, shuffled
from tilewright.codegen.prepare.byte_look_ups import looked_up_byte, place_among_sixteen
from tilewright.core.arith.bounds import simplify
from tilewright.core.arith.expr import ZERO, IntExpr, var
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError
from tilewright.machine.vectors import PART, shuffled_bytes
from tilewright.tensor_ir.analysis.prefetching import FetchedLines
from tilewright.tensor_ir.ir import Expr, walk_index

_MAX_SHUFFLE_STRIDE = 4
_SECOND_LEVEL = 2  # locality of llvm.prefetch: 3 is the first-level cache


def load(ctx: Context, buffer: str, offset: IntExpr) -> Value:
    """The element(s) of ``buffer`` at ``offset``, a scalar where the address is the same for all lanes."""
    info = ctx.buffers[buffer]
    raw = _load_raw(ctx, info, offset)
    return from_memory(ctx.code, raw, info.dtype)


def load_words(ctx: Context, buffer: str, offset: IntExpr, lanes: Lanes) -> Value:
    """A word of 32 bits in each lane, from memory of narrower elements that begins at ``offset``."""
    info = ctx.buffers[buffer]
    ptr = _pointer(ctx, info, ctx.indexer.linear(offset))
    if lanes.mask is not None:
        return _masked_load(ctx, info, ptr, lanes.mask, Value("i32", lanes.count, "zeroinitializer"))
    return ctx.code.emit("i32", lanes.count, f"load {full_type('i32', lanes.count)}, ptr {ptr}, {_align(info)}")


def load_word(ctx: Context, buffer: str, offset: IntExpr) -> Value:
    """One word of 32 bits, the same for all lanes, from memory of narrower elements that begins at ``offset``."""
    return _load_uniform(ctx, ctx.buffers[buffer], offset, "i32")


def gather_words(ctx: Context, buffer: str, offset: IntExpr, lanes: Lanes) -> Value:
    """A word of 32 bits in each lane, from memory of narrower elements, each where ``offset`` says."""
    info, n = ctx.buffers[buffer], lanes.count
    pointers, vt = _lane_pointers(ctx, info, offset, lanes), full_type("i32", n)
    mask = ctx.code.splat(Value("i1", 0, "true"), n) if lanes.mask is None else lanes.mask
    name = f"llvm.masked.gather.{suffix('i32', n)}.{suffix('ptr', n)}"
    ctx.code.module.declare(name, vt, (pointers.full, "i32", mask.full, vt))
    call = f"call {vt} @{name}({pointers.typed}, i32 {info.dtype.itemsize}, {mask.typed}, {vt} zeroinitializer)"
    return ctx.code.emit("i32", n, call)


def load_masked(ctx: Context, buffer: str, offset: IntExpr, mask: Value) -> Value:
    """Neighbours from ``offset`` on, 0 where ``mask`` is off."""
    info = ctx.buffers[buffer]
    others = Value(memory_type(info.dtype), mask.lanes, "zeroinitializer")
    return _masked_load(ctx, info, _pointer(ctx, info, ctx.indexer.linear(offset)), mask, others)


def store(ctx: Context, buffer: str, offset: IntExpr, value: Value) -> None:
    """Write ``value``; lanes that are off keep their memory."""
    info = ctx.buffers[buffer]
    raw = to_memory(ctx.code, value, info.dtype)
    lanes = ctx.lanes
    if lanes is None:
        _store_scalar(ctx, info, ctx.indexer.linear(offset), raw)
        return
    raw = ctx.code.splat(raw, lanes.count)
    form = ctx.split(offset, lanes)
    if form is not None and form[0] == 1:
        _store_vector(ctx, info, form[1], raw, lanes)
    else:
        _scatter(ctx, info, offset, raw, lanes)


def prefetch(ctx: Context, p: FetchedLines) -> None:
    """Ask for cache lines, which may lie outside the buffer, into the second-level cache."""
    info, code = ctx.buffers[p.buffer], ctx.code
    name = "llvm.prefetch.p0"
    code.module.declare(name, "void", ("ptr", "i32", "i32", "i32"))
    pointer = _pointer(ctx, info, ctx.indexer.linear(simplify(p.offset, ctx.indexer.ranges)))
    after = None
    if p.first is not None:
        steps = ctx.indexer.operand(simplify(sum(map(var, p.shared), ZERO), ctx.indexer.ranges))
        found = code.emit("i1", 0, f"icmp {'eq' if p.first else 'ne'} i64 {steps}, 0")
        fetch, after = code.new_block("fetch"), code.new_block("fetched")
        code.branch_if(found.text, fetch, after)
        code.start(fetch)
    for n in p.lines:
        at = code.emit("ptr", 0, f"getelementptr i8, ptr {pointer}, i64 {n * info.dtype.itemsize}")
        code.line(f"call void @{name}(ptr {at.text}, i32 0, i32 {_SECOND_LEVEL}, i32 1)")
    if after is not None:
        code.branch(after)
        code.start(after)


# -- representation --------------------------------------------------------------------------------------------------
def from_memory(code: Code, raw: Value, dtype: DType) -> Value:
    """A memory element as a register value."""
    if dtype.kind == "b":
        return code.compare("ne", raw, code.const(0, raw))
    if dtype.kind == "i" and dtype.bits < 8:
        shift = code.const(8 - dtype.bits, raw)
        return code.binary("ashr", code.binary("shl", raw, shift), shift)
    if dtype.kind in "uf" and dtype.bits < 8:
        return code.binary("and", raw, code.const((1 << dtype.bits) - 1, raw))
    return raw


def to_memory(code: Code, value: Value, dtype: DType) -> Value:
    """A register value as a memory element. Sub-byte integers keep their bits in the low end of the byte, upper bits
    0."""
    if dtype.kind == "b":
        return code.convert("zext", value, "i8")
    if dtype.is_integer and dtype.bits < 8:
        return code.binary("and", value, code.const((1 << dtype.bits) - 1, value))
    if value.type != register_type(dtype):
        raise InternalError(f"codegen: a value of LLVM type {value.type} is stored into a buffer of {dtype}")
    return value


def _align(info: BufferInfo) -> str:
    return f"align {info.dtype.itemsize}"


def _pointer(ctx: Context, info: BufferInfo, form: Linear) -> str:
    return ctx.indexer.pointer(info.pointer, memory_type(info.dtype), form)


# -- loads -----------------------------------------------------------------------------------------------------------
def _load_raw(ctx: Context, info: BufferInfo, offset: IntExpr) -> Value:
    lanes = ctx.lanes
    if lanes is None or lanes.var not in offset.free_vars():
        return _load_uniform(ctx, info, offset, memory_type(info.dtype))
    if (place := looked_up_byte(ctx.target, info.dtype, info.capacity, offset)) is not None:
        return _load_from_table(ctx, info, place, lanes)
    if (found := place_among_sixteen(ctx.target, info.dtype, offset)) is not None:
        first, place = found
        if (firsts := _firsts(ctx, first, lanes)) is not None:
            return _load_shuffled(ctx, info, firsts, place, lanes)
    form = ctx.split(offset, lanes)
    if form is not None and form[0] == 1 and (lanes.tail or not reads_memory(offset)):
        return _load_vector(ctx, info, form[1], lanes)
    if form is None and info.dtype.itemsize >= 4 and (limited := limited_index(ctx, offset, lanes)) is not None:
        return _load_limited(ctx, info, limited, lanes)
    if lanes.mask is not None:
        return _gather_masked(ctx, info, offset, lanes)
    if form is not None and (stride := form[0].value()) is not None and 0 < abs(stride) <= _MAX_SHUFFLE_STRIDE:
        return _load_strided(ctx, info, form[1], stride, lanes)
    parts = []
    for lane in range(lanes.count):
        with ctx.scalar_at(lane):
            parts.append(_load_scalar(ctx, info, ctx.indexer.linear(offset)))
    return ctx.code.gather_lanes(parts)


def reads_memory(offset: IntExpr) -> bool:
    """True if an index loads from memory."""
    return next(walk_index(offset), None) is not None


def _load_from_table(ctx: Context, info: BufferInfo, place: Expr, lanes: Lanes) -> Value:
    """The whole table is read, whatever the mask: only lanes that are on count."""
    index = ctx.code.splat(ctx.evaluate(ctx.flattener.value(place)), lanes.count)

    return look_up(ctx.code, index, lambda first, count: _load_bytes(ctx, info, Linear(first, {}), count))


def _load_bytes(ctx: Context, info: BufferInfo, first: Linear, count: int) -> Value:
    """``count`` bytes that lie together, whatever the lanes."""
    return ctx.code.emit(
        "i8", count, f"load {full_type('i8', count)}, ptr {_pointer(ctx, info, first)}, {_align(info)}"
    )


def _firsts(ctx: Context, first: IntExpr, lanes: Lanes) -> list[IntExpr] | None:
    """The ``first`` of each 16 lanes, if those have the same."""
    if lanes.mask is not None or lanes.count % PART or lanes.count > shuffled_bytes(ctx.target):
        return None
    ranges = ctx.indexer.ranges
    of_lane = [simplify(first.substitute({lanes.var: lanes.first + n}), ranges) for n in range(lanes.count)]
    found = of_lane[::PART]
    return found if all(x == found[n // PART] for n, x in enumerate(of_lane)) else None


def _load_shuffled(ctx: Context, info: BufferInfo, firsts: Sequence[IntExpr], place: Expr, lanes: Lanes) -> Value:
    """Bytes of 16 from each of ``firsts`` on, for as many lanes each."""

    def part(first: IntExpr, count: int) -> Value:
        return _load_bytes(ctx, info, ctx.indexer.linear(first), count)

    together = all(x - firsts[0] == n * PART for n, x in enumerate(firsts))
    data = part(firsts[0], lanes.count) if together else ctx.code.concat([part(x, PART) for x in firsts])
    return shuffled(ctx.code, data, ctx.code.splat(ctx.evaluate(ctx.flattener.value(place)), lanes.count))


def _load_scalar(ctx: Context, info: BufferInfo, form: Linear) -> Value:
    return _load_as(ctx, info, form, memory_type(info.dtype))


def _load_as(ctx: Context, info: BufferInfo, form: Linear, t: str) -> Value:
    return ctx.code.emit(t, 0, f"load {t}, ptr {_pointer(ctx, info, form)}, {_align(info)}")


def _load_uniform(ctx: Context, info: BufferInfo, offset: IntExpr, t: str) -> Value:
    """The same address for all lanes: not touched when every lane is off."""
    lanes = ctx.lanes
    if lanes is None or lanes.mask is None or lanes.tail:
        return _load_as(ctx, info, ctx.indexer.linear(offset), t)
    any_on = ctx.code.any_lane(lanes.mask)
    zero = Value(t, 0, zero_text(t))
    return ctx.branch_on(any_on.text, lambda: _load_as(ctx, info, ctx.indexer.linear(offset), t), lambda: zero)


def zero_text(scalar: str) -> str:
    """The literal zero of an LLVM scalar type."""
    return "0x0000000000000000" if scalar in ("float", "double") else "0"


def _load_vector(ctx: Context, info: BufferInfo, base: IntExpr, lanes: Lanes) -> Value:
    t = memory_type(info.dtype)
    ptr = _pointer(ctx, info, ctx.indexer.linear(base))
    vt = full_type(t, lanes.count)
    if lanes.mask is None or _is_inside(ctx, info, base, lanes):
        return ctx.code.emit(t, lanes.count, f"load {vt}, ptr {ptr}, {_align(info)}")
    if lanes.elsewhere:
        any_on = ctx.code.any_lane(lanes.mask)
        ptr = ctx.code.select(any_on, Value("ptr", 0, ptr), Value("ptr", 0, info.pointer)).text
    return _masked_load(ctx, info, ptr, lanes.mask, Value(t, lanes.count, "zeroinitializer"))


def _is_inside(ctx: Context, info: BufferInfo, base: IntExpr, lanes: Lanes) -> bool:
    """True if a full vector at ``base`` lies inside a local buffer whatever the mask."""
    if not info.local or info.capacity is None:
        return False
    if lanes.tail:
        return True  # lane 0 is a valid element, and the buffer is padded by a vector
    lo, hi = ctx.indexer.bounds(base)
    return lo is not None and hi is not None and lo >= 0 and hi + lanes.count <= info.capacity


def _load_strided(ctx: Context, info: BufferInfo, base: IntExpr, stride: int, lanes: Lanes) -> Value:
    """Every ``stride``-th element by vector loads that stay between the first and last element, and shuffles."""
    n, step = lanes.count, abs(stride)
    span = (n - 1) * step + 1
    form = ctx.indexer.linear(base)
    first = form.const if stride > 0 else form.const - (n - 1) * step
    t = memory_type(info.dtype)
    wanted = [(i if stride > 0 else n - 1 - i) * step for i in range(n)]
    starts = sorted({min(c * n, span - n) for c in range(step)}) if span >= n else [0]
    acc: Value | None = None
    filled: list[int] = [-1] * n
    for start in starts:
        ptr = _pointer(ctx, info, Linear(first + start, form.terms))
        chunk = ctx.code.emit(t, n, f"load {full_type(t, n)}, ptr {ptr}, {_align(info)}")
        inside = [start <= w < start + n for w in wanted]
        if acc is None:
            acc = ctx.code.shuffle(chunk, None, [w - start if ok else 0 for w, ok in zip(wanted, inside, strict=True)])
        else:
            picks = [
                n + w - start if ok and filled[i] < 0 else i
                for i, (w, ok) in enumerate(zip(wanted, inside, strict=True))
            ]
            acc = ctx.code.shuffle(acc, chunk, picks)
        filled = [1 if ok else f for f, ok in zip(filled, inside, strict=True)]
    if acc is None:
        raise InternalError("codegen: a strided load without lanes")
    return acc


def _load_limited(ctx: Context, info: BufferInfo, index: Limited, lanes: Lanes) -> Value:
    n = lanes.count
    last = _load_scalar(ctx, info, ctx.indexer.linear(index.last))
    ptr = _pointer(ctx, info, ctx.indexer.linear(index.rest + index.first))
    return _masked_load(ctx, info, ptr, lanes_below(ctx, index, lanes), ctx.code.splat(last, n))


def _masked_load(ctx: Context, info: BufferInfo, ptr: str, mask: Value, others: Value) -> Value:
    """Elements from ``ptr`` on where ``mask`` is on; no other element is touched."""
    name = f"llvm.masked.load.{suffix(others.type, mask.lanes)}.p0"
    ctx.code.module.declare(name, others.full, ("ptr", "i32", mask.full, others.full))
    call = f"call {others.full} @{name}(ptr {ptr}, i32 {info.dtype.itemsize}, {mask.typed}, {others.typed})"
    return ctx.code.emit(others.type, mask.lanes, call)


def _gather_masked(ctx: Context, info: BufferInfo, offset: IntExpr, lanes: Lanes) -> Value:
    if lanes.mask is None:
        raise InternalError("codegen: a masked gather without a mask")
    t = memory_type(info.dtype)
    if reads_memory(offset):
        # the address itself is read from memory: lane by lane, behind a branch each
        parts = []
        for lane in range(lanes.count):
            bit = ctx.code.extract(lanes.mask, lane)

            def on(lane: int = lane) -> Value:
                with ctx.scalar_at(lane):
                    return _load_scalar(ctx, info, ctx.indexer.linear(offset))

            parts.append(ctx.branch_on(bit.text, on, lambda: Value(t, 0, zero_text(t))))
        return ctx.code.gather_lanes(parts)
    pointers = _lane_pointers(ctx, info, offset, lanes)
    vt = full_type(t, lanes.count)
    name = f"llvm.masked.gather.{suffix(t, lanes.count)}.{suffix('ptr', lanes.count)}"
    ctx.code.module.declare(name, vt, (pointers.full, "i32", lanes.mask.full, vt))
    return ctx.code.emit(
        t,
        lanes.count,
        f"call {vt} @{name}({pointers.typed}, i32 {info.dtype.itemsize}, {lanes.mask.typed}, {vt} zeroinitializer)",
    )


def _lane_pointers(ctx: Context, info: BufferInfo, offset: IntExpr, lanes: Lanes) -> Value:
    offsets = ctx.code.splat(index_vector(ctx, offset, lanes), lanes.count)
    t = memory_type(info.dtype)
    return ctx.code.emit("ptr", lanes.count, f"getelementptr {t}, ptr {info.pointer}, {offsets.typed}")


def index_uniform(ctx: Context, e: IntExpr) -> Value:
    """An integer expression that is the same for all lanes, as i64; memory is not touched when every lane is off."""
    lanes = ctx.lanes
    if lanes is None or lanes.mask is None or lanes.tail or not reads_memory(e):
        return Value("i64", 0, ctx.indexer.operand(e))
    any_on = ctx.code.any_lane(lanes.mask)
    return ctx.branch_on(any_on.text, lambda: Value("i64", 0, ctx.indexer.operand(e)), lambda: Value("i64", 0, "0"))


def index_vector(ctx: Context, e: IntExpr, lanes: Lanes) -> Value:
    """An integer expression in every lane, as i64, a scalar where it is written alike for all of them; lanes that are
    off touch no memory."""
    form = ctx.split(e, lanes)
    code, n = ctx.code, lanes.count
    if form is not None and not form[0].free_vars() & {lanes.var}:
        base = index_uniform(ctx, form[1])
        if form[0] == 0:
            return code.splat(base, n)
        steps = code.lane_numbers(n, "i64")
        if form[0] != 1:
            steps = code.binary("mul nsw", steps, index_uniform(ctx, form[0]))
        return code.binary("add nsw", steps, base)
    parts = []
    for lane in range(n):

        def one(lane: int = lane) -> Value:
            with ctx.scalar_at(lane):
                return Value("i64", 0, ctx.indexer.operand(e))

        if lanes.mask is not None and reads_memory(e):
            parts.append(ctx.branch_on(code.extract(lanes.mask, lane).text, one, lambda: Value("i64", 0, "0")))
        else:
            parts.append(one())
    return parts[0] if len({p.text for p in parts}) == 1 else code.gather_lanes(parts)


# -- stores ----------------------------------------------------------------------------------------------------------
def _store_scalar(ctx: Context, info: BufferInfo, form: Linear, raw: Value) -> None:
    ctx.code.line(f"store {raw.typed}, ptr {_pointer(ctx, info, form)}, {_align(info)}")


def _store_vector(ctx: Context, info: BufferInfo, base: IntExpr, raw: Value, lanes: Lanes) -> None:
    code = ctx.code
    ptr = _pointer(ctx, info, ctx.indexer.linear(base))
    if lanes.mask is not None and _is_inside(ctx, info, base, lanes):
        old = code.emit(raw.type, raw.lanes, f"load {raw.full}, ptr {ptr}, {_align(info)}")
        raw = code.select(lanes.mask, raw, old)
    elif lanes.mask is not None:
        name = f"llvm.masked.store.{suffix(raw.type, raw.lanes)}.p0"
        code.module.declare(name, "void", (raw.full, "ptr", "i32", lanes.mask.full))
        code.line(f"call void @{name}({raw.typed}, ptr {ptr}, i32 {info.dtype.itemsize}, {lanes.mask.typed})")
        return
    unit = code.target.lanes(info.dtype.itemsize)
    whole = lanes.mask is None and lanes.count % unit == 0
    if ctx.streaming and whole and _is_multiple(ctx.indexer.linear(base), unit):
        _store_streaming(ctx, info, ptr, raw, unit * info.dtype.itemsize)
        return
    code.line(f"store {raw.typed}, ptr {ptr}, {_align(info)}")


def _is_multiple(form: Linear, count: int) -> bool:
    return form.const % count == 0 and all(c % count == 0 for c in form.terms.values())


def _store_streaming(ctx: Context, info: BufferInfo, ptr: str, raw: Value, size: int) -> None:
    """Whole registers of ``size`` bytes past the caches if the buffer starts at a multiple of it, else as usual."""
    code = ctx.code
    ctx.has_streamed = True
    number = ctx.indexer.pure(0, f"ptrtoint ptr {info.pointer} to i64")
    rest = ctx.indexer.pure(0, f"and i64 {number}, {size - 1}")
    aligned = code.emit("i1", 0, f"icmp eq i64 {rest}, 0")
    past, usual, after = code.new_block("past"), code.new_block("usual"), code.new_block("stored")
    code.branch_if(aligned.text, past, usual)
    code.start(past)
    code.line(f"store {raw.typed}, ptr {ptr}, align {size}, !nontemporal !{{i32 1}}")
    code.branch(after)
    code.start(usual)
    code.line(f"store {raw.typed}, ptr {ptr}, {_align(info)}")
    code.branch(after)
    code.start(after)


def _scatter(ctx: Context, info: BufferInfo, offset: IntExpr, raw: Value, lanes: Lanes) -> None:
    """Lane by lane in order; where a mask is set, behind a branch each."""
    code = ctx.code
    for lane in range(lanes.count):
        element = code.extract(raw, lane)
        if lanes.mask is None:
            with ctx.scalar_at(lane):
                _store_scalar(ctx, info, ctx.indexer.linear(offset), element)
            continue
        bit = code.extract(lanes.mask, lane)
        on, after = code.new_block("lane"), code.new_block("next")
        code.branch_if(bit.text, on, after)
        code.start(on)
        with ctx.scalar_at(lane):
            _store_scalar(ctx, info, ctx.indexer.linear(offset), element)
        code.branch(after)
        code.start(after)


__all__ = [
    "from_memory", "index_uniform", "index_vector", "load", "prefetch", "reads_memory", "store",
    "to_memory", "zero_text",
]  # fmt: skip
