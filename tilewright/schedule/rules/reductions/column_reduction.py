"""Reductions over leading axes of something large: whole rows added to a row of results that stays in cache.

A register tile of columns would walk down the source with a jump per step, and memory likes to be read in order. Here a
block of columns, as long as a fraction of the first-level cache, is reduced row by row; a few rows at a time, so that
the results are loaded and stored once for all of them. Every column still adds its elements in order.

Decisions, of ``<acc>`` the reduction: ``.flight``, rows at a time (0: a register tile instead), ``.columns``, how many
columns a block has, and those of :mod:`tilewright.schedule.rules.parallelism`.
"""

from __future__ import annotations

from math import prod

from tilewright.core.arith.expr import product
from tilewright.core.errors import ScheduleError
from tilewright.machine.memory import PAGE_BYTES
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import SPREAD, VECTORS, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged, vectorize_inner
from tilewright.schedule.rules.facts import (
    block_accesses,
    is_multiply_add,
    is_reduction,
    is_row_like,
    is_spatial,
    loops_of,
    nanoseconds,
    reduce_loops,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import is_worth_spreading, parallelize
from tilewright.schedule.rules.sampling import choose_number, divisors, spread_out
from tilewright.schedule.rules.tiling.tile_axes import TileAxes, tile_axes
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer
from tilewright.tensor_ir.ir import loads

_FLIGHTS = (0, 2, 4, 8, 16)


def _matches(s: Schedule, block: str, target: Target) -> list[tuple[str, int]]:
    """A reduction over leading axes, stored as it is or finished by ``block``, and how many rows are read at a time."""
    feeders = reduction_feeders(s, block) if is_spatial(find_block(s.func, block)) else [block]
    if len(feeders) != 1 or not _is_column_reduction(s, feeders[0], target):
        return []
    reduction, own = feeders[0], target.costs.rows_in_flight
    if not s.copy().attempt(lambda a: _apply(a, block, (reduction, own), target)):
        return []
    flight = int(s.sample_categorical(f"{reduction}.flight", _FLIGHTS, own))
    return [(reduction, flight)] if flight > 0 else []


def _is_column_reduction(s: Schedule, reduction: str, target: Target) -> bool:
    """True if each element of one large source goes into one result, and the rows of results are long."""
    block = find_block(s.func, reduction)
    ordered = any(a.kind == "ordered" for a in block.axes)
    if not is_reduction(block) or ordered or is_multiply_add(block) or is_row_like(s, reduction):
        return False
    store, *read = block_accesses(s.func, reduction)
    loops = {x.var: x.extent.value() for x in loops_of(s.func, reduction)}
    steps = reduce_loops(s.func, reduction)
    column = next((n for n in loops if store.stride(n) == 1), None)
    sources = [x for x in read if x.buffer != block.buffer]
    if column is None or not steps or len(sources) != 1 or sources[0].stride(column) != 1:
        return False
    source, width = sources[0], loops[column]
    points = product(a.extent for a in block.axes)
    if points != product(find_buffer(s.func, source.buffer).shape):
        return False  # windows: elements are read again
    size = points.value()
    return (
        (size is None or size * source.dtype.itemsize > target.l2_bytes)
        and (width is None or width * source.dtype.itemsize >= target.costs.run_bytes)
        and (width is None or all(abs(source.stride(n) or width) >= width for n in steps))
    )


def _apply(s: Schedule, block: str, match: tuple[str, int], target: Target) -> None:
    (reduction, flight), consumer = match, block
    if consumer == reduction:
        consumer = s.cache_write(reduction, "local")
    axes = tile_axes(s, reduction, consumer)
    if axes is None or axes.panel is not None or not _is_one_to_one(s, reduction, consumer):
        raise ScheduleError(f"column_reduction({reduction}): {consumer} does not read each result once")
    total = nanoseconds(s.func, reduction, target.costs)
    outer = [*axes.batch, *axes.rows]
    if outer:
        s.reorder(*outer, axes.columns)
    over, _ = s.split(axes.columns, (None, _choose_columns(s, reduction, consumer, axes, total, target)))
    outer.append(over)
    s.compute_at(reduction, over)
    steps = reduce_loops(s.func, reduction)
    inner = [x.var for x in loops_of(s.func, reduction) if x.var not in (*outer, *steps)]
    if not steps or not inner:
        raise ScheduleError(f"column_reduction({reduction}): no loop over {'columns' if steps else 'steps'} is left")
    s.reorder(*steps, *inner)
    init = s.decompose_reduction(reduction, steps[0])
    rows, row = s.split(steps[-1], (None, flight))
    columns, lane = s.split(inner[-1], (None, target.lanes(widest_itemsize(s.func, reduction))))
    s.reorder(rows, *inner[:-1], columns, row, lane)
    s.vectorize(lane)
    s.unroll(row)
    vectorize_inner(s, init, len(outer), target)
    vectorize_inner(s, consumer, len(outer), target)
    parallelize(s, consumer, outer, total, target)
    peel_if_ragged(s, reduction, rows)


def _is_one_to_one(s: Schedule, reduction: str, consumer: str) -> bool:
    """True if every loop of ``consumer`` walks over different results."""
    user, buffer = find_block(s.func, consumer), find_block(s.func, reduction).buffer
    env = block_environment(user)
    read = next(x for x in loads(user.value) if x.buffer == buffer)
    used = frozenset[str]().union(*(i.substitute(env).free_vars() for i in read.indices))
    return all(x.var in used or x.extent.value() == 1 for x in loops_of(s.func, consumer))


def _choose_columns(
    s: Schedule, reduction: str, consumer: str, axes: TileAxes, total: float | None, target: Target
) -> int:
    """Columns of a block: their results fill half of the first-level cache; fewer, but a page, if threads need work."""
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    size = widest_itemsize(s.func, reduction)
    most, page = target.l1_working_bytes // size, PAGE_BYTES // size
    whole = extents[axes.columns]
    if whole is None:
        return page
    blocks = -(-whole // most)
    if is_worth_spreading(total, target):
        around = prod(extents[n] or target.threads for n in (*axes.batch, *axes.rows))
        blocks = max(blocks, min(-(-2 * target.threads // around), whole // page))
    lanes = target.lanes(size)
    own = -(-whole // (blocks * lanes)) * lanes if blocks > 1 else whole
    sizes = [d for d in divisors(whole) if target.costs.run_bytes // size <= d <= 4 * most]
    return choose_number(s, f"{reduction}.columns", spread_out(sizes), own)


COLUMN_REDUCTION = ScheduleRule("column_reduction", _matches, _apply, ("flight", "columns", *VECTORS, *SPREAD))
