"""Which stages melt into their readers before anything is tiled."""

from __future__ import annotations

from tilewright.core.arith.expr import FloorDiv, Mod
from tilewright.core.errors import ScheduleError
from tilewright.schedule.rules.facts import (
    all_blocks,
    expr_cost,
    expr_size,
    is_multiply_add,
    is_packed_operand,
    is_plain_read,
    is_reduction,
    is_row_like,
    is_spatial,
    output_buffers,
    shared_loops,
)
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers
from tilewright.tensor_ir.ir import Block, Cast, Dyn, Index, Load, Op, loads, walk_expr, walk_index

_MAX_SIZE = 400
_CHEAP = 6


def inline_stages(s: Schedule, keep: frozenset[str] = frozenset()) -> None:
    """Inline every elementwise or data-moving stage for which it costs nothing; refused steps are left alone.

    ``keep``: blocks that a later rule wants as stages of their own.
    """
    refused = set(keep)
    kept = set(refused)
    while (block := _next(s, kept)) is not None:
        try:
            s.compute_inline(block.name)
        except ScheduleError:
            refused.add(block.name)
            kept.add(block.name)
        else:
            kept = set(refused)  # a stage may have fewer readers now


def _next(s: Schedule, kept: set[str]) -> Block | None:
    outputs = output_buffers(s.func)
    for block in all_blocks(s.func):
        if block.buffer in outputs or block.name in kept or not is_spatial(block):
            continue
        if _should_inline(s, block):
            return block
        kept.add(block.name)
    return None


def _should_inline(s: Schedule, block: Block) -> bool:
    users = consumers(s.func, block.buffer)
    finishes = _finishes_tiles(s, block)
    if finishes and any(_is_shuffled(user, block.buffer) for user in users):
        return False
    uses = sum(1 for b in users for x in loads(b.value) if x.buffer == block.buffer)
    if uses > 1 and expr_size(block.value) * uses > _MAX_SIZE:
        return False
    if any(_is_apart(s, block, user) for user in users):
        return False
    if any(is_sampled(block, user) or _is_table(s, block, user) or _reorders(block, user) for user in users):
        return False
    cost = expr_cost(block.value)
    if finishes and cost and len(users) > 1:
        return False
    for user in users:
        if is_multiply_add(user) and (not is_plain_read(block.value) or is_packed_operand(block.buffer, user)):
            return False
        if is_reduction(user) and cost > _CHEAP and len(users) > 1:
            return False
    return cost <= _CHEAP or len(users) <= 1


def is_sampled(stage: Block, user: Block) -> bool:
    """True if ``user`` combines elements of a computed ``stage`` at positions read from memory along its last axis.

    They have to be collected one by one, each more than once: from a stage in memory, not by computing them again.
    """
    last = {x.indices[-1] for x in loads(user.value) if x.buffer == stage.buffer and x.indices}
    several = len(last) > 1 or (is_reduction(user) and bool(last))
    return several and expr_cost(stage.value) > 0 and all(next(walk_index(i), None) is not None for i in last)


def _reorders(stage: Block, user: Block) -> bool:
    """True if ``user`` takes bytes of a computed ``stage`` from among neighbours, as an instruction does in memory."""
    read = user.value
    if not isinstance(read, Load) or read.buffer != stage.buffer or is_plain_read(stage.value):
        return False
    places = [a.value for a in read.indices[-1].atoms() if isinstance(a, Dyn)]
    values = [p.value if isinstance(p, Cast) else p for p in places]
    return any(isinstance(v, Op) and v.name == "bit_and" and v.dtype.itemsize == 1 for v in values)


def _is_table(s: Schedule, stage: Block, user: Block) -> bool:
    """True if ``stage`` is costly, made of indices and few elements, and ``user`` reads each of its elements often."""
    if expr_cost(stage.value) <= _CHEAP or is_reduction(user):
        return False
    if any(is_reduction(b) for b in all_blocks(s.func) if b.buffer in {x.buffer for x in loads(stage.value)}):
        return False
    used = frozenset[str]().union(
        *(i.free_vars() for x in loads(user.value) if x.buffer == stage.buffer for i in x.indices)
    )
    repeats = any(a.name not in used and a.extent != 1 for a in user.axes)
    ranks = [len(x.indices) for x in loads(stage.value)]
    return repeats and max(ranks, default=0) <= 1 and any(isinstance(x, Index) for x in walk_expr(stage.value))


def _finishes_tiles(s: Schedule, block: Block) -> bool:
    """True if the stage takes the results of a product out of its accumulator."""
    products = {b.buffer for b in all_blocks(s.func) if is_multiply_add(b)}
    return any(x.buffer in products for x in loads(block.value))


def _is_shuffled(user: Block, buffer: str) -> bool:
    """True if ``user`` reads ``buffer`` at quotients or remainders: its loops cannot walk over the buffer's tiles."""
    reads = (x.indices for x in loads(user.value) if x.buffer == buffer)
    return any(isinstance(a, (FloorDiv, Mod)) for index in reads for i in index for a in i.atoms())


def _is_apart(s: Schedule, stage: Block, user: Block) -> bool:
    """True if ``stage`` finishes a reduction that a tile can take in, and ``user`` cannot be that tile.

    It cannot among other blocks, and not where it reads an element in more than one place.
    """
    read = {x.buffer for x in loads(stage.value)}
    sums = [b for b in all_blocks(s.func) if is_reduction(b) and b.buffer in read and not is_row_like(s, b.name)]
    if not any([u.name for u in consumers(s.func, b.buffer)] == [stage.name] for b in sums):
        return False
    indices = [i for x in loads(user.value) if x.buffer == stage.buffer for i in x.indices]
    used = frozenset[str]().union(*(i.free_vars() for i in indices))
    repeats = any(a.name not in used and a.extent != 1 for a in user.axes)
    return repeats or bool(shared_loops(s.func, user.name))
