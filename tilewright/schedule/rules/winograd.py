"""Tiles that are transformed, multiplied channel by channel, and transformed back: Winograd and its kin.

Found by structure: a multiply-add whose operand is made by a stage that combines several elements of another stage, and
whose results are combined again before anything else reads them. The nest of the last reader is cut into tiles (the
positions that read the same results). Two forms, decided by what fits in the second-level cache:

- strips: for each strip of tiles, the operand of the strip is transformed into a buffer of its own; then, panel after
  panel of columns, the products of the strip and their transform back, with the epilogue. Threads share the strips.
- whole: all tiles are transformed, then multiplied, then transformed back, with the threads in each of the three; or
  the last two panel after panel, so that the products of a panel are transformed back while they are in the cache.

Either way a transform runs over one tile and one vector of channels at a time, written out, in registers and the first
cache. A strip is a few rows of tiles of an image, or a part of one; where these do not come out even among the threads,
an equal share of all tiles, and where images are of symbolic size, a few register tiles of any rows and images.
Decisions: ``<product>.strip`` (tiles of a strip; that of all, or 0 if that is symbolic, is the second form),
``<product>.results`` (in the second form, ``all`` products before any is transformed back, or those of a ``panel``) and
``<product>.rows`` (tiles of the register tile).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import simplify
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod, as_var
from tilewright.core.errors import ScheduleError
from tilewright.machine.costs import Costs
from tilewright.machine.target import Target
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.rules.base import SPREAD, WRITE, ScheduleRule
from tilewright.schedule.rules.elementwise import peel_if_ragged
from tilewright.schedule.rules.facts import (
    all_blocks,
    is_multiply_add,
    is_spatial,
    loops_of,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import BALANCED, busy_share, parallelize
from tilewright.schedule.rules.prefetch import fetch_ahead
from tilewright.schedule.rules.sampling import divisors
from tilewright.schedule.rules.tiling.write_tile import write_out, write_reduction
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import (
    block_environment,
    consumers,
    find_block,
    find_buffer,
    find_loop,
    loop_ranges,
)
from tilewright.tensor_ir.ir import Block, Func, loads

_COMBINED = 3
"""A stage that reads a buffer at this many places or more combines its elements."""

_FEWEST = 4
"""Tiles of a strip, at least: fewer do not fill a register tile."""

_MANY = 64
"""Tiles from which on their products are transformed back panel by panel."""

_SHARES = 4
"""Where rows of tiles do not come out even among the threads, a thread has at most so many strips."""

_DOUBLINGS = 6
"""Strips of a symbolic number of tiles are one register tile or three, so many times doubled."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """The blocks in order: ``source`` (a stage that the first pass reads, if there is one), ``before`` (passes over the
    operand), ``product``, ``after`` (passes over its results)."""

    source: str | None
    before: tuple[str, ...]
    product: str
    after: tuple[str, ...]

    def stages(self) -> frozenset[str]:
        """The blocks that must not be inlined."""
        return frozenset((*self.before, self.product, *self.after, *([self.source] if self.source else [])))


def find_winograd(func: Func) -> list[Transformed]:
    """Every multiply-add between transforms, in program order."""
    found = (_winograd(func, b) for b in all_blocks(func) if is_multiply_add(b))
    return [c for c in found if c is not None]


def _winograd(func: Func, block: Block) -> Transformed | None:
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
    return Transformed(source, tuple(b.name for b in before), block.name, tuple(after))


def _combined(block: Block, makers: dict[str, Block]) -> Block | None:
    """The one stage whose elements ``block`` combines."""
    found = [makers[n] for n in {x.buffer for x in loads(block.value)} & makers.keys() if _combines(block, n)]
    return found[0] if len(found) == 1 else None


def _combines(block: Block, buffer: str) -> bool:
    return len({x.indices for x in loads(block.value) if x.buffer == buffer}) >= _COMBINED


def _only_for(func: Func, stage: Block, user: Block) -> bool:
    return [u.name for u in consumers(func, stage.buffer)] == [user.name]


def _matches(s: Schedule, block: str, target: Target) -> list[Transformed]:
    """The convolution that ``block`` is the last reader of."""
    return [
        conv for conv in find_winograd(s.original)
        if [u.name for u in consumers(s.func, find_block(s.func, conv.after[-1]).buffer)] == [block]
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Nest:
    """The last reader's loops: ``outer`` over tiles, ``columns`` over panels; the rest is one panel of one tile.

    ``counts``: tiles along each loop of ``outer``, None if symbolic: of the only one, or of the first, over images.
    """

    outer: tuple[str, ...]
    counts: tuple[int | None, ...]
    columns: str
    vectors: str
    inside: tuple[str, ...]
    lanes: str

    def total(self) -> int | None:
        """All tiles."""
        known = [n for n in self.counts if n is not None]
        return math.prod(known) if len(known) == len(self.counts) else None


def _apply(s: Schedule, block: str, match: Transformed, target: Target) -> None:
    conv, user = match, block
    work = total_nanoseconds(s.func, (*conv.before, conv.product, *conv.after), target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in (*conv.stages(), user)))
    nest = _cut(s, conv, user, lanes)
    strip = _decide_strip(s, conv, nest, lanes, target)
    if strip in (0, nest.total()):
        by_panel = _decide_results(s, conv, nest, target) == "panel"
        _whole(s, conv, user, nest, by_panel, lanes, work, target)
    else:
        _strips(s, conv, user, nest, strip, lanes, work, target)


def _cut(s: Schedule, conv: Transformed, user: str, lanes: int) -> _Nest:
    """Split the reader's loops at the divisors with which it addresses the tiles."""
    buffer = find_block(s.func, conv.after[-1]).buffer
    for name, size in dict.fromkeys(_divided(_index_of(s, user, buffer)[-1])):  # the columns of a tile are in groups
        s.split(name, (None, size))
    index = _index_of(s, user, buffer)
    column = as_var(index[-1])
    if column is None:
        raise ScheduleError(f"{user}: expected the columns of {buffer} in one loop, got {index[-1]}")
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
    columns, rest = s.split(column, (None, _width(s, conv)))
    vectors, last = s.split(rest, (None, lanes))
    s.reorder(*outer, columns, vectors, *inside, last)
    if not outer:
        raise ScheduleError(f"{user}: expected loops over tiles")
    extents = {x.var: x.extent.value() for x in loops_of(s.func, user)}
    if None in [extents[x] for x in outer[1:]]:
        outer = [s.fuse(*outer)]
    return _Nest(tuple(outer), tuple(extents.get(x) for x in outer), columns, vectors, tuple(inside), last)


def _index_of(s: Schedule, user: str, buffer: str) -> list[IntExpr]:
    """Where ``user`` reads ``buffer``, in its loops."""
    block = find_block(s.func, user)
    ranges = loop_ranges(loops_of(s.func, user))
    read = next(x.indices for x in loads(block.value) if x.buffer == buffer)
    return [simplify(i.substitute(block_environment(block)), ranges) for i in read]


def _divided(e: IntExpr) -> Iterator[tuple[str, int]]:
    """Loops that an index divides by a constant, with the constant."""
    for atom in e.atoms():
        if isinstance(atom, (FloorDiv, Mod)):
            name, divisor = as_var(atom.args[0]), atom.args[1].value()
            if name is not None and divisor is not None:
                yield name, divisor
            else:
                yield from _divided(atom.args[0])


def _decide_strip(s: Schedule, conv: Transformed, nest: _Nest, lanes: int, target: Target) -> int:
    """Tiles of a strip: rows of tiles or a part of a row, strips of equal size if possible; or equal shares of all
    tiles, or whole register tiles.

    By default half of what fits, where the weights stay in the cache from strip to strip, in as many strips as keep all
    threads busy to the end. Where they do not, all tiles (the second form), or as many as fit if all tiles would not
    stay in the third-level cache.
    """
    block = find_block(s.func, conv.product)
    operand = find_block(s.func, conv.before[-1]).buffer
    weights = next(x.buffer for x in loads(block.value) if x.buffer not in (block.buffer, operand))
    total, size = nest.total() or 0, _known_bytes(s, operand)
    panels = find_buffer(s.func, block.buffer).shape[-2].value() or 1
    each, result = size // (total or 1), _known_bytes(s, block.buffer) // ((total or 1) * panels)
    row, rows = nest.counts[-1], (nest.counts[-2:-1] or (1,))[0] or 1
    fits = _fitting(each, result, target)
    if row is None:
        tile = target.tile_rows(max(1, _width(s, conv) // lanes))
        options = {n << k for n in (tile, 3 * tile) for k in range(_DOUBLINGS)}
    else:
        options = {-(-row // k) for k in range(1, row + 1)} | {k * row for k in range(1, rows + 1)}
    shares = {-(-total // (k * target.threads)) for k in range(1, _SHARES + 1)}
    shares, options = ({n for n in found if _FEWEST <= n <= fits} for found in (shares, options))
    reused = _known_bytes(s, weights) <= target.nearby_bytes

    def is_even(n: int) -> bool:
        return row is None or (row % n if n < row else rows * row % n) == 0

    even = [n for n in options if is_even(n) and (2 * n <= fits or not reused)]

    def busy(n: int) -> float:
        return busy_share(total / n, target) if total else 1.0

    most = max(map(busy, {*even, *shares}), default=1.0)
    even, shared = ([n for n in found if busy(n) >= BALANCED * most] for found in (even, shares))
    own = max(even or shared, default=total) if reused or (total and size > target.l3_share_bytes) else total
    return int(s.sample_categorical(f"{conv.product}.strip", tuple(sorted({*options, *shares, total})), own))


def _decide_results(s: Schedule, conv: Transformed, nest: _Nest, target: Target) -> str:
    """Whether all products are made before any is transformed back, or those of a panel.

    By default the latter where those of all tiles stay in the second-level cache beside an operand that comes from the
    last one, and the tiles are so many that a panel's weights are not what the time goes to.
    """
    total = nest.total()
    if total is None:
        return "all"
    own = "panel" if _MANY <= total <= _most_tiles(s, conv, total, target.beside_bytes) else "all"
    return str(s.sample_categorical(f"{conv.product}.results", ("all", "panel"), own))


def _most_tiles(s: Schedule, conv: Transformed, total: int, room: int) -> int:
    """Tiles, of ``total``, whose products of one panel fit in ``room`` bytes."""
    products = find_buffer(s.func, find_block(s.func, conv.product).buffer)
    each = _known_bytes(s, products.name) // ((products.shape[-2].value() or 1) * (total or 1))
    return room // max(1, each)


def _fitting(operand: int, products: int, target: Target) -> int:
    """Tiles whose operand and products of one panel, of so many bytes per tile, fit in the cache as local buffers."""
    room = min(target.filling_bytes, LOCAL_BYTES * 3 // 2)
    return min(room // max(1, operand + products), LOCAL_BYTES // max(1, operand, products))


def _known_bytes(s: Schedule, buffer: str) -> int:
    """Size of a buffer, or of what it has for one tile if their number is symbolic."""
    b = find_buffer(s.func, buffer)
    return math.prod(n for d in b.shape if (n := d.value()) is not None) * b.dtype.itemsize


def _width(s: Schedule, conv: Transformed) -> int:
    """Columns of a panel."""
    return find_buffer(s.func, find_block(s.func, conv.product).buffer).shape[-1].value() or 1


def _strips(
    s: Schedule, conv: Transformed, user: str, nest: _Nest, strip: int, lanes: int, work: float | None, target: Target
) -> None:
    *lead, last = nest.outer
    row = nest.counts[-1]
    if row is None or strip < row:
        over, last = s.split(last, (None, strip))
        outer, tiles = [*lead, over], [last]
    elif strip % row:
        over, last = s.split(s.fuse(*nest.outer), (None, strip))
        outer, tiles = [over], [last]
    else:
        over, rows = s.split(lead[-1], (None, strip // row))
        outer, tiles = [*lead[:-1], over], [rows, last]
    s.reorder(*outer, nest.columns, *tiles, nest.vectors, *nest.inside, nest.lanes)
    copy, results, tile_axis = _separate(s, conv)
    _place_after(s, conv, nest)
    s.compute_at(copy, nest.columns)
    _write_back(s, conv, user, nest)
    register_tiles = _products(s, conv, copy, {*outer, nest.columns}, results, strip, lanes, target)
    s.compute_at(conv.before[-1], outer[-1])
    _transform(s, conv, set(outer), tile_axis, target)
    s.attempt(lambda a: a.peel(register_tiles))
    peel_if_ragged(s, user, nest.columns)
    parallelize(s, user, outer, work, target)


def _whole(
    s: Schedule, conv: Transformed, user: str, nest: _Nest, by_panel: bool, lanes: int, work: float | None,
    target: Target,
) -> None:  # fmt: skip
    around: list[str] = []
    count = nest.total()
    if by_panel:
        over, tiles = _tiles_at_once(s, conv, nest)
        s.reorder(nest.columns, *over, *tiles, nest.vectors, *nest.inside, nest.lanes)
        around = [nest.columns, *over]
        count = math.prod(find_loop(s.func, x).extent.value() or 1 for x in tiles)
    copy, results, tile_axis = _separate(s, conv)
    _place_after(s, conv, nest)
    if by_panel:
        s.compute_at(copy, around[-1])
    _write_back(s, conv, user, nest)
    register_tiles = _products(s, conv, copy, {*around}, results, count, lanes, target)
    _transform(s, conv, set(), tile_axis, target)
    s.attempt(lambda a: a.peel(register_tiles))
    peel_if_ragged(s, user, nest.columns)
    parallelize(s, user, [nest.columns] if by_panel else [*nest.outer, nest.columns], work, target)
    if not by_panel:
        parallelize(s, copy, [x.var for x in loops_of(s.func, copy)][:2], work, target)
    parallelize(s, conv.before[-1], [tile_axis], work, target)
    fetch_ahead(s, conv.product, target)


def _tiles_at_once(s: Schedule, conv: Transformed, nest: _Nest) -> tuple[list[str], list[str]]:
    """The loops over tiles, in two parts: the products of all tiles of the second fit in a local buffer, of a panel."""
    most = max(1, _most_tiles(s, conv, nest.total() or 0, LOCAL_BYTES))
    around, tiles, counts = [], list(nest.outer), [n or 1 for n in nest.counts]
    while math.prod(counts) > most and len(tiles) > 1:
        around.append(tiles.pop(0))
        counts.pop(0)
    if counts[0] > most:
        parts = next((n for n in divisors(counts[0]) if counts[0] // n <= most), counts[0])
        over, inside = s.split(tiles[0], (None, counts[0] // parts))
        around.append(over)
        tiles = [inside]
    return around, tiles


def _separate(s: Schedule, conv: Transformed) -> tuple[str, str, str]:
    """A copy of the products, so that they are made in registers; its loop, and the operand's loop, over tiles."""
    block, operand = find_block(s.func, conv.product), find_block(s.func, conv.before[-1])
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for x in loads(block.value):
        if x.buffer != block.buffer:
            used[x.buffer == operand.buffer] |= {v for i in x.indices for v in i.free_vars()}
    axes = [as_var(i) for i in block.indices]
    tiles = [a for a in axes if a in used[True] - used[False]]
    read = next(x.indices for x in loads(block.value) if x.buffer == operand.buffer)
    places = [d for d, i in enumerate(read) if as_var(i) in tiles]
    if len(tiles) != 1 or len(places) != 1:
        raise ScheduleError(f"{conv.product}: expected one axis over tiles, got {len(tiles)}")
    tile_axis = loops_of(s.func, operand.name)[places[0]].var
    copy = s.cache_write(conv.product, "global")
    return copy, loops_of(s.func, copy)[axes.index(tiles[0])].var, tile_axis


def _place_after(s: Schedule, conv: Transformed, nest: _Nest) -> None:
    """The last pass row by row of the tile, where it stays in registers; those before it for the tile at once."""
    *first, last = conv.after
    s.compute_at(last, nest.inside[0] if first and len(nest.inside) > 1 else nest.vectors)
    for block in reversed(first):
        s.compute_at(block, nest.vectors)


def _write_back(s: Schedule, conv: Transformed, user: str, nest: _Nest) -> None:
    """The transform back of one tile and one vector, and its last reader, written out."""
    around = {x.var for x in loops_of(s.func, user)}
    for block in conv.after:
        _write(s, [x.var for x in loops_of(s.func, block) if x.var not in around])
    _write(s, [*nest.inside, nest.lanes])


def _write(s: Schedule, loops: Sequence[str]) -> None:
    s.vectorize(loops[-1])
    for name in loops[:-1]:
        s.unroll(name)


def _products(
    s: Schedule, conv: Transformed, copy: str, around: set[str], row: str, count: int | None, lanes: int, target: Target
) -> str:
    """The products of ``count`` tiles (None: symbolic) as register tiles of rows and vectors; the loop over them."""
    *outer, column = [x.var for x in loops_of(s.func, copy) if x.var not in {row, *around}]
    limit = target.tile_rows(max(1, _width(s, conv) // lanes))
    own = limit if count is None else _tile_rows(count, limit, target.costs)
    options = tuple(range(1, min(limit + 2 if count is None else count, limit + 2) + 1))
    over, inside = s.split(row, (None, int(s.sample_categorical(f"{conv.product}.rows", options, own))))
    s.reorder(*outer, over, inside, column)
    s.compute_at(conv.product, over)
    write_reduction(s, conv.product, lanes, {*around, *outer, over})
    write_out(s, copy, [inside, column], lanes)
    return over


def _tile_rows(count: int, limit: int, costs: Costs) -> int:
    """Rows of the register tile for which ``count`` rows take the fewest cycles.

    A tile of few rows takes as long as a multiply-add: they wait for each other.
    """
    least, more = costs.step_cycles, costs.transformed_read_cycles

    def cycles(rows: int) -> float:
        full, rest = divmod(count, rows)
        return full * (max(rows, least) + more) + (max(rest, least) + more if rest else 0)

    return min(range(1, min(count, limit) + 1), key=lambda rows: (cycles(rows), -rows))


def _transform(s: Schedule, conv: Transformed, around: set[str], tile: str, target: Target) -> None:
    """The passes over the operand, for one tile and one vector of channels at a time, written out."""
    *first, last = conv.before
    lanes = target.lanes(max(widest_itemsize(s.func, b) for b in conv.before))
    *inside, channel = [x.var for x in loops_of(s.func, last) if x.var not in {tile, *around}]
    vectors, channel = s.split(channel, (None, lanes))
    s.reorder(tile, vectors, *inside, channel)
    for block in reversed(first):
        s.compute_at(block, vectors)
        _write(s, [x.var for x in loops_of(s.func, block) if x.var not in {tile, vectors, *around}])
    _write(s, [*inside, channel])
    peel_if_ragged(s, last, vectors)


WINOGRAD = ScheduleRule("winograd", _matches, _apply, ("strip", "results", "rows", "ahead", *WRITE, *SPREAD))
