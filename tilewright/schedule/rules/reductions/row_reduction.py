"""Reductions along the contiguous axis: softmax, layer norm, sums, means, maxima.

Each row belongs to one thread; the stages of a row run one after the other on a row buffer that stays in cache; a
reduction keeps several vectors of partial results (``rfactor``) and combines them at the end of the row. Decisions:
``<block>.partials``, how many vectors, ``<stage>.stage``, whether a stage is kept for the row or computed again where
it is read, ``<consumer>.rows``, how many rows go through the stages together, and those of
:mod:`tilewright.schedule.rules.parallelism`, :mod:`tilewright.schedule.rules.streaming_stores` and
:mod:`tilewright.schedule.rules.prefetch`.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.machine.memory import LINE_BYTES
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import ELEMENTS, PARTIALS, ScheduleRule
from tilewright.schedule.rules.elementwise import is_fusable, peel_if_ragged, vectorize_inner, whole_vectors
from tilewright.schedule.rules.facts import (
    all_blocks,
    block_accesses,
    is_reduction,
    is_spatial,
    loops_of,
    nanoseconds,
    output_buffers,
    reads_windows,
    reduce_loops,
    reduction_feeders,
    total_nanoseconds,
    varying_loops,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.prefetch import fetch_next_row, row_to_fetch
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.streaming_stores import stream_if_large
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_buffer, find_loop, loads_of

_PARTIAL_COUNTS = (1, 2, 4, 8)
_ROW_COUNTS = (1, 2, 4, 8, 16)


def _rows_of(s: Schedule, block: str, target: Target) -> list[tuple[list[str], list[str]]]:
    """Everything that feeds only the spatial ``block``, which is computed row by row, and the loops over rows."""
    if not is_spatial(find_block(s.func, block)) or not reduction_feeders(s, block):
        return []
    feeders = feeders_of(s, block)
    rows = _row_loops(s, block, feeders)
    if not feeders or not rows:
        return []
    blocks = [find_block(s.func, f) for f in feeders]
    made = {b.buffer for b in blocks}  # a row of its own would compute again what windows share
    return [] if any(reads_windows(b, made - {b.buffer}) for b in blocks) else [(feeders, rows)]


def _stored(s: Schedule, block: str, target: Target) -> list[None]:
    """A reduction whose result is stored as it is."""
    found = find_block(s.func, block)
    return [None] if is_reduction(found) and all(a.kind != "ordered" for a in found.axes) else []


def feeders_of(s: Schedule, consumer: str) -> list[str]:
    """Blocks that end up only in ``consumer``, producers first."""
    outputs = output_buffers(s.func)
    blocks = all_blocks(s.func)
    readers: dict[str, set[str]] = {}
    for u in blocks:
        for x in loads_of(u):
            if x.buffer != u.buffer:
                readers.setdefault(x.buffer, set()).add(u.name)
    chosen = {consumer}
    for b in reversed(blocks):
        users = readers.get(b.buffer, ())
        plain = is_spatial(b) or all(a.kind != "ordered" for a in b.axes)
        if b.buffer not in outputs and users and plain and all(u in chosen for u in users):
            chosen.add(b.name)
    return [b.name for b in blocks if b.name in chosen and b.name != consumer]


def _row_loops(s: Schedule, consumer: str, feeders: list[str]) -> list[str]:
    """Loops of the consumer over which the results of the reductions vary: the rows."""
    reduced = {find_block(s.func, f).buffer for f in feeders if is_reduction(find_block(s.func, f))}
    return varying_loops(s.func, consumer, reduced)


def _schedule_rows(s: Schedule, block: str, match: tuple[list[str], list[str]], target: Target) -> None:
    (feeders, rows), consumer = match, block
    total = total_nanoseconds(s.func, (*feeders, consumer), target.costs)
    rest = [x.var for x in loops_of(s.func, consumer) if x.var not in rows]
    s.reorder(*rows, *rest)
    feeders = [f for f in feeders if not _computed_again(s, f)]
    rows = _several_rows(s, consumer, feeders, rows)
    for name in reversed(feeders):
        s.compute_at(name, rows[-1])
    for name in feeders:
        if is_reduction(find_block(s.func, name)):
            vectorize_reduction(s, name, target)
        else:
            _vectorize_stage(s, name, len(rows), target)
    vectorize_inner(s, consumer, len(rows), target)
    parallelize(s, consumer, rows, total, target)
    stream_if_large(s, consumer, target)


def _vectorize_stage(s: Schedule, stage: str, above: int, target: Target) -> None:
    """A stage of a row in vectors; one that fetches the next row takes a pair of lines per step."""
    buffer = row_to_fetch(s, stage, target)
    if buffer is None or not s.sample_categorical(f"{stage}.ahead", (0, 1), 1):
        vectorize_inner(s, stage, above, target)
        return
    itemsize = find_buffer(s.func, buffer).dtype.itemsize
    line = max(1, LINE_BYTES // (itemsize * target.lanes(widest_itemsize(s.func, stage))))
    vectorize_inner(s, stage, above, target, vectors=2 * line)
    fetch_next_row(s, buffer, s.loops(stage)[above])


def _computed_again(s: Schedule, stage: str) -> bool:
    """True if the stage is computed wherever it is read instead of being kept for the row (never by default)."""
    block = find_block(s.func, stage)
    if not is_spatial(block) or not s.copy().attempt(lambda a: a.compute_inline(stage)):
        return False
    if s.sample_categorical(f"{stage}.stage", ("kept", "again"), "kept") == "kept":
        return False
    s.compute_inline(stage)
    return True


def _several_rows(s: Schedule, consumer: str, feeders: list[str], rows: list[str]) -> list[str]:
    """The row loops, the last one split if several rows go through the stages together."""
    extent = find_loop(s.func, rows[-1]).extent.value()
    options = [r for r in _ROW_COUNTS if extent is not None and extent % r == 0 and r < extent]
    count = choose_number(s, f"{consumer}.rows", options, 1)
    return rows if count == 1 else [*rows[:-1], s.split(rows[-1], (None, count))[0]]


def vectorize_reduction(s: Schedule, block: str, target: Target) -> None:
    """Vector partial results for the innermost reduction loop of ``block`` (unit stride), combined afterwards.

    Reduction loops over what lies together in memory are one.
    """
    _fuse_steps(s, block)
    steps = reduce_loops(s.func, block)
    if not steps:
        return
    lanes = target.lanes(widest_itemsize(s.func, block))
    extent = find_loop(s.func, steps[-1]).extent.value()
    if lanes == 1 or (extent is not None and extent < 2 * lanes):
        return
    width = lanes * target.costs.side_by_side
    while extent is not None and width > lanes and (extent < 2 * width or extent % width > extent % lanes):
        width //= 2
    width = lanes * whole_vectors(s, steps[-1], width // lanes, lanes)
    options = tuple(n for n in _PARTIAL_COUNTS if extent is None or n * lanes <= extent)
    width = lanes * choose_number(s, f"{block}.partials", options, width // lanes)
    s.attempt(lambda a: _partial_sums(a, block, steps, width, lanes, part_of_vector(lanes, target)))


def part_of_vector(lanes: int, target: Target) -> int:
    """Into how many partial results the lanes of a vector are added up before these are, one by one: a register of 128
    bits, in which lanes are at hand; 1 where a vector is no longer than that."""
    part = lanes * 128 // target.vector_bits
    return part if part < lanes else 1


def _fuse_steps(s: Schedule, block: str) -> None:
    """One loop over the innermost reduction loops that go on where the one inside ended, in every operand."""
    steps = reduce_loops(s.func, block)
    extents = {x.var: x.extent for x in loops_of(s.func, block)}
    accesses = block_accesses(s.func, block)
    first = len(steps) - 1
    while first > 0:
        outer, inner = steps[first - 1], steps[first]
        if not all(is_fusable(x, outer, inner, extents[inner]) for x in accesses):
            break
        first -= 1
    if len(steps) - first > 1:
        s.attempt(lambda a: a.fuse(*steps[first:]))


def _partial_sums(s: Schedule, block: str, steps: list[str], width: int, lanes: int, part: int) -> None:
    """Partial results of ``width``, then ``lanes``, then ``part`` (if not 1) elements, and these one by one."""
    _, inner = s.split(steps[-1], (None, width))
    factor_lanes(s, block, inner, lanes, unroll_steps=False)
    if width > lanes:
        _, inner = s.split(reduce_loops(s.func, block)[-1], (None, lanes))
        factor_lanes(s, block, inner, lanes, unroll_steps=True)
    if part > 1:
        _, inner = s.split(reduce_loops(s.func, block)[-1], (None, part))
        factor_lanes(s, block, inner, part, unroll_steps=True)
    s.unroll(reduce_loops(s.func, block)[-1])


def factor_lanes(s: Schedule, block: str, loop: str, lanes: int, unroll_steps: bool) -> None:
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
        extent = find_loop(s.func, last).extent.value()
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
    total = nanoseconds(s.func, block, target.costs)
    steps = reduce_loops(s.func, block)
    outer = [x.var for x in loops_of(s.func, block) if x.var not in steps]
    if outer:
        s.reorder(*outer, *steps)
        parallelize(s, block, outer, total, target)
    vectorize_reduction(s, block, target)


ROW_REDUCTION = ScheduleRule("row_reduction", _rows_of, _schedule_rows, ("stage", "ahead", *PARTIALS, *ELEMENTS))
REDUCTION = ScheduleRule(
    "reduction", _stored, lambda s, block, match, target: schedule_reduction(s, block, target), (*PARTIALS, *ELEMENTS)
)
