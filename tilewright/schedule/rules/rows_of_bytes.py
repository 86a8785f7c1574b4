"""Depthwise convolutions of bytes, whose words hold four rows of a pixel, or two as int16.

``out[h, w, c] = f(acc[h / R, h % R, w, c])``, where ``acc[ho, r, w, c]`` is the sum over ``q`` and ``j`` of
``dot4(words[ho, q, w s + j, c], taps[r, q, j, c])``, or of ``dot2i``. Of a panel of channels and a group of ``R`` rows
the words are made once, into a local buffer that stays in the first-level cache; then a tile of a few columns of all
``R`` rows is summed up, vector by vector of the panel, and finished for the whole panel: so bytes are stored in whole
vectors. Threads share groups and panels. Decisions: ``<acc>.vectors`` (of a panel), ``<acc>.rows`` (columns of a tile),
and those of :mod:`.parallelism`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_spatial,
    loops_of,
    reduce_loops,
    reduction_feeders,
    total_nanoseconds,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_buffer
from tilewright.tensor_ir.ir import Block, Load, Op, loads

_MOST_VECTORS = 4
"""Vectors of a panel: as many of 32 bits are one of bytes."""
_COLUMNS = 2
_INTERLEAVED = 16
"""Bytes that are interleaved to words at a time."""


@dataclass(frozen=True, slots=True)
class RowsOfBytes:
    """Names: the stage of words, the sums of their products, and the consumer's loops over images, rows, columns,
    channels.

    ``group``: rows that share words.
    """

    words: str
    sums: str
    batch: tuple[str, ...]
    row: str
    column: str
    channel: str
    group: int


def find_rows_of_bytes(s: Schedule, consumer: str) -> RowsOfBytes | None:
    """The sums over words of rows that ``consumer`` finishes, or None."""
    user = find_block(s.func, consumer)
    for name in reduction_feeders(s, consumer) if is_spatial(user) else ():
        sums = find_block(s.func, name)
        words = _words_of(s, sums)
        shape = find_buffer(s.func, sums.buffer).shape
        reads = {x.indices for x in loads(user.value) if x.buffer == sums.buffer}
        if words is None or len(shape) != 5 or len(reads) != 1:
            continue
        env = block_environment(user)
        batch, group, inside, column, channel = (i.substitute(env) for i in next(iter(reads)))
        row, count = next(iter(group.free_vars()), None), shape[2].value()
        across, along = as_var(column), as_var(channel)
        if count is None or row is None or across is None or along is None or len({row, across, along}) < 3:
            continue
        images = tuple(x.var for x in loops_of(s.func, consumer) if x.var not in (row, across, along))
        if _is_row(group, inside, row, count) and batch.free_vars() <= {*images}:
            return RowsOfBytes(words, name, images, row, across, along, count)
    return None


def _is_row(group: IntExpr, inside: IntExpr, row: str, count: int) -> bool:
    """True for ``row // count`` and ``row % count``."""
    if group.free_vars() | inside.free_vars() != {row}:
        return False
    return all(group.evaluate({row: k}) == k // count and inside.evaluate({row: k}) == k % count for k in range(9))


def _words_of(s: Schedule, sums: Block) -> str | None:
    """The stage that the left operands of a sum of dot products are read from, if nothing else reads it."""
    value = sums.value
    if not is_multiply_add(sums) or not isinstance(value, Op) or not isinstance(value.args[1], Op):
        return None
    left = value.args[1].args[0]
    if value.args[1].name not in ("dot4", "dot2i") or not isinstance(left, Load):
        return None
    stages = [b.name for b in all_blocks(s.func) if b.buffer == left.buffer and is_spatial(b)]
    return stages[0] if stages and [u.name for u in consumers(s.func, left.buffer)] == [sums.name] else None


def _matches(s: Schedule, block: str, target: Target) -> list[RowsOfBytes]:
    """The sums that ``block`` finishes."""
    found = find_rows_of_bytes(s, block)
    return [] if found is None else [found]


def _apply(s: Schedule, block: str, match: RowsOfBytes, target: Target) -> None:
    sums, lanes = match.sums, target.lanes(4)
    work = total_nanoseconds(s.func, (match.words, sums, block), target.costs)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    vectors = _choose_vectors(s, sums, extents[match.channel], lanes)
    columns_of_tile = _choose_columns(s, sums, extents[match.column], match.group, target)
    groups, row = s.split(match.row, (None, match.group))
    panel, channel = s.split(match.channel, (None, vectors * lanes))
    columns, column = s.split(match.column, (None, columns_of_tile))
    around = [*match.batch, groups, panel]
    s.reorder(*around, columns, row, column, channel)
    s.compute_at(sums, columns, whole=True)  # rows behind the last one, too: no test
    _write_sums(s, sums, {*around, columns}, lanes)
    stored = find_buffer(s.func, find_block(s.func, block).buffer).dtype.itemsize
    write_out(s, block, [row, column, channel], vectors * lanes if stored == 1 else lanes)
    s.compute_at(match.words, panel)
    s.vectorize(s.loops(match.words)[-1])
    for name, user in ((columns, block), (panel, block)):
        peel_if_ragged(s, user, name)
    parallelize(s, block, around, work, target)


def _choose_vectors(s: Schedule, sums: str, channels: int | None, lanes: int) -> int:
    """Vectors of a panel: by default as many as make equal panels, of bytes that are interleaved if possible, or the
    most."""
    if channels is None:
        return _MOST_VECTORS
    options = [v for v in range(1, _MOST_VECTORS + 1) if v == 1 or (v - 1) * lanes < channels]
    equal = [v for v in options if channels % (v * lanes) == 0]
    interleaved = [v for v in equal if v * lanes % _INTERLEAVED == 0]
    return choose_number(s, f"{sums}.vectors", options, (interleaved or equal or options)[-1])


def _choose_columns(s: Schedule, sums: str, columns: int | None, group: int, target: Target) -> int:
    """Columns of a tile: by default two, which have most of what a window reads in common."""
    if columns is None:
        return _COLUMNS
    options = range(1, max(2, min(columns, target.tile_rows(1) // group)) + 1)
    return choose_number(s, f"{sums}.rows", list(options), min(_COLUMNS, columns))


def _write_sums(s: Schedule, sums: str, around: set[str], lanes: int) -> None:
    """Vector by vector of the panel: the steps, then rows and columns of the tile written out."""
    steps = reduce_loops(s.func, sums)
    *tile, channel = [x.var for x in loops_of(s.func, sums) if x.var not in steps and x.var not in around]
    vector, lane = s.split(channel, (None, lanes))
    s.reorder(vector, *steps, *tile, lane)
    init = s.decompose_reduction(sums, steps[0])
    for name in steps:
        s.unroll(name)
    write_out(s, sums, [*tile, lane], lanes)
    inside = [x.var for x in loops_of(s.func, init) if x.var not in around and x.var != vector]
    write_out(s, init, inside, lanes)


ROWS_OF_BYTES = ScheduleRule("rows_of_bytes", _matches, _apply, ("vectors", "rows", *SPREAD))
