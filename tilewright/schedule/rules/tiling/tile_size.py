"""The size of a register tile: mr rows times nr columns, and the loops that go over such tiles.

Decisions, of ``<acc>`` the reduction: ``.rows`` (mr) and ``.vectors`` (nr, in vectors).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.costs import Costs
from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import expr_size, loops_of
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.rules.tiling.tile_axes import TileAxes
from tilewright.schedule.rules.tiling.write_tile import inner_sums
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_loop
from tilewright.tensor_ir.ir import Op, Select, walk_expr

TALL = 8
_WRITTEN_OUT = 1024
"""Nodes of the formula in all results of a tile together, at most: what is written out is paid for when it is built."""

_KEPT = 2
"""Registers that products of bytes in pairs take besides: a vector of ones, and a second sum of two."""

_TESTED = 6
"""Rows of a tile, at most, that are read under tests of their own: each of them keeps a mask."""


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The consumer's loops after splitting: all walk over tiles but ``inner``, the tile itself.

    ``columns``: the loop over panels, then the one over the parts of a panel if a tile is narrower than that.
    """

    batch: tuple[str, ...]
    row_loops: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]


def split_tile(s: Schedule, reduction: str, consumer: str, axes: TileAxes, lanes: int, target: Target) -> TileLoops:
    """Split columns by nr and rows by mr; a short row takes a second row axis into the tile."""
    if axes.batch or axes.rows:
        s.reorder(*axes.batch, *axes.rows, axes.columns)
    batch, row = list(axes.batch), axes.rows[-1] if axes.rows else None
    if len(axes.rows) > 1:
        row = s.fuse(*axes.rows)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    extent = extents[axes.columns]
    most = max(1, _WRITTEN_OUT // expr_size(find_block(s.func, reduction).value))
    own = axes.panel or (lanes if most == 1 or (extent or 2 * lanes) < 2 * lanes else 2 * lanes)
    fixed = extent is None or (row is not None and extents[row] is None)
    if not fixed and axes.panel is None and (row is None or extents[row] == 1):
        others = math.prod(extents[x] or 1 for x in axes.batch)
        own = max(own, lanes * longest_run(extent or 0, lanes, min(most, target.tile_rows(1)), target.threads / others))
    nr = own if fixed else choose_nr(s, reduction, own, extent or 0, lanes, axes.panel is not None, target)
    vectors = max(1, nr // lanes)
    limit = (
        1
        if inner_sums(s, reduction)
        else min(_rows_in_registers(s, reduction, vectors, target), max(1, most // vectors))
    )
    if axes.panel is None and any(isinstance(e, Select) for e in walk_expr(find_block(s.func, reduction).value)):
        limit = min(limit, _TESTED)
    columns, column = split_columns(s, axes.columns, own if axes.panel else nr, nr)
    if row is None:
        return TileLoops(tuple(batch), (), columns, column)
    if extents[row] is None:
        limit = min(limit, upper_bound(find_loop(s.func, row).extent, {}) or limit)
    mr = choose_mr(s, reduction, extents[row], limit, target)
    over, inside = s.split(row, (None, mr))
    last = batch[-1] if batch else None
    if last is not None and mr == extents[row] and 2 * mr <= limit:
        second = best_mr(extents[last], limit // mr, target.costs)
        if second > 1:
            outer, second_inside = s.split(last, (None, second))
            return TileLoops((*batch[:-1],), (outer, over), columns, (second_inside, inside, *column))
    return TileLoops(tuple(batch), (over,), columns, (inside, *column))


def _rows_in_registers(s: Schedule, reduction: str, vectors: int, target: Target) -> int:
    """Rows of a tile so many vectors wide, of which the registers hold all sums and what a product takes."""
    used = {x.name for x in walk_expr(find_block(s.func, reduction).value) if isinstance(x, Op)}
    kept = _KEPT if "dot4s" in used else 0
    return max(1, target.tile_rows(vectors) - -(-kept // vectors))


def longest_run(extent: int, lanes: int, most: int, parts: float) -> int:
    """The vectors of a tile of one row: a step reads them side by side, and nothing is read twice, so as many as there
    are registers, in equal parts, at least so many. 1 if they do not fill the row."""
    vectors, rest = divmod(extent, lanes)
    counts = [v for v in divisors(vectors) if v <= most and vectors // v >= parts]
    return 1 if rest or not counts else max(counts)


def choose_nr(s: Schedule, reduction: str, own: int, extent: int, lanes: int, packed: bool, target: Target) -> int:
    """nr, the columns of a tile: of packed operands a few whole panels side by side, or an equal part of one panel."""
    most = target.most_tile_vectors
    if not packed:
        counts = sorted({v for v in (*range(1, 5), own // lanes) if v * lanes < extent + lanes})
    elif own % lanes or extent % own:
        counts = []
    else:
        vectors = own // lanes
        counts = [v for v in divisors(vectors) if v < vectors]
        counts += [m * vectors for m in (2, 3, 4) if m * vectors <= most and extent % (m * own) == 0]
    if own % lanes:
        return own
    return lanes * choose_number(s, f"{reduction}.vectors", counts, own // lanes)


def split_columns(s: Schedule, loop: str, panel: int, nr: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops over tiles, and those inside a tile, of columns in panels."""
    if nr < panel:
        over, part, column = s.split(loop, (None, panel // nr, nr))
        return (over, part), (column,)
    if nr > panel:
        over, beside, column = s.split(loop, (None, nr // panel, panel))
        return (over,), (beside, column)
    over, column = s.split(loop, (None, nr))
    return (over,), (column,)


def choose_mr(s: Schedule, reduction: str, extent: int | None, limit: int, target: Target) -> int:
    """mr, the rows of a tile: of a symbolic extent the limit."""
    if extent is None:
        return limit
    own = best_mr(extent, limit, target.costs)
    candidates = range(1, max(own, min(extent, limit + 2)) + 1)
    return int(s.sample_categorical(f"{reduction}.rows", tuple(candidates), own))


def best_mr(extent: int | None, limit: int, costs: Costs) -> int:
    """The mr with the fewest cycles for all rows: a divisor or about equal parts if short, else tall and a rest.

    A step of a tile takes a cycle per row, but not less than a multiply-add does, and a part of one more because the
    panel is read once per tile.
    """
    if extent is None:
        return limit
    if extent <= limit:
        return max(1, extent)
    least, more = costs.step_cycles, costs.panel_read_cycles

    def cycles(mr: int) -> float:
        whole, rest = divmod(extent, mr)
        last = max(least, rest) + more if rest else 0
        return whole * (max(least, mr) + more) + last

    heights = range(limit, max(1, (2 * limit) // 3) - 1, -1)
    even = next((h for h in heights if extent % h == 0), min(heights, key=cycles))
    return limit if extent >= TALL * limit and cycles(limit) < cycles(even) else even
