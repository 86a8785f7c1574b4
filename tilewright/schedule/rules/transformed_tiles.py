"""Tiles that are transformed, multiplied channel by channel, and transformed back: Winograd and its kin.

Found by structure: a multiply-add whose operand is made by a stage that combines several elements of another stage, and
whose results are combined again before anything else reads them. The nest of the last reader is cut into tiles (the
positions that read the same results). Two forms, decided by what fits in the second-level cache:

- strips: for each strip of tiles, the operand of the strip is transformed into a buffer of its own; then, panel after
  panel of columns, the products of the strip and their transform back, with the epilogue. Threads share the strips.
- whole: all tiles are transformed, then multiplied, then transformed back, with the threads in each of the three.

Either way a transform runs over one tile and one vector of channels at a time, written out, in registers and the first
cache. Decisions: ``<product>.strip`` (tiles of a strip; the number of all tiles is the second form) and
``<product>.rows`` (tiles of the register tile).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import FloorDiv, IntExpr, Mod, as_var
from tilewright.core.target import Target
from tilewright.schedule.rules.ahead import fetch_ahead
from tilewright.schedule.rules.facts import (
    all_blocks,
    buffer_bytes,
    is_multiply_add,
    is_spatial,
    loops_of,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.spatial import peel_if_ragged
from tilewright.schedule.rules.tiles import write_out, write_reduction
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.shrink import LOCAL_BYTES
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_buffer
from tilewright.tensor_ir.ir import Block, Func, loads

_COMBINED = 3
"""A stage that reads a buffer at this many places or more combines its elements."""

_FEWEST = 4
"""Tiles of a strip, at least: fewer do not fill a register tile."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The blocks in order: ``source`` (a stage that the first pass reads, if there is one), ``before`` (passes over the
    operand), ``product``, ``after`` (passes over its results)."""

    source: str | None
    before: tuple[str, ...]
    product: str
    after: tuple[str, ...]

    def stages(self) -> frozenset[str]:
        """The blocks that must not be inlined."""
        return frozenset((*self.before, self.product, *self.after, *([self.source] if self.source else [])))


def find_chains(func: Func) -> list[Chain]:
    """Every multiply-add between transforms, in program order."""
    found = (_chain(func, b) for b in all_blocks(func) if is_multiply_add(b))
    return [c for c in found if c is not None]


def _chain(func: Func, block: Block) -> Chain | None:
    makers = {b.buffer: b for b in all_blocks(func) if is_spatial(b)}
    sources = [makers[n] for n in dict.fromkeys(x.buffer for x in loads(block.value)) if n in makers]
    if len(sources) != 1:
        return None
    before, after = [sources[0]], []
    while (feeder := _combined(before[0], makers)) is not None and _only_for(func, feeder, before[0]):
        before.insert(0, feeder)
    source = before.pop(0).name if len({x.indices for x in loads(before[0].value)}) < _COMBINED else None
    last = block
    while len(users := consumers(func, last.buffer)) == 1 and is_spatial(users[0]) and _combines(users[0], last.buffer):
        last = users[0]
        after.append(last.name)
    if not before or not after:
        return None
    return Chain(source, tuple(b.name for b in before), block.name, tuple(after))


def _combined(block: Block, makers: dict[str, Block]) -> Block | None:
    """The one stage whose elements ``block`` combines."""
    found = [makers[n] for n in {x.buffer for x in loads(block.value)} & makers.keys() if _combines(block, n)]
    return found[0] if len(found) == 1 else None


def _combines(block: Block, buffer: str) -> bool:
    return len({x.indices for x in loads(block.value) if x.buffer == buffer}) >= _COMBINED


def _only_for(func: Func, stage: Block, user: Block) -> bool:
    return [u.name for u in consumers(func, stage.buffer)] == [user.name]


def transformed_tiles_rule(s: Schedule, block: str, target: Target) -> bool:
    """The schedule of a chain that ``block`` is the last reader of."""
    for chain in find_chains(s.original):
        if [u.name for u in consumers(s.func, find_block(s.func, chain.after[-1]).buffer)] == [block]:
            return s.attempt(partial(_schedule, chain=chain, user=block, target=target))
    return False


@dataclass(frozen=True, slots=True)
class _Nest:
    """The last reader's loops: ``outer`` over tiles, ``columns`` over panels; the rest is one panel of one tile.

    ``counts``: tiles along each loop of ``outer``.
    """

    outer: tuple[str, ...]
    counts: tuple[int, ...]
    columns: str
    vectors: str
    inside: tuple[str, ...]
    lanes: str


def _schedule(s: Schedule, chain: Chain, user: str, target: Target) -> None:
    work = total_nanoseconds(s.func, (*chain.before, chain.product, *chain.after))
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in (*chain.stages(), user)))
    nest = _cut(s, chain, user, lanes)
    count = math.prod(nest.counts)
    strip = _decide_strip(s, chain, nest.counts, target)
    if strip < count:
        _strips(s, chain, user, nest, strip, lanes, work, target)
    else:
        _whole(s, chain, user, nest, count, lanes, work, target)


def _cut(s: Schedule, chain: Chain, user: str, lanes: int) -> _Nest:
    """Split the reader's loops at the divisors with which it addresses the tiles."""
    buffer = find_block(s.func, chain.after[-1]).buffer
    block = find_block(s.func, user)
    env = block_environment(block)
    reads = {x.indices for x in loads(block.value) if x.buffer == buffer}
    index = [i.substitute(env) for i in next(iter(reads))]
    column = as_var(index[-1])
    if column is None:
        raise ScheduleError(f"{user}: expected the columns of {buffer} in one loop, got {index[-1]}")
    width = find_buffer(s.func, find_block(s.func, chain.product).buffer).shape[-1].value()
    divisors = {name: d for i in index for name, d in _divided(i)}
    positions = {v for i in index[1:-1] for v in i.free_vars()}
    outer: list[str] = []
    inside: list[str] = []
    for name in [x.var for x in loops_of(s.func, user) if x.var != column]:
        if name in divisors:
            over, within = s.split(name, (None, divisors[name]))
            outer.append(over)
            inside.append(within)
        elif name in positions:  # not more than one tile long
            inside.append(name)
        else:
            outer.append(name)
    columns, rest = s.split(column, (None, width))
    vectors, last = s.split(rest, (None, lanes))
    s.reorder(*outer, columns, vectors, *inside, last)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, user)}
    counts = [n for x in outer if (n := extents[x]) is not None]
    if len(counts) != len(outer) or not counts:
        raise ScheduleError(f"{user}: expected a known number of tiles")
    return _Nest(tuple(outer), tuple(counts), columns, vectors, tuple(inside), last)


def _divided(e: IntExpr) -> Iterator[tuple[str, int]]:
    """Loops that an index divides by a constant, with the constant."""
    for atom in e.atoms():
        if isinstance(atom, (FloorDiv, Mod)):
            name, divisor = as_var(atom.args[0]), atom.args[1].value()
            if name is not None and divisor is not None:
                yield name, divisor
            else:
                yield from _divided(atom.args[0])


def _decide_strip(s: Schedule, chain: Chain, counts: Sequence[int], target: Target) -> int:
    """Tiles of a strip: rows of tiles or a part of a row, strips of equal size if possible.

    By default half of what fits, where the weights stay in the cache from strip to strip. Where they do not, all tiles
    (the second form), or as many as fit if all tiles would not stay in the third-level cache.
    """
    block = find_block(s.func, chain.product)
    operand = find_block(s.func, chain.before[-1]).buffer
    weights = next(x.buffer for x in loads(block.value) if x.buffer not in (block.buffer, operand))
    total, size = math.prod(counts), _bytes(s, operand)
    panels = find_buffer(s.func, block.buffer).shape[-2].value() or 1
    fits = _fitting(size // total, _bytes(s, block.buffer) // (total * panels), target)
    row, rows = counts[-1], counts[-2] if len(counts) > 1 else 1
    options = {-(-row // k) for k in range(1, row + 1)} | {k * row for k in range(1, rows + 1)}
    options = {n for n in options if _FEWEST <= n <= fits}
    reused = _bytes(s, weights) <= 2 * target.l2_bytes
    even = [n for n in options if (row % n if n < row else rows * row % n) == 0 and (2 * n <= fits or not reused)]
    own = max(even, default=total) if reused or size > target.l3_bytes // 4 else total
    return int(s.sample_categorical(f"{chain.product}.strip", tuple(sorted({*options, total})), own))


def _fitting(operand: int, products: int, target: Target) -> int:
    """Tiles whose operand and products of one panel, of so many bytes a tile, fit in the cache as local buffers."""
    room = min(target.l2_bytes, 2 * LOCAL_BYTES) * 3 // 4
    return min(room // max(1, operand + products), LOCAL_BYTES // max(1, operand, products))


def _bytes(s: Schedule, buffer: str) -> int:
    b = find_buffer(s.func, buffer)
    size = buffer_bytes(b)
    if size is None:
        raise ScheduleError(f"{buffer}: expected a known size, got ({', '.join(map(str, b.shape))})")
    return size


def _strips(
    s: Schedule, chain: Chain, user: str, nest: _Nest, strip: int, lanes: int, work: float | None, target: Target
) -> None:
    *lead, last = nest.outer
    if strip < nest.counts[-1]:
        over, last = s.split(last, (None, strip))
        outer, tiles = [*lead, over], [last]
    else:
        over, rows = s.split(lead[-1], (None, strip // nest.counts[-1]))
        outer, tiles = [*lead[:-1], over], [rows, last]
    s.reorder(*outer, nest.columns, *tiles, nest.vectors, *nest.inside, nest.lanes)
    copy, row, tile_axis = _separate(s, chain)
    _place_after(s, chain, nest)
    s.compute_at(copy, nest.columns)
    _write_back(s, chain, user, nest)
    register_tiles = _products(s, chain, copy, {*outer, nest.columns}, row, strip, lanes, target)
    s.compute_at(chain.before[-1], outer[-1])
    _transform(s, chain, set(outer), tile_axis, lanes)
    peel_if_ragged(s, copy, register_tiles)
    peel_if_ragged(s, user, nest.columns)
    parallelize(s, user, outer, work, target)


def _whole(
    s: Schedule, chain: Chain, user: str, nest: _Nest, count: int, lanes: int, work: float | None, target: Target
) -> None:
    copy, row, tile_axis = _separate(s, chain)
    _place_after(s, chain, nest)
    _write_back(s, chain, user, nest)
    register_tiles = _products(s, chain, copy, set(), row, count, lanes, target)
    _transform(s, chain, set(), tile_axis, lanes)
    peel_if_ragged(s, copy, register_tiles)
    peel_if_ragged(s, user, nest.columns)
    parallelize(s, user, [*nest.outer, nest.columns], work, target)
    parallelize(s, copy, [x.var for x in loops_of(s.func, copy)][:2], work, target)
    parallelize(s, chain.before[-1], [tile_axis], work, target)
    fetch_ahead(s, chain.product, target)


def _separate(s: Schedule, chain: Chain) -> tuple[str, str, str]:
    """A copy of the products, so that they are made in registers; its loop, and the operand's loop, over tiles."""
    block, operand = find_block(s.func, chain.product), find_block(s.func, chain.before[-1])
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for x in loads(block.value):
        if x.buffer != block.buffer:
            used[x.buffer == operand.buffer] |= {v for i in x.indices for v in i.free_vars()}
    axes = [as_var(i) for i in block.indices]
    tiles = [a for a in axes if a in used[True] - used[False]]
    read = next(x.indices for x in loads(block.value) if x.buffer == operand.buffer)
    places = [d for d, i in enumerate(read) if as_var(i) in tiles]
    if len(tiles) != 1 or len(places) != 1:
        raise ScheduleError(f"{chain.product}: expected one axis over tiles, got {len(tiles)}")
    tile_axis = loops_of(s.func, operand.name)[places[0]].var
    copy = s.cache_write(chain.product, "global")
    return copy, loops_of(s.func, copy)[axes.index(tiles[0])].var, tile_axis


def _place_after(s: Schedule, chain: Chain, nest: _Nest) -> None:
    """The last pass row by row of the tile, where it stays in registers; those before it for the tile at once."""
    *first, last = chain.after
    s.compute_at(last, nest.inside[0] if first and len(nest.inside) > 1 else nest.vectors)
    for block in reversed(first):
        s.compute_at(block, nest.vectors)


def _write_back(s: Schedule, chain: Chain, user: str, nest: _Nest) -> None:
    """The transform back of one tile and one vector, and its last reader, written out."""
    around = {x.var for x in loops_of(s.func, user)}
    for block in chain.after:
        _write(s, [x.var for x in loops_of(s.func, block) if x.var not in around])
    _write(s, [*nest.inside, nest.lanes])


def _write(s: Schedule, loops: Sequence[str]) -> None:
    s.vectorize(loops[-1])
    for name in loops[:-1]:
        s.unroll(name)


def _products(
    s: Schedule, chain: Chain, copy: str, around: set[str], row: str, count: int, lanes: int, target: Target
) -> str:
    """The products of ``count`` tiles as register tiles of rows and vectors; the loop over register tiles."""
    *outer, column = [x.var for x in loops_of(s.func, copy) if x.var not in {row, *around}]
    width = next(x.extent.value() for x in loops_of(s.func, copy) if x.var == column) or lanes
    limit = target.tile_rows(max(1, width // lanes))
    own = _tile_rows(count, limit)
    options = tuple(range(1, min(count, limit + 2) + 1))
    over, inside = s.split(row, (None, int(s.sample_categorical(f"{chain.product}.rows", options, own))))
    s.reorder(*outer, over, inside, column)
    s.compute_at(chain.product, over)
    write_reduction(s, chain.product, lanes, {*around, *outer, over})
    write_out(s, copy, [inside, column], lanes)
    return over


def _tile_rows(count: int, limit: int) -> int:
    """Rows of the register tile for which ``count`` rows take the fewest steps.

    A tile of few rows takes as long as one of four: its multiply-adds wait for each other.
    """

    def steps(rows: int) -> float:
        full, rest = divmod(count, rows)
        return full * (max(rows, 4) + 0.5) + (max(rest, 4) + 0.5 if rest else 0)

    return min(range(1, min(count, limit) + 1), key=lambda rows: (steps(rows), -rows))


def _transform(s: Schedule, chain: Chain, around: set[str], tile: str, lanes: int) -> None:
    """The passes over the operand, for one tile and one vector of channels at a time, written out."""
    *first, last = chain.before
    *inside, channel = [x.var for x in loops_of(s.func, last) if x.var not in {tile, *around}]
    vectors, channel = s.split(channel, (None, lanes))
    s.reorder(tile, vectors, *inside, channel)
    for block in reversed(first):
        s.compute_at(block, vectors)
        _write(s, [x.var for x in loops_of(s.func, block) if x.var not in {tile, vectors, *around}])
    _write(s, [*inside, channel])
    peel_if_ragged(s, last, vectors)
