"""The loops around a register tile: how wide it is, blocks of tiles that share what is in a cache, their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.machine.target import Target
from tilewright.schedule.rules.sampling import choose_number, divisors, spread_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_loop

_ORDERS = ("columns", "rows")
_MOST_TILES = 512
_UNEVEN = (2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The consumer's loops after splitting: all walk over tiles but ``inner``, the tile itself.

    ``columns``: the loop over panels, then the one over the parts of a panel if a tile is narrower than that.
    """

    batch: tuple[str, ...]
    row_loops: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoopOrder:
    """The loops around a tile, outermost first: ``outer`` walk over blocks of tiles, ``within`` over their tiles;
    ``rows``: those of them that go over rows."""

    outer: tuple[str, ...]
    within: tuple[str, ...]
    rows: tuple[str, ...] = ()

    @property
    def loops(self) -> list[str]:
        return [*self.outer, *self.within]


def choose_vectors(
    s: Schedule, reduction: str, own: int, extent: int, lanes: int, packed: bool, target: Target
) -> int:
    """Columns of a tile. Of packed panels whole ones side by side, or an equal part of one."""
    most = target.most_tile_vectors
    if not packed:
        counts = [v for v in range(1, 5) if v * lanes < extent + lanes]
    elif own % lanes or extent % own:
        counts = []
    else:
        vectors = own // lanes
        counts = [v for v in divisors(vectors) if v < vectors]
        counts += [m * vectors for m in (2, 3, 4) if m * vectors <= most and extent % (m * own) == 0]
    if own % lanes:
        return own
    return lanes * choose_number(s, f"{reduction}.vectors", counts, own // lanes)


def split_columns(s: Schedule, loop: str, panel: int, width: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops over tiles, and those inside a tile, of columns in panels."""
    if width < panel:
        over, part, column = s.split(loop, (None, panel // width, width))
        return (over, part), (column,)
    if width > panel:
        over, beside, column = s.split(loop, (None, width // panel, panel))
        return (over,), (beside, column)
    over, column = s.split(loop, (None, width))
    return (over,), (column,)


def order_of_loops(
    s: Schedule, reduction: str, tile: TileLoops, own: str, own_block: int, shared: bool, whole: bool
) -> LoopOrder:
    """Ask which operand stays in cache, and for blocks of tiles.

    ``own``: the default order; ``own_block``: row tiles of a block by default, in which the columns are outside then.
    ``shared``: the panels vary over the batch loops, which then stay outermost. ``whole``: no tile is partial.
    """
    if not tile.row_loops:
        return LoopOrder((), (*tile.batch, *tile.columns))
    order = str(s.sample_categorical(f"{reduction}.order", _ORDERS, own))
    fixed, chain = (tile.batch, tile.row_loops) if shared else ((), (*tile.batch, *tile.row_loops))
    over_rows, in_rows = _row_block(s, reduction, chain, own_block, whole)
    over_columns, in_columns = _column_block(s, reduction, tile.columns)
    if not in_rows and not in_columns:
        first, second = (tile.columns, chain) if order == "columns" else (chain, tile.columns)
        return LoopOrder((*fixed, *first), tuple(second), chain)
    own_inner = "columns" if in_rows and own_block > 1 else order
    inner = str(s.sample_categorical(f"{reduction}.inner", _ORDERS, own_inner))
    if not in_columns:
        over_columns, in_columns = (), tile.columns
    if not in_rows:
        over_rows, in_rows = chain[:-1], chain[-1:]
    outer = (*fixed, *_ordered(order, over_columns, over_rows))
    return LoopOrder(outer, _ordered(inner, in_columns, in_rows), (*over_rows, *in_rows))


def _ordered(order: str, columns: Sequence[str], rows: Sequence[str]) -> tuple[str, ...]:
    return (*columns, *rows) if order == "columns" else (*rows, *columns)


def _row_block(
    s: Schedule, reduction: str, chain: Sequence[str], own: int, whole: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops over blocks of row tiles, and those in a block: a run of tiles in the order of ``chain``.

    Where the last tile is partial, so is the last block.
    """
    extents = [find_loop(s.func, x).extent.value() for x in chain]
    sizes = _equal_blocks(extents) if whole else _uneven_blocks(extents)
    options = [1, *spread_out(sizes)]
    default = max(n for n in options if n <= own)
    size = choose_number(s, f"{reduction}.row_block", options, default)
    if size == 1:
        return tuple(chain), ()
    place, d = sizes[size]
    if d == extents[place]:
        return tuple(chain[:place]), tuple(chain[place:])
    outer, inner = s.split(chain[place], (None, d))
    return (*chain[:place], outer), (inner, *chain[place + 1 :])


def _equal_blocks(extents: Sequence[int | None]) -> dict[int, tuple[int, int]]:
    """Sizes of blocks that fill the loops; of each the loop that is split, and at what."""
    sizes: dict[int, tuple[int, int]] = {}
    inside = 1
    for place in range(len(extents) - 1, -1, -1):
        extent = extents[place]
        if extent is None:
            break
        for d in divisors(extent):
            if d > 1 and inside * d <= _MOST_TILES:
                sizes.setdefault(inside * d, (place, d))
        inside *= extent
    if None not in extents:
        sizes.pop(prod(x for x in extents if x is not None), None)
    return sizes


def _uneven_blocks(extents: Sequence[int | None]) -> dict[int, tuple[int, int]]:
    """The same for one loop of which the last tile is partial."""
    *around, extent = extents
    if extent is None or any(n != 1 for n in around):
        return {}
    sizes = {*_UNEVEN, *(-(-extent // n) for n in (2, 3, 4))}
    return {d: (len(around), d) for d in sizes if 1 < d < extent}


def _column_block(s: Schedule, reduction: str, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same for panels of columns."""
    extent = find_loop(s.func, columns[0]).extent.value()
    sizes = [d for d in divisors(extent) if d < (extent or 0)]
    size = choose_number(s, f"{reduction}.column_block", spread_out(sizes), 1)
    if size == 1:
        return tuple(columns), ()
    outer, inner = s.split(columns[0], (None, size))
    return (outer,), (inner, *columns[1:])
