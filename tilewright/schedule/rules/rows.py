"""Reductions along the contiguous axis: softmax, layer norm, sums, means, maxima.

Each row belongs to one thread; the stages of a row run one after the other on a row buffer that stays in cache; a
reduction keeps several vectors of partial results (``rfactor``) and combines them at the end of the
row. Decision: ``<block>.partials``, how many vectors.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_reduction,
    is_spatial,
    loops_of,
    nanoseconds,
    output_buffers,
    reduce_loops,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.spatial import peel_if_ragged, vectorize_inner
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, loads_of
from tilewright.tensor_ir.ir import loads

_PARTIALS = 4
_PARTIAL_COUNTS = (1, 2, 4, 8)


def try_rows(s: Schedule, consumer: str, target: Target, done: set[str]) -> Schedule | None:
    """``consumer`` with everything that feeds it computed row by row, on a copy; None if a step is refused."""
    feeders = feeders_of(s, consumer, done)
    rows = _row_loops(s, consumer, feeders)
    if not feeders or not rows:
        return None
    attempt = s.copy()
    try:
        _schedule_rows(attempt, consumer, feeders, rows, target)
    except ScheduleError:
        return None
    done.update(feeders)
    return attempt


def feeders_of(s: Schedule, consumer: str, done: set[str]) -> list[str]:
    """Unscheduled blocks that end up only in ``consumer``, producers first."""
    outputs = output_buffers(s.func)
    blocks = [b for b in all_blocks(s.func) if b.name not in done]
    chosen = {consumer}
    for b in reversed(blocks):
        users = [u.name for u in all_blocks(s.func) if u.buffer != b.buffer and b.buffer in {
            x.buffer for x in loads_of(u)}]  # fmt: skip
        plain = is_spatial(b) or all(a.kind != "ordered" for a in b.axes)
        if b.buffer not in outputs and users and plain and all(u in chosen for u in users):
            chosen.add(b.name)
    return [b.name for b in blocks if b.name in chosen and b.name != consumer]


def _row_loops(s: Schedule, consumer: str, feeders: list[str]) -> list[str]:
    """Loops of the consumer over which the results of the reductions vary: the rows."""
    block = find_block(s.func, consumer)
    env = block_environment(block)
    reduced = {find_block(s.func, f).buffer for f in feeders if is_reduction(find_block(s.func, f))}
    names = [x.var for x in loops_of(s.func, consumer)]
    used: set[str] = set()
    for x in loads(block.value):
        if x.buffer in reduced:
            used |= {v for i in x.indices for v in i.substitute(env).free_vars()}
    return [n for n in names if n in used]


def _schedule_rows(s: Schedule, consumer: str, feeders: list[str], rows: list[str], target: Target) -> None:
    amounts = [nanoseconds(s.func, b) for b in (*feeders, consumer)]
    total = None if any(a is None for a in amounts) else sum(a for a in amounts if a is not None)
    rest = [x.var for x in loops_of(s.func, consumer) if x.var not in rows]
    s.reorder(*rows, *rest)
    for name in reversed(feeders):
        s.compute_at(name, rows[-1])
    for name in feeders:
        if is_reduction(find_block(s.func, name)):
            vectorize_reduction(s, name, target)
        else:
            vectorize_inner(s, name, len(rows), target)
    vectorize_inner(s, consumer, len(rows), target)
    parallelize(s, consumer, rows, total, target)


def vectorize_reduction(s: Schedule, block: str, target: Target) -> None:
    """Vector partial results for the innermost reduction loop of ``block`` (unit stride), combined afterwards."""
    steps = reduce_loops(s.func, block)
    if not steps:
        return
    lanes = target.lanes(widest_itemsize(s.func, block))
    extent = next(x.extent.value() for x in loops_of(s.func, block) if x.var == steps[-1])
    if lanes == 1 or (extent is not None and extent < 2 * lanes):
        return
    width = lanes * _PARTIALS
    while extent is not None and width > lanes and (extent < 2 * width or extent % width > extent % lanes):
        width //= 2
    options = tuple(n for n in _PARTIAL_COUNTS if extent is None or n * lanes <= extent)
    width = lanes * int(s.sample_categorical(f"{block}.partials", options, width // lanes))
    attempt = s.copy()
    try:
        _partial_sums(attempt, block, steps, width, lanes)
    except ScheduleError:
        return
    s.adopt(attempt)


def _partial_sums(s: Schedule, block: str, steps: list[str], width: int, lanes: int) -> None:
    _, inner = s.split(steps[-1], (None, width))
    _factor(s, block, inner, lanes, unroll_steps=False)
    if width > lanes:
        _, inner = s.split(reduce_loops(s.func, block)[-1], (None, lanes))
        _factor(s, block, inner, lanes, unroll_steps=True)
    s.unroll(reduce_loops(s.func, block)[-1])


def _factor(s: Schedule, block: str, loop: str, lanes: int, unroll_steps: bool) -> None:
    """``rfactor`` of ``loop``, the partial results as vectors."""
    known = set(s.blocks())
    s.rfactor(loop)
    partial = next(b for b in s.blocks() if b not in known)
    steps = reduce_loops(s.func, partial)
    if not steps:
        raise ScheduleError(f"{block}: partial results of one step each")
    init = s.decompose_reduction(partial, steps[0])
    for name in (partial, init):
        own = [x.var for x in loops_of(s.func, name)]
        last = loop if name == partial and loop in own else own[-1]
        extent = next(x.extent.value() for x in loops_of(s.func, name) if x.var == last)
        if extent is None or extent > lanes:
            middle, last = s.split(last, (None, lanes))
            s.unroll(middle)
        s.vectorize(last)
    if unroll_steps:
        for name in steps:
            s.unroll(name)
    else:
        peel_if_ragged(s, partial, steps[-1])


def schedule_reduction(s: Schedule, block: str, target: Target) -> None:
    """A reduction along its contiguous axis whose result is stored as it is."""
    total = nanoseconds(s.func, block)
    steps = reduce_loops(s.func, block)
    outer = [x.var for x in loops_of(s.func, block) if x.var not in steps]
    if outer:
        s.reorder(*outer, *steps)
        parallelize(s, block, outer, total, target)
    vectorize_reduction(s, block, target)
