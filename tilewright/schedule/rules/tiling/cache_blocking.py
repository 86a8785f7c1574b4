"""The loops around register tiles: which operand stays in a cache, and blocks of mc rows and nc columns that share one.

Decisions, of ``<acc>`` the reduction: ``.order`` (whether columns or rows are outside), ``.row_block`` and
``.column_block`` (mc and nc, in tiles), ``.inner`` (the order in a block).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import all_blocks, is_multiply_add, loops_of, widest_itemsize
from tilewright.schedule.rules.parallelism import BALANCED, busy_share
from tilewright.schedule.rules.sampling import choose_number, divisors, spread_out
from tilewright.schedule.rules.tiling.tile_axes import TileAxes
from tilewright.schedule.rules.tiling.tile_size import TALL, TileLoops
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_buffer, find_loop
from tilewright.tensor_ir.ir import Block, loads

_UNKNOWN = 64
_BLOCKS = 4
"""Blocks of rows for each thread, at least: the threads' chunks."""
_EVEN = 0.95
"""The share that blocks must leave busy, of the most that smaller ones would."""
_PARTS = 2
"""Parts of an operand that is too large for the cache; the panels come from memory once for each."""
_ORDERS = ("columns", "rows")
_OF_PANELS = 3
"""Dimensions of sums in panels: rows, panels, columns of a panel."""
_MOST_TILES = 512
_UNEVEN = (2, 4, 8, 16, 32)


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


def order_of_loops(
    s: Schedule, reduction: str, tile: TileLoops, own: str, own_block: int, shared: bool, whole: bool,
    apart: bool = False,
) -> LoopOrder:  # fmt: skip
    """Ask which operand stays in cache, and for blocks of tiles.

    ``own``: the default order; ``own_block``: row tiles of a block by default, in which the columns are outside then.
    ``shared``: the panels vary over the batch loops, which then stay outermost. ``whole``: no tile is partial.
    ``apart``: rows are made anew for each panel, so that blocks of them belong inside.
    """
    if not tile.row_loops:
        return LoopOrder((), (*tile.batch, *tile.columns))
    order = str(s.sample_categorical(f"{reduction}.order", _ORDERS, own))
    fixed, chain = (tile.batch, tile.row_loops) if shared else ((), (*tile.batch, *tile.row_loops))
    over_rows, in_rows = _choose_mc(s, reduction, chain, own_block, whole)
    over_columns, in_columns = _choose_nc(s, reduction, tile.columns)
    if apart and not in_columns and order == "columns":
        return LoopOrder((*fixed, *tile.columns, *over_rows), in_rows, (*over_rows, *in_rows))
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


def read_panels_once(rows: int, panels: int, target: Target, shared: bool = True) -> bool:
    """Whether the loop over B's panels, of ``panels`` bytes, belongs outside that over A's rows, of ``rows`` bytes:
    these stay in the second-level cache and the panels do not, or each thread reads less of both so. ``shared``: there
    are panels enough for the threads."""
    if rows > target.filling_bytes:
        return False
    fewer = rows + panels // target.threads < rows // target.threads + panels
    return panels > target.resident_bytes or (shared and fewer)


def _ordered(order: str, columns: Sequence[str], rows: Sequence[str]) -> tuple[str, ...]:
    return (*columns, *rows) if order == "columns" else (*rows, *columns)


def _choose_mc(
    s: Schedule, reduction: str, chain: Sequence[str], own: int, whole: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops over blocks of row tiles (ic), and those in a block (ir): a run of tiles in the order of ``chain``.

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


def _choose_nc(s: Schedule, reduction: str, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same for panels of columns: jc and jr."""
    extent = find_loop(s.func, columns[0]).extent.value()
    sizes = [d for d in divisors(extent) if d < (extent or 0)]
    size = choose_number(s, f"{reduction}.column_block", spread_out(sizes), 1)
    if size == 1:
        return tuple(columns), ()
    outer, inner = s.split(columns[0], (None, size))
    return (outer,), (inner, *columns[1:])


def made_for_panels(s: Schedule, reduction: str, stages: Sequence[str]) -> list[str]:
    """Those of the stages of an operand that make its rows anew for each panel."""
    block = find_block(s.func, reduction)
    if len(block.indices) < _OF_PANELS:
        return []
    *rows, panel, column = (i.free_vars() for i in block.indices)
    made: set[str] = set()
    for x in loads(block.value):
        used = {v for i in x.indices for v in i.free_vars()}
        if used & panel and not used & column and any(used & r for r in rows):
            made.add(x.buffer)
    return [n for n in stages if find_block(s.func, n).buffer in made]


def block_beside(s: Schedule, consumer: str, made: str, tile: TileLoops, target: Target) -> int:
    """Row tiles of a block of which the rows ``made`` for a panel take half of the first-level cache."""
    height = upper_bound(find_loop(s.func, tile.inner[0]).extent, {}) or target.tile_rows(1)
    buffer = find_buffer(s.func, find_block(s.func, made).buffer)
    row = buffer.dtype.itemsize * (buffer.shape[-1].value() or _UNKNOWN)
    return max(1, target.l1_bytes // (2 * row * height))


def own_order(
    s: Schedule, reduction: str, tile: TileLoops, axes: TileAxes, whole: bool, target: Target
) -> tuple[str, bool]:
    """Which operand stays in cache by default, and whether the panels belong to a batch element.

    The order with less traffic of the operands that do not fit in half of the second-level cache; where both fit,
    threads share the rows, if these are ``whole`` tiles: so each reads what it wrote in the layer before.

    Without panels there is a weight per column and tap (a depthwise convolution): columns outside where these do not
    fit in the first-level cache, from which each row tile would read all of them; inside of a block of rows for each
    thread, if the rows can be dealt out.
    """
    block = find_block(s.func, reduction)
    operands = list(dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer != block.buffer))
    if axes.panel is None or not tile.row_loops:
        many = bool(tile.row_loops) and _has_many_taps(s, block, operands, target)
        return "columns" if many and _own_rows(s, tile, whole, target) is None else "rows", False
    own = "columns"
    if len(operands) == 2:
        source, weight = (_bytes_read(s, block, b) for b in operands)
        loops = {x.var: x.extent.value() or 8 for b in all_blocks(s.func) for x in loops_of(s.func, b.name)}
        cache = target.resident_bytes
        columns_first = weight + source * (loops[tile.columns[0]] if source > cache else 1)
        rows_first = source + weight * (loops[tile.row_loops[-1]] if weight > cache else 1)
        own = "columns" if columns_first <= rows_first else "rows"
        if columns_first == rows_first and whole and _feeds_as_well(tile, loops, target):
            own = "rows"
    return own, any(b in tile.batch for b in _loops_indexing(s, reduction, operands[-1:]))


def _has_many_taps(s: Schedule, block: Block, operands: Sequence[str], target: Target) -> bool:
    """True for sums of products with a weight per column and tap, if these do not fit in the first-level cache."""
    return len(operands) == 2 and is_multiply_add(block) and _bytes(s, operands[-1]) > target.l1_bytes


def _own_rows(s: Schedule, tile: TileLoops, whole: bool, target: Target) -> int | None:
    """Row tiles of each thread; None if there is no block of so many."""
    counts = [find_loop(s.func, x).extent.value() for x in (*tile.batch, *tile.row_loops)]
    known = [n for n in counts if n is not None]
    if target.threads == 1 or not whole or len(known) < len(counts):
        return None
    rows, rest = divmod(prod(known), target.threads)
    return rows if not rest and rows in _equal_blocks(counts) else None


def _feeds_as_well(tile: TileLoops, loops: Mapping[str, int], target: Target) -> bool:
    """True if threads that share the row tiles are about as busy as those that share the columns."""
    rows, columns = (prod(loops[x] for x in names) for names in ((*tile.batch, *tile.row_loops), tile.columns))
    return target.threads > 1 and busy_share(rows, target) >= BALANCED * busy_share(columns, target)


def own_block(
    s: Schedule, reduction: str, consumer: str, tile: TileLoops, axes: TileAxes, whole: bool, target: Target
) -> int:
    """Row tiles of a block by default, 1 for no blocks.

    Where the panels fit in the second-level cache, as many as leave each thread a few blocks of its own: it then has
    the same rows of every layer of a network, reads what it wrote itself, and no cache line has to come from another
    processor. Where they do not, and the operand does not either, a part of it that does: it would come from the last
    cache again for each panel, and that is shared with others.
    """
    block = find_block(s.func, reduction)
    operands = list(dict.fromkeys(x.buffer for x in loads(block.value) if x.buffer != block.buffer))
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    counts = [n for x in (*tile.batch, *tile.row_loops) if (n := extents[x]) is not None]
    known = len(counts) == len(tile.batch) + len(tile.row_loops) and len(operands) == 2
    if target.threads == 1 or not known:
        return 1
    if axes.panel is None:
        many = _has_many_taps(s, block, operands, target)
        return (_own_rows(s, tile, whole, target) or 1) if many else 1
    tiles, height, cache = prod(counts), extents[tile.inner[0]] or target.tile_rows(1), target.resident_bytes
    if _bytes(s, operands[1]) > cache:
        source = _bytes_read(s, block, operands[0])
        is_large = source > cache and source // _PARTS <= target.filling_bytes
        return -(-tiles // _PARTS) if is_large and tiles >= TALL * _PARTS else 1
    row = widest_itemsize(s.func, reduction) * prod(a.extent.value() or 1 for a in block.axes if a.kind == "reduce")
    sizes = [1]
    while tiles >= 2 * sizes[-1] * _BLOCKS * target.threads and 2 * sizes[-1] * height * row <= cache:
        sizes.append(2 * sizes[-1])
    most = max(_share_of_blocks(tiles, n, target) for n in sizes)
    return max(n for n in sizes if _share_of_blocks(tiles, n, target) >= _EVEN * most)


def _share_of_blocks(tiles: int, block: int, target: Target) -> float:
    """The share of the time in which all threads have something to do, of blocks of so many tiles and a rest that one
    of them has."""
    blocks, rest = divmod(tiles, block)
    longest = -(-blocks // target.threads) * block + rest
    return tiles / target.threads / longest if longest else 1.0


def _loops_indexing(s: Schedule, reduction: str, operands: Sequence[str]) -> set[str]:
    """Names of the consumers' loops over which an operand's packed panels vary, matched through the result's axes."""
    block = find_block(s.func, reduction)
    used = {v for x in loads(block.value) if x.buffer in operands for i in x.indices for v in i.free_vars()}
    out: set[str] = set()
    for user in consumers(s.func, block.buffer):
        env = block_environment(user)
        for x in loads(user.value):
            if x.buffer == block.buffer:
                for stored, index in zip(block.indices, x.indices, strict=True):
                    if stored.free_vars() & used:
                        out |= index.substitute(env).free_vars()
    return out


def _bytes_read(s: Schedule, block: Block, buffer: str) -> int:
    """Size of what ``block`` reads of a buffer: of a strided convolution's operand perhaps a part only."""
    env = block_environment(block)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block.name)}
    indices = [i.substitute(env) for x in loads(block.value) if x.buffer == buffer for i in x.indices]
    points = [extents.get(v) for v in {v for i in indices for v in i.free_vars()}]
    size = _bytes(s, buffer)
    if None in points:
        return size
    return min(size, find_buffer(s.func, buffer).dtype.itemsize * prod(n for n in points if n is not None))


def _bytes(s: Schedule, buffer: str) -> int:
    """Size of a buffer; its symbolic dims together count as ``_UNKNOWN`` (a batch of 1, or a short sequence)."""
    b = find_buffer(s.func, buffer)
    sizes = [d.value() for d in b.shape]
    known = prod(x for x in sizes if x is not None)
    return b.dtype.itemsize * known * (_UNKNOWN if None in sizes else 1)
