"""Copies whose reads and writes go through memory in different directions: squares of registers instead of elements.

Read along one loop and written along another, a vector of either jumps in memory. The two loops are tiled to the size
of a tensor intrinsic that transposes in registers; what fills no tile is peeled off and copied as it was. Of what
no cache holds, a block is transposed into a buffer in the first-level cache, which then goes out in runs of whole cache
lines: neither reading nor writing touches a line twice. Its rows lie far apart, which prefetchers do not follow: while
a few are transposed, those beside them are fetched.

Where something is computed of what it reads across (a Relu before or after the Transpose, an addition), each step of a
tile first transposes its operands into buffers in the first-level cache, in squares as well.

Decisions: ``<block>.squares``, how many squares lie side by side in the direction of reading (two use up a cache line);
``<block>.run``, elements of a run that goes out of such a buffer, 0 for none, and ``<block>.depth``, how many runs it
holds, ``<block>.ahead``, 1 to fetch rows ahead; ``<block>.tile``, elements of a tile of transposed operands in the
direction of writing; and those of :mod:`.parallelism` and :mod:`.streaming_stores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tilewright.core.arith.expr import product
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
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer
from tilewright.tensor_ir.ir import Load, loads

_INTRINSIC, _SIDE = "transpose_8x8_f32", 8
_SQUARES = (1, 2, 4)
_RUN, _RUNS = 64, (0, 16, 32, 64, 128, 256)
_DEPTH, _DEPTHS = 32, (16, 32, 64)
_TILES = (16, 32, 64)


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


@dataclass(frozen=True, slots=True)
class _Across:
    """Operands that a block reads along the loop ``read``, in tiles of ``depth`` steps, while it writes along
    ``written``."""

    operands: tuple[str, ...]
    read: str
    written: str
    depth: int


def _read_across(s: Schedule, block: str, target: Target) -> list[_Across]:
    found = find_block(s.func, block)
    if not is_spatial(found) or isinstance(found.value, Load) or target.lanes(4) < 4:
        return []
    store, *reads = block_accesses(s.func, block)
    loops = loops_of(s.func, block)
    written = next((x.var for x in loops if store.stride(x.var) == 1), None)
    if written is None or any(x.stride(written) is None for x in reads):
        return []
    across = [x for x in reads if x.stride(written) not in (0, 1)]
    read = {x.var for a in across for x in loops if a.stride(x.var) == 1}
    if len(read) != 1 or any(x.dtype != float32 or x.buffer == found.buffer for x in across):
        return []
    (along,), steps = read, {x.var: x.extent.value() or 0 for x in loops}
    depth = next((n for n in (2 * _SIDE, _SIDE) if steps[along] % n == 0), 0)
    if steps[written] < _TILES[0] or steps[along] < _SIDE or not _leaves_caches(s, block, bool(depth), target):
        return []
    return [_Across(tuple(dict.fromkeys(x.buffer for x in across)), along, written, depth or 2 * _SIDE)]


def _leaves_caches(s: Schedule, block: str, in_squares: bool, target: Target) -> bool:
    """True if lines that are read across leave the first-level cache before the next vector wants them, or where tiles
    are not ``in_squares``, the second-level cache."""
    size = buffer_bytes(find_buffer(s.func, find_block(s.func, block).buffer))
    return size is None or size >= (target.l1_working_bytes if in_squares else target.l2_bytes)


def _transpose_operands(s: Schedule, block: str, match: _Across, target: Target) -> None:
    total = nanoseconds(s.func, block, target.costs)
    around = [x.var for x in loops_of(s.func, block) if x.var not in (match.read, match.written)]
    run = int(s.sample_categorical(f"{block}.tile", _TILES, _TILES[1]))
    copies = [s.cache_read(block, b, "global") for b in match.operands]
    read_outer, row = s.split(match.read, (None, match.depth))
    written_outer, column = s.split(match.written, (None, run))
    outer = [*around, read_outer, written_outer]
    s.reorder(*outer, row, column)
    for copy in copies:
        axis = _written_axis(s, block, copy, column)
        s.compute_at(copy, written_outer)
        tile = find_buffer(s.func, copy).shape
        size = product(tile).value()
        if size is None or size > match.depth * run:
            raise ScheduleError(f"transpose({block}): expected that a tile reads a tile of {copy}, got {size} elements")
        names = [f"d{n}" for n in range(len(tile))]
        turned = [n for k, n in enumerate(names) if k != axis]
        s.transform_layout(copy, f"{', '.join(names)} -> {', '.join([*turned, names[axis]])}")
        if not s.attempt(partial(transpose_squares, block=copy, target=target, above=len(outer))):
            vectorize_inner(s, copy, len(outer), target)
    vectorize_inner(s, block, len(outer), target)
    parallelize(s, block, outer, total, target)
    stream_if_large(s, block, target)


def _written_axis(s: Schedule, block: str, copy: str, column: str) -> int:
    """The dimension of the copy along which the block reads with the loop ``column``."""
    found = find_block(s.func, block)
    env = block_environment(found)
    places = {n for x in loads(found.value) if x.buffer == copy
              for n, i in enumerate(x.indices) if column in i.substitute(env).free_vars()}  # fmt: skip
    if len(places) != 1:
        raise ScheduleError(f"transpose({block}): expected one dimension of {copy} along {column}, got {len(places)}")
    return places.pop()


TRANSPOSED_OPERANDS = ScheduleRule(
    "transposed_operands", _read_across, _transpose_operands, ("tile", "squares", *VECTORS, *SPREAD, "stream")
)
TRANSPOSE = ScheduleRule(
    "transpose", _matches, _apply, ("squares", "run", "depth", "ahead", *VECTORS, *SPREAD, "stream")
)
