"""The default schedule: a trace by rule for each class of function, taken from its structure and the target alone.

``default_trace(func, target)`` is deterministic, never fails, and gives a trace that replays like any other. Classes:
chains (two products with a softmax between), register tiles (matrix products, convolutions, pooling, outer reductions),
rows (softmax, norms, inner reductions), spatial (elementwise, data movement, gathers); blocks with ordered axes stay as
they were declared.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.decisions import Decider, DefaultDecider
from tilewright.schedule.rules.chains import try_chain
from tilewright.schedule.rules.facts import (
    all_blocks,
    block_accesses,
    is_reduction,
    is_spatial,
    loops_of,
    output_buffers,
    reduce_loops,
)
from tilewright.schedule.rules.inlining import inline_stages
from tilewright.schedule.rules.rows import schedule_reduction, try_rows
from tilewright.schedule.rules.spatial import schedule_spatial
from tilewright.schedule.rules.tiles import try_tile
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import consumers
from tilewright.tensor_ir.ir import Block, Func


def default_trace(func: Func, target: Target) -> Trace:
    """The trace that ``compile`` uses for a function without a tuned record."""
    return schedule_by_rule(func, target, DefaultDecider()).trace


def schedule_by_rule(func: Func, target: Target, decider: Decider) -> Schedule:
    """The rules' schedule with ``decider`` taking their decisions: a point of the search space that the rules span."""
    s = Schedule(func, decider=decider)
    inline_stages(s)
    done: set[str] = set()
    while (block := _next(s, done)) is not None:
        before = {b.name for b in all_blocks(s.func)}
        s = _schedule_nest(s, block, target, done)
        done |= {b.name for b in all_blocks(s.func)} - before
        done.add(block.name)
    return s


def _next(s: Schedule, done: set[str]) -> Block | None:
    """The last block in program order that has no schedule yet: consumers before their producers."""
    return next((b for b in reversed(all_blocks(s.func)) if b.name not in done), None)


def _schedule_nest(s: Schedule, block: Block, target: Target, done: set[str]) -> Schedule:
    if is_spatial(block):
        if (chained := try_chain(s, block.name, target, done)) is not None:
            return chained
        feeders = [b for b in all_blocks(s.func) if b.name not in done and is_reduction(b) and _feeds(s, b, block)]
        for feeder in feeders:
            if not _row_like(s, feeder) and (tiled := try_tile(s, feeder.name, block.name, target)) is not None:
                done.add(feeder.name)
                return tiled
        if feeders and (rows := try_rows(s, block.name, target, done)) is not None:
            return rows
        return _attempt(s, lambda a: schedule_spatial(a, block.name, target))
    if is_reduction(block) and all(a.kind != "ordered" for a in block.axes):
        if not _row_like(s, block):
            attempt = s.copy()
            try:
                attempt.cache_write(block.name, "local")
            except ScheduleError:
                return s
            made = [b for b in all_blocks(attempt.func) if b.buffer == block.buffer]
            reduction = next(b for b in all_blocks(attempt.func) if is_reduction(b) and b.name == block.name)
            if made and (tiled := try_tile(attempt, reduction.name, made[0].name, target)) is not None:
                return tiled
        return _attempt(s, lambda a: schedule_reduction(a, block.name, target))
    return s


def _attempt(s: Schedule, apply: Callable[[Schedule], None]) -> Schedule:
    """``s`` with the rule applied to a copy, or as it was if a step is refused."""
    attempt = s.copy()
    try:
        apply(attempt)
    except ScheduleError:
        return s
    return attempt


def _feeds(s: Schedule, producer: Block, consumer: Block) -> bool:
    """True if only ``consumer`` reads the producer's buffer."""
    users = consumers(s.func, producer.buffer)
    return [u.name for u in users] == [consumer.name] and producer.buffer not in output_buffers(s.func)


def _row_like(s: Schedule, block: Block) -> bool:
    """True if the innermost reduction loop runs over neighbours and no other loop gives vectors."""
    steps = reduce_loops(s.func, block.name)
    if not steps:
        return False
    accesses = block_accesses(s.func, block.name)
    spatial = [x.var for x in loops_of(s.func, block.name) if x.var not in steps]
    inner = [x for x in accesses if not x.is_store]
    unit_reduce = any(x.stride(steps[-1]) == 1 for x in inner)
    store = next(x for x in accesses if x.is_store)
    unit_spatial = any(
        store.stride(n) == 1 and all(x.stride(n) in (0, 1) for x in inner) and any(x.stride(n) == 1 for x in inner)
        for n in spatial
    )
    return unit_reduce and not unit_spatial
