"""Copies whose reads and writes go through memory in different directions: squares of registers instead of elements.

Read along one loop and written along another, a vector of either jumps in memory. The two loops are tiled to the size
of a tensor intrinsic that transposes in registers; what fills no tile is peeled off and copied as it was. Decision:
``<block>.squares``, how many of them lie side by side in the direction of reading (two use up a cache line).
"""

from __future__ import annotations

from tilewright.core.dtypes import float32
from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.rules.choices import choose_number
from tilewright.schedule.rules.facts import block_accesses, is_spatial, loops_of, nanoseconds
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.spatial import fuse_linear
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block
from tilewright.tensor_ir.ir import Load

_INTRINSIC, _SIDE = "transpose_8x8_f32", 8
_SQUARES = (1, 2, 4)


def transpose_rule(s: Schedule, block: str, target: Target) -> bool:
    """A block that only copies, from neighbours to elsewhere and from elsewhere to neighbours."""
    found = find_block(s.func, block)
    value = found.value
    copies = isinstance(value, Load) and value.dtype == float32 and value.buffer != found.buffer
    return (
        copies
        and is_spatial(found)
        and target.lanes(4) >= 4
        and s.attempt(lambda a: transpose_squares(a, block, target))
    )


def transpose_squares(s: Schedule, block: str, target: Target, above: int = 0) -> None:
    """Squares for the nest of ``block`` below its first ``above`` loops. Parallel only when ``above`` is 0."""
    total = nanoseconds(s.func, block)
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
    around = [x.var for x in loops if x.var not in (read, written)]
    s.reorder(*around, read_outer, written_outer, squares, row, lane)
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
