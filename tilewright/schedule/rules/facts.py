"""What the default rules read off a function: strides, reuse, sizes, who feeds whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilewright.core.arith.bounds import upper_bound
from tilewright.core.arith.expr import ZERO, IntExpr, as_var, const, product
from tilewright.core.dtypes import DType
from tilewright.machine.costs import Costs
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.access import address, stride
from tilewright.tensor_ir.analysis.scopes import (
    block_environment,
    blocks_in,
    buffers,
    consumers,
    find_block,
    loop_ranges,
    loops_around,
)
from tilewright.tensor_ir.ir import Block, Buffer, Expr, Func, Load, Loop, Op, Store, loads, walk, walk_expr
from tilewright.tensor_ir.scalar_ops import DOT_PRODUCTS, SCALAR_OPS


@dataclass(frozen=True, slots=True)
class StridedAccess:
    """A load or the store of a block, as an address over the loops around it."""

    buffer: str
    dtype: DType
    address: IntExpr
    is_store: bool
    strides: dict[str, IntExpr | None]

    def stride(self, loop: str) -> int | None:
        """Elements between successive steps of ``loop``; None if it varies or is symbolic."""
        s = self.strides.get(loop)
        return None if s is None else s.value()


def block_accesses(func: Func, name: str) -> list[StridedAccess]:
    """The store, then the distinct loads of a block (its own accumulator left out)."""
    block = find_block(func, name)
    loops = loops_around(func, name)
    ranges = loop_ranges(loops)
    shapes = {b.name: b for b in buffers(func)}
    env = block_environment(block)
    store = Store(block.buffer, block.indices, block.value)
    out: list[StridedAccess] = []
    seen: set[object] = set()
    operands: tuple[Store | Load, ...] = (store, *loads(block.value))
    for a in operands:
        key = (a.buffer, a.indices)
        if key in seen:
            continue
        seen.add(key)
        at = address(a, shapes[a.buffer].shape, env, ranges)
        strides = {x.var: stride(at, x.var, ranges) for x in loops}
        out.append(StridedAccess(a.buffer, shapes[a.buffer].dtype, at, a is store, strides))
    return out


def is_reduction(block: Block) -> bool:
    return any(a.kind == "reduce" for a in block.axes)


def is_spatial(block: Block) -> bool:
    return all(a.kind == "spatial" for a in block.axes)


def _product_of(block: Block) -> Op | None:
    """The product that a reduction sums up, or the dot product, the first of several; None if it sums up something
    else."""
    v = block.value
    if not is_reduction(block) or not isinstance(v, Op) or v.name != "add" or len(v.args) != 2:
        return None
    step = v.args[1]
    while isinstance(step, Op) and step.name == "add" and _is_product(step.args[1], DOT_PRODUCTS):
        step = step.args[0]
    return step if isinstance(step, Op) and _is_product(step, ("mul", *DOT_PRODUCTS)) else None


def _is_product(e: Expr, names: Collection[str]) -> bool:
    return isinstance(e, Op) and e.name in names


def is_multiply_add(block: Block) -> bool:
    """True for ``acc = acc + a * b`` (or a dot product) with loads on both sides: the block reuses what it reads."""
    product = _product_of(block)
    return product is not None and all(any(True for _ in loads(a)) for a in product.args)


def expr_cost(e: Expr) -> int:
    """Scalar operations in a value."""
    return sum(SCALAR_OPS[x.name].flops for x in walk_expr(e) if isinstance(x, Op))


def expr_size(e: Expr) -> int:
    """Nodes of a value, each use counted."""
    return sum(1 for _ in walk_expr(e))


def is_plain_read(e: Expr) -> bool:
    """True if a value only moves data: loads and casts, no arithmetic."""
    return not any(isinstance(x, Op) for x in walk_expr(e)) and any(isinstance(x, Load) for x in walk_expr(e))


def loops_of(func: Func, block: str) -> list[Loop]:
    """The loops around a block, outermost first."""
    return list(loops_around(func, block))


def reduce_loops(func: Func, name: str) -> list[str]:
    """The loops around a block that its reduce axes are bound to, outermost first."""
    block = find_block(func, name)
    bound: set[str] = set()
    for axis, binding in zip(block.axes, block.bindings, strict=True):
        if axis.kind == "reduce":
            bound |= binding.free_vars()
    return [x.var for x in loops_around(func, name) if x.var in bound]


def varying_loops(func: Func, reader: str, buffers: Collection[str]) -> list[str]:
    """The loops around a block over which what it reads of ``buffers`` varies, outermost first."""
    block = find_block(func, reader)
    env = block_environment(block)
    read = {
        v for x in loads(block.value) if x.buffer in buffers for i in x.indices for v in i.substitute(env).free_vars()
    }
    return [x.var for x in loops_of(func, reader) if x.var in read]


def shared_loops(func: Func, block: str) -> list[str]:
    """The loops around a block that other blocks are in as well, outermost first."""
    return [x.var for x in loops_around(func, block) if len(blocks_in(x.body)) > 1]


def nanoseconds(func: Func, name: str, costs: Costs) -> float | None:
    """A rough time of a block on one thread: its arithmetic or its memory traffic, None if a size is symbolic."""
    block = find_block(func, name)
    points = product(a.extent for a in block.axes).value()
    known = {b.name: b for b in buffers(func)}
    sizes = [buffer_bytes(known[n]) for n in _buffers_used(block)]
    if points is None or any(x is None for x in sizes):
        return None
    moved = min(sum(x for x in sizes if x is not None), 8 * points)
    return max(points * _arithmetic(block, costs), moved / costs.memory_rate)


def _arithmetic(block: Block, costs: Costs) -> float:
    """Nanoseconds of what a point of a block computes."""
    rate = costs.multiply_add_rate if is_multiply_add(block) else costs.operation_rate
    return max(1, expr_cost(block.value)) / rate


def picoseconds_inside(func: Func, loop: Loop, costs: Costs) -> IntExpr | None:
    """The same of all blocks inside a loop, all iterations, in the function's dims; None if they do not decide it."""
    inner = [x for x in walk(loop) if isinstance(x, Loop)]
    ranges = loop_ranges(inner)
    local = {b.name for b in buffers(func) if b.scope == "local"}
    total = ZERO
    for block in blocks_in(loop.body):
        cost = _arithmetic(block, costs)
        if is_spatial(block) and local.isdisjoint(_buffers_used(block)):
            cost = max(cost, 8 / costs.memory_rate)
        points = const(max(1, round(1000 * cost)))
        around = loops_around(func, block.name)
        for x in around[[x.var for x in around].index(loop.var) :]:
            extent = x.extent
            if not extent.free_vars() <= set(func.dims):
                most = upper_bound(extent, ranges)
                if most is None:
                    return None
                extent = const(most)
            points = points * extent
        total = total + points
    return total


def total_nanoseconds(func: Func, names: Iterable[str], costs: Costs) -> float | None:
    """The sum of :func:`nanoseconds` of several blocks, None if one of them is."""
    amounts = [nanoseconds(func, n, costs) for n in names]
    known = [a for a in amounts if a is not None]
    return sum(known) if len(known) == len(amounts) else None


def buffer_bytes(b: Buffer) -> int | None:
    """The size of a buffer, None if it is symbolic."""
    count = product(b.shape).value()
    return None if count is None else count * b.dtype.itemsize


def _buffers_used(block: Block) -> set[str]:
    return {block.buffer, *(x.buffer for x in loads(block.value))}


def all_blocks(func: Func) -> list[Block]:
    """The blocks in program order."""
    return blocks_in(func.body)


def output_buffers(func: Func) -> frozenset[str]:
    return frozenset(b.name for b in func.params[len(func.params) - func.outputs :])


def widest_itemsize(func: Func, name: str) -> int:
    """The largest element that a block loads or stores, in bytes; narrow floats count as float32."""
    block = find_block(func, name)
    types = [b.dtype for b in buffers(func) if b.name == block.buffer] + [x.dtype for x in loads(block.value)]
    return max(4 if t.is_narrow_float else t.itemsize for t in types)


def reduction_feeders(s: Schedule, consumer: str) -> list[str]:
    """Reductions that only ``consumer`` reads, in program order."""
    outputs = output_buffers(s.func)
    read = {x.buffer for x in loads(find_block(s.func, consumer).value)}
    return [
        b.name
        for b in all_blocks(s.func)
        if b.buffer in read
        and is_reduction(b)
        and b.buffer not in outputs
        and [u.name for u in consumers(s.func, b.buffer)] == [consumer]
    ]


def is_row_like(s: Schedule, name: str) -> bool:
    """True if the innermost reduction loop runs over neighbours and no other loop gives vectors."""
    steps = reduce_loops(s.func, name)
    if not steps:
        return False
    accesses = block_accesses(s.func, name)
    spatial = [x.var for x in loops_of(s.func, name) if x.var not in steps]
    inner = [x for x in accesses if not x.is_store]
    unit_reduce = any(x.stride(steps[-1]) == 1 for x in inner)
    store = next(x for x in accesses if x.is_store)
    unit_spatial = any(
        store.stride(n) == 1 and all(x.stride(n) in (0, 1) for x in inner) and any(x.stride(n) == 1 for x in inner)
        for n in spatial
    )
    return unit_reduce and not unit_spatial


def reads_windows(reduction: Block, buffers: Collection[str]) -> bool:
    """True if ``reduction`` goes over windows of one of ``buffers``, which may share elements."""
    steps = {a.name for a in reduction.axes if a.kind != "spatial"}
    places = [i.free_vars() for x in loads(reduction.value) if x.buffer in buffers for i in x.indices]
    return any(names & steps and names - steps for names in places)


def is_packed_operand(stage: str, user: Block) -> bool:
    """True if ``user`` reads buffer ``stage`` along both of its innermost result axes: packed panels."""
    axes = [a.name for a in user.axes if a.kind == "spatial"][-2:]
    reads = [x.indices for x in loads(user.value) if x.buffer == stage]
    return (
        bool(reads)
        and len(axes) == 2
        and all(
            bool(index)
            and as_var(index[-1]) == axes[1]
            and any(axes[0] in i.free_vars() and i.is_plain for i in index[:-1])
            for index in reads
        )
    )
