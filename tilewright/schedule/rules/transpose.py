"""Copies whose reads and writes go through memory in different directions: squares of registers instead of elements.

Read along one loop and written along another, a vector of either jumps in memory. The two loops are tiled to the size
of a tensor intrinsic that transposes in registers; what fills no tile is peeled off and copied as it was. Of what
no cache holds, a block is transposed into a buffer in the first-level cache, which then goes out in runs of whole cache
lines: neither reading nor writing touches a line twice. Its rows lie far apart, which prefetchers do not follow: while
a few are transposed, those beside them are fetched.

Decisions: ``<block>.squares``, how many squares lie side by side in the direction of reading (two use up a cache line);
``<block>.run``, elements of a run that goes out of such a buffer, 0 for none, and ``<block>.depth``, how many runs it
holds, ``<block>.ahead``, 1 to fetch rows ahead; and those of :mod:`.parallelism` and :mod:`.streaming_stores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.core.dtypes import float32
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import SPREAD, VECTORS, ScheduleRule
from tilewright.schedule.rules.elementwise import fuse_linear, vectorize_inner
from tilewright.schedule.rules.facts import block_accesses, buffer_bytes, is_spatial, loops_of, nanoseconds
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.prefetch import fetch_next_row
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.streaming_stores import stream_if_large
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_buffer
from tilewright.tensor_ir.ir import Load

_INTRINSIC, _SIDE = "transpose_8x8_f32", 8
_SQUARES = (1, 2, 4)
_RUN, _RUNS = 64, (0, 16, 32, 64, 128, 256)
_DEPTH, _DEPTHS = 32, (16, 32, 64)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """By way of a buffer of ``run`` elements in the direction of writing and ``depth`` in that of reading; ``ahead``:
    fetch the next rows of ``source`` meanwhile."""

    source: str
    run: int = _RUN
    depth: int = _DEPTH
    ahead: int = 1


def _matches(s: Schedule, block: str, target: Target) -> Iterator[_Blocks | None]:
    """Blocks and squares (None) for what only copies, from neighbours to elsewhere and from elsewhere to neighbours."""
    found = find_block(s.func, block)
    value = found.value
    if not isinstance(value, Load) or value.dtype != float32 or value.buffer == found.buffer:
        return
    if not is_spatial(found) or target.lanes(4) < 4:
        return
    own = _Blocks(value.buffer)
    if _is_large(s, block, target) and s.copy().attempt(lambda a: _apply(a, block, own, target)):
        run = int(s.sample_categorical(f"{block}.run", _RUNS, _RUN))
        if run:
            depth = int(s.sample_categorical(f"{block}.depth", _DEPTHS, _DEPTH))
            ahead = int(s.sample_categorical(f"{block}.ahead", (0, 1), 1))
            yield _Blocks(value.buffer, run, depth, ahead)
    yield None


def _apply(s: Schedule, block: str, match: _Blocks | None, target: Target) -> None:
    if match is None:
        transpose_squares(s, block, target)
    else:
        _schedule_blocks(s, block, match, target)


def _is_large(s: Schedule, block: str, target: Target) -> bool:
    """True if no cache holds what ``block`` writes."""
    size = buffer_bytes(find_buffer(s.func, find_block(s.func, block).buffer))
    return size is not None and size > target.largest_cache


def _schedule_blocks(s: Schedule, block: str, how: _Blocks, target: Target) -> None:
    source, run, depth, ahead = how.source, how.run, how.depth, how.ahead
    total = nanoseconds(s.func, block, target.costs)
    loops = loops_of(s.func, block)
    places = {x.var: n for n, x in enumerate(loops)}
    read, written = (places[n] for n in _directions(s, block, list(places)))
    for place, size in ((read, depth), (written, run)):
        if (loops[place].extent % size) != 0:
            raise ScheduleError(f"transpose({block}): expected a multiple of {size}, got {loops[place].extent}")
    copy = s.cache_write(block, "local")
    names = s.loops(copy)
    if len(names) != len(loops):
        raise ScheduleError(f"transpose({block}): expected {len(loops)} loops of the copy, got {len(names)}")
    around = [n for place, n in enumerate(names) if place not in (read, written)]
    read_outer, row = s.split(names[read], (None, depth))
    written_outer, column = s.split(names[written], (None, run))
    outer = [*around, written_outer, read_outer]
    s.reorder(*outer, row, column)
    s.compute_at(block, read_outer)
    read_loop, written_loop = _directions(s, block, [n for n in s.loops(block) if n not in outer])
    over, square = s.split(read_loop, (None, _SIDE))
    beside, lane = s.split(written_loop, (None, _SIDE))
    s.reorder(beside, over, square, lane)
    s.tensorize(square, _INTRINSIC)
    if ahead:
        fetch_next_row(s, source, beside)
    vectorize_inner(s, copy, len(outer), target)
    parallelize(s, copy, outer, total, target)
    stream_if_large(s, copy, target)


def transpose_squares(s: Schedule, block: str, target: Target, above: int = 0) -> None:
    """Squares for the nest of ``block`` below its first ``above`` loops. Parallel only when ``above`` is 0."""
    total = nanoseconds(s.func, block, target.costs)
    fuse_linear(s, block, above)
    loops = loops_of(s.func, block)[above:]
    extents = {x.var: x.extent.value() for x in loops}
    read, written = _directions(s, block, [x.var for x in loops])
    wide = extents[read]
    for n in (read, written):
        if (extent := extents[n]) is not None and extent < _SIDE:
            raise ScheduleError(f"transpose({block}): expected at least {_SIDE} steps of loop {n}, got {extent}")
    most = [n for n in _SQUARES if wide is None or wide >= n * _SIDE]
    count = choose_number(s, f"{block}.squares", most, 2 if 2 in most else 1)
    read_outer, squares, row = s.split(read, (None, count, _SIDE))
    written_outer, lane = s.split(written, (None, _SIDE))
    single = [x.var for x in loops if x.var not in (read, written) and extents[x.var] == 1]
    around = [x.var for x in loops if x.var not in (read, written, *single)]
    s.reorder(*around, read_outer, written_outer, *single, squares, row, lane)
    s.attempt(lambda a: a.peel(read_outer))
    ragged = any(written_outer in x.extent.free_vars() for x in loops_of(s.func, block))
    if not above:
        parallelize(s, block, [*around, read_outer, *([] if ragged else [written_outer])], total, target)
    if ragged:
        s.peel(written_outer)
    s.tensorize(row, _INTRINSIC)
    s.unroll(squares)


def _directions(s: Schedule, block: str, loops: list[str]) -> tuple[str, str]:
    """The loop over neighbours of what is read, and that over neighbours of what is written."""
    accesses = block_accesses(s.func, block)
    if len(accesses) != 2:
        raise ScheduleError(f"transpose({block}): expected one load and one store, got {len(accesses)} accesses")
    store, load = accesses
    read = next((n for n in loops if load.stride(n) == 1), None)
    written = next((n for n in loops if store.stride(n) == 1), None)
    if read is None or written is None or read == written:
        raise ScheduleError(f"transpose({block}): expected reads and writes along two loops, got {read} and {written}")
    return read, written


TRANSPOSE = ScheduleRule(
    "transpose", _matches, _apply, ("squares", "run", "depth", "ahead", *VECTORS, *SPREAD, "stream")
)
