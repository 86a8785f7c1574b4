"""Which stages melt into their readers before anything is tiled."""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import as_var
from tilewright.schedule.rules.facts import (
    all_blocks,
    expr_cost,
    expr_size,
    is_multiply_add,
    is_plain_read,
    is_reduction,
    is_spatial,
    output_buffers,
)
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers
from tilewright.tensor_ir.ir import Block, loads

_MAX_SIZE = 400
_CHEAP = 6


def inline_stages(s: Schedule) -> None:
    """Inline every elementwise or data-moving stage for which it costs nothing; refused steps are left alone."""
    kept: set[str] = set()
    while (block := _next(s, kept)) is not None:
        try:
            s.compute_inline(block.name)
        except ScheduleError:
            kept.add(block.name)


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
    uses = sum(1 for b in users for x in loads(b.value) if x.buffer == block.buffer)
    if uses > 1 and expr_size(block.value) * uses > _MAX_SIZE:
        return False
    cost = expr_cost(block.value)
    if len(users) > 1 and cost and _finishes_product(s, block):
        return False
    for user in users:
        if is_multiply_add(user) and (not is_plain_read(block.value) or _is_packed_operand(block, user)):
            return False
        if is_reduction(user) and cost > _CHEAP and len(users) > 1:
            return False
    return cost <= _CHEAP or len(users) <= 1


def _finishes_product(s: Schedule, block: Block) -> bool:
    """True if the block reads the result of a sum of products: it is what writes the product's tiles."""
    made = {b.buffer for b in all_blocks(s.func) if is_multiply_add(b)}
    return any(x.buffer in made for x in loads(block.value))


def _is_packed_operand(stage: Block, user: Block) -> bool:
    """True if ``user`` reads the stage along both of its innermost result axes: packed panels."""
    axes = [a.name for a in user.axes if a.kind == "spatial"][-2:]
    reads = [x.indices for x in loads(user.value) if x.buffer == stage.buffer]
    return len(axes) == 2 and all(
        as_var(index[-1]) == axes[1] and any(axes[0] in i.free_vars() for i in index[:-1]) for index in reads
    )
