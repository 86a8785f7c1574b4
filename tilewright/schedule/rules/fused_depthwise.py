"""A depthwise convolution over the results of a pointwise one (a 1x1 convolution): both in one nest.

``out[h, w, c] = f(sum over taps of P[h*s + i, w*s + j, c] * W[i, j, c])`` where ``P[h, w, c] = g(sum over k of
A[h, w, k] * B[k, c])``. A panel of channels and a band of rows of ``out`` need that panel and a few more rows of ``P``:
a local buffer that stays in the second-level cache. Threads share bands and panels. Both reductions are register tiles
as in :mod:`tilewright.schedule.rules.tiling.register_tiles`. Decisions: ``<depthwise>.band`` (rows of a band),
``<depthwise>.rows`` and ``<pointwise>.rows`` (of the tiles), and those of :mod:`.parallelism`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.rules.base import SPREAD, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_spatial,
    loops_of,
    reduction_feeders,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.tiling.tile_axes import tile_axes
from tilewright.schedule.rules.tiling.tile_size import choose_mr
from tilewright.schedule.rules.tiling.write_tile import write_out, write_reduction
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers, find_block, find_buffer
from tilewright.tensor_ir.ir import loads

_MOST_BANDS = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of blocks: the pointwise product, the stage that finishes it, the depthwise one; the width of a panel."""

    pointwise: str
    stage: str
    depthwise: str
    width: int


def find_pair(s: Schedule, consumer: str) -> Pair | None:
    """The pointwise and the depthwise convolution that ``consumer`` finishes, or None."""
    for depthwise in reduction_feeders(s, consumer) if is_spatial(find_block(s.func, consumer)) else ():
        block = find_block(s.func, depthwise)
        if not is_multiply_add(block):
            continue
        read = {x.buffer for x in loads(block.value)}
        for stage in (b for b in all_blocks(s.func) if b.buffer in read and is_spatial(b)):
            if [u.name for u in consumers(s.func, stage.buffer)] != [depthwise]:
                continue
            for pointwise in reduction_feeders(s, stage.name):
                axes = tile_axes(s, pointwise, stage.name)
                if axes is not None and axes.panel is not None:
                    return Pair(pointwise, stage.name, depthwise, axes.panel)
    return None


def _matches(s: Schedule, block: str, target: Target) -> list[Pair]:
    """The pair that ``block`` finishes."""
    pair = find_pair(s, block)
    return [] if pair is None else [pair]


def _apply(s: Schedule, block: str, match: Pair, target: Target) -> None:
    pair, consumer = match, block
    blocks = (pair.pointwise, pair.stage, pair.depthwise)
    work = total_nanoseconds(s.func, blocks, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in (*blocks, consumer)))
    limit = target.tile_rows(max(1, pair.width // lanes))
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    rank = len(find_buffer(s.func, find_block(s.func, pair.stage).buffer).shape)
    if len(extents) != 4 or rank != 4 or None in extents.values() or tile_axes(s, pair.depthwise, consumer) is None:
        raise ScheduleError(f"{consumer}: expected a batch, rows, columns and channels of known size")
    *batch, row, column, channel = extents
    panel, channel = s.split(channel, (None, pair.width))
    bands, row = s.split(row, (None, _decide_band(s, pair, extents[row] or 1, target)))
    columns, column = s.split(column, (None, choose_mr(s, pair.depthwise, extents[column], limit, target)))
    s.reorder(*batch, bands, panel, row, columns, column, channel)
    around = [*batch, bands, panel]
    s.compute_at(pair.depthwise, columns)
    write_reduction(s, pair.depthwise, lanes, {*around, row, columns})
    write_out(s, consumer, [column, channel], lanes)
    s.compute_at(pair.stage, panel)
    columns_of_stage = _write_pointwise(s, pair, around, lanes, limit, target)
    for name, user in ((columns, consumer), (columns_of_stage, pair.stage), (panel, consumer)):
        peel_if_ragged(s, user, name)
    parallelize(s, consumer, around, work, target)


def _decide_band(s: Schedule, pair: Pair, rows: int, target: Target) -> int:
    """Rows of a band: by default as many as leave the rows of the stage below them in half of the second-level cache.

    A band repeats the rows of the stage that the taps of the next one reach into.
    """
    stage = find_buffer(s.func, find_block(s.func, pair.stage).buffer)
    _, high, wide, _ = (d.value() or 1 for d in stage.shape)
    room = min(LOCAL_BYTES, target.resident_bytes) // (wide * pair.width * stage.dtype.itemsize)
    sizes = sorted({-(-rows // n) for n in range(1, min(rows, _MOST_BANDS) + 1)})
    fitting = [n for n in sizes if n * high // rows + high % rows <= room]
    even = [n for n in fitting if rows % n == 0 and 2 * n >= fitting[-1]]
    if not fitting:
        raise ScheduleError(f"{pair.stage}: a row does not fit in the cache")
    return choose_number(s, f"{pair.depthwise}.band", fitting, (even or fitting)[-1])


def _write_pointwise(s: Schedule, pair: Pair, around: Sequence[str], lanes: int, limit: int, target: Target) -> str:
    """Register tiles of the pointwise product, for the part of the stage that a panel needs; the loop over them."""
    extents = {x.var: x.extent for x in loops_of(s.func, pair.stage) if x.var not in around}
    if len(extents) < 2:
        raise ScheduleError(f"{pair.stage}: expected columns and channels, got {', '.join(extents)}")
    *rows, column, channel = extents
    height = choose_mr(s, pair.pointwise, extents[column].value() or limit, limit, target)
    columns, column = s.split(column, (None, height))
    s.reorder(*rows, columns, column, channel)
    s.compute_at(pair.pointwise, columns)
    write_reduction(s, pair.pointwise, lanes, {*around, *rows, columns})
    write_out(s, pair.stage, [column, channel], lanes)
    return columns


FUSED_DEPTHWISE = ScheduleRule("fused_depthwise", _matches, _apply, ("band", "rows", *WRITE, *SPREAD))
