"""Rows that a register tile reads side by side, put apart so that they share the first-level cache.

A set of that cache holds a line of each page, of as many pages as it has ways. Where rows lie whole pages apart, as
those of 1,024 numbers do, what a step reads of all rows of a tile belongs to one set. More rows than it has ways push
each other out before their lines are read to the end, and each number comes from the second-level cache. In a copy
whose rows lie a line further apart each has a set of its own.

Decision, of ``<acc>`` the reduction: ``.spaced``, 1 to do so.
"""

from __future__ import annotations

from math import gcd, prod

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.memory import LINE_BYTES, PAGE_BYTES
from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import StridedAccess, block_accesses, loops_of, reduce_loops
from tilewright.schedule.rules.tiling.tile_axes import TileAxes
from tilewright.schedule.rules.tiling.tile_size import TileLoops
from tilewright.schedule.rules.tiling.write_tile import operand_stages
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import buffers, find_block, find_buffer, find_loop

_COLUMNS = 128
"""Columns of the result from which on a copy of the operand costs less than it gains."""


def space_rows(
    s: Schedule, reduction: str, axes: TileAxes, tile: TileLoops, total: float | None, target: Target
) -> str | None:
    """Ask whether to have rows further apart where they crowd. Returns the buffer, a new copy or a stage that makes the
    operand anyhow, for :func:`set_apart` when it is where it is made; None to leave the operand as it lies. ``total``:
    estimated nanoseconds of the reduction on one thread."""
    if axes.panel is None or not tile.row_loops:
        return None
    operand = block_accesses(s.func, reduction)[1]
    size, shape = operand.dtype.itemsize, find_buffer(s.func, operand.buffer).shape
    inside = shape[-1].value() if len(shape) > 1 else None
    apart = _apart(s, reduction, operand)
    height = prod(upper_bound(find_loop(s.func, x).extent, {}) or 1 for x in tile.inner[: len(tile.row_loops)])
    if not inside or apart is None or apart % inside or not _crowded(apart * size, height, target):
        return None
    made = operand.buffer in {find_block(s.func, x).buffer for x in operand_stages(s, reduction)}
    columns = (find_loop(s.func, tile.columns[0]).extent.value() or 1) * axes.panel
    waits = target.threads > 1 and (total is not None and total < target.costs.always_parallel_ns)
    own = int(made or (columns >= _COLUMNS and not waits))
    if not s.sample_categorical(f"{reduction}.spaced", (0, 1), own):
        return None
    return operand.buffer if made else s.cache_read(reduction, operand.buffer, "global")


def set_apart(s: Schedule, buffer: str) -> None:
    """Let the rows of ``buffer`` begin in successive sets of the first-level cache."""
    found = next((b for b in buffers(s.func) if b.name == buffer), None)
    if found is not None:  # it may be made in registers
        size = found.dtype.itemsize
        s.storage_align(buffer, -2, PAGE_BYTES // size, LINE_BYTES // size)


def _apart(s: Schedule, reduction: str, operand: StridedAccess) -> int | None:
    """Elements between one row of the operand and the next."""
    steps = reduce_loops(s.func, reduction)
    strides = [operand.stride(x.var) for x in loops_of(s.func, reduction) if x.var not in steps]
    return next((n for n in reversed(strides) if n != 0), None)


def _crowded(apart: int, height: int, target: Target) -> bool:
    """Whether ``height`` rows, ``apart`` bytes from each other, leave a set no way for a line of the panel."""
    sets = PAGE_BYTES // gcd(apart, PAGE_BYTES)
    return apart >= LINE_BYTES and -(-height // sets) >= target.l1_ways
