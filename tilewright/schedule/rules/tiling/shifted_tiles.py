"""Convolutions in matrix tiles whose rows are neighbours in the image: every tap reads the image as it lies.

The formulas are those of :func:`tilewright.lowering.geometry.tile_sums.shifted_sums`. A row of the product is a pixel
of the padded image, also at its edges, where nothing is taken from the sums; so the sums of a few rows of the image are
a run of rows of the product, and blocks of them need no test::

    for ho in h / rows:                    # or the panels outside; threads share these loops
        for jr in n / nr:
            for mo in blocks:              # of rows * w pixels, and what lies between them
                acc[mo] = sum              # the intrinsic
            C[...] = f(acc[...])           # of the pixels that are not of the edge, in vectors

Where what finishes the sums does not go over the image like that, they are computed before.

Decisions, of ``<acc>`` the reduction: ``.order`` (whether columns or rows are outside), ``.rows`` (of the image, in a
step), ``.ahead`` (whether panels are fetched), ``.stream`` (the operand that passes by: :mod:`.steps_in_turns`),
``<image>.at`` (where the image is copied), and those of :mod:`tilewright.schedule.rules.parallelism`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from tilewright.core.arith.bounds import simplify
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.schedule.compact_buffer import LOCAL_BYTES
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT
from tilewright.schedule.rules.base import SPREAD, ScheduleRule
from tilewright.schedule.rules.elementwise import schedule_elementwise, vectorize_inner
from tilewright.schedule.rules.facts import (
    all_blocks,
    buffer_bytes,
    is_spatial,
    loops_of,
    nanoseconds,
    reduction_feeders,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.prefetch import fetch_panels
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.rules.tiling.cache_blocking import read_panels_once
from tilewright.schedule.rules.tiling.steps_in_turns import choose_streamed, stream
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer, loop_ranges
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct
from tilewright.tensor_ir.ir import Block, Func, Load, Op, loads

_HEIGHT = 2 * SIDE
"""Rows of a block."""
_STEPS = 4
"""Steps of the outer loops for each thread, if possible."""
_RUNS = (_HEIGHT, 2 * _HEIGHT, 4 * _HEIGHT)
"""Pixels of a row of the image in a step, where only a call tells how many there are."""
_COPY = 0.1
"""Copying a pixel, in rows of the product."""
_ORDERS = ("columns", "rows")


@dataclass(frozen=True, slots=True)
class ShiftedProduct:
    """A sum of products, the intrinsic that computes a block of it, and the buffers of the image and of B's panels."""

    reduction: str
    by: TileProduct
    image: str
    right: str


@dataclass(frozen=True, slots=True)
class _Loops:
    """The consumer's loops over images, rows and columns of an image, and channels, None where it has one. ``panels``:
    whether the channels are in several panels. ``wide``: how far the rows of the product lie apart that are below each
    other in the image, None where only a call tells. ``beyond``: how many rows behind its first a pixel reads."""

    batch: tuple[str, ...]
    down: str
    across: str
    channels: str | None
    panels: bool
    wide: int | None
    beyond: int


def loaded_factors(block: Block) -> tuple[str, Load, Load] | None:
    """The operation that ``block`` sums, and both of its operands, if these are read from buffers."""
    step = block.value.args[1] if isinstance(block.value, Op) and len(block.value.args) == 2 else None
    if not isinstance(step, Op) or len(step.args) != 2:
        return None
    left, right = step.args
    return (step.name, left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def tile_factors(block: Block) -> tuple[str, bool, Load, Load] | None:
    """The operation on words that ``block`` sums, whether of operands in two parts, and both of their first ones."""
    if (one := loaded_factors(block)) is not None:
        return one[0], False, *one[1:]
    step = block.value.args[1] if isinstance(block.value, Op) and len(block.value.args) == 2 else None
    match step:
        case Op(
            "add",
            (Op("add", (Op(high, (Load() as a, Load() as b), _), Op(low, (al, c), _)), _), Op(last, (d, bl), _)),
            _,
        ):
            alike = high == low == last and (c, d) == (b, a)
            parts = isinstance(al, Load) and isinstance(bl, Load) and (al.buffer, bl.buffer) == (a.buffer, b.buffer)
            return (high, True, a, b) if alike and parts else None
        case _:
            return None


def shifted_product(func: Func, reduction: str) -> ShiftedProduct | None:
    """What ``reduction`` computes, if it has this form."""
    block = find_block(func, reduction)
    factors = tile_factors(block)
    if factors is None:
        return None
    name, split, left, right = factors
    sums = find_buffer(func, block.buffer)
    width = sums.shape[-1].value() if sums.shape else None
    if width is None or len(left.indices) != 2 or sum(a.kind == "reduce" for a in block.axes) != 3:
        return None
    wanted = TileProduct(name, str(sums.dtype), _HEIGHT // SIDE, width // SIDE, "split_taps" if split else "taps")
    known = TILE_PRODUCTS.get(wanted.name) == wanted
    return ShiftedProduct(reduction, wanted, left.buffer, right.buffer) if known else None


def _matches(s: Schedule, block: str, target: Target) -> Iterator[ShiftedProduct]:
    """The products of this form that ``block`` finishes."""
    if not is_spatial(find_block(s.func, block)):
        return
    for name in reduction_feeders(s, block):
        product = shifted_product(s.func, name)
        if product is not None and has_matrix_tiles(target, product.by.product):
            yield product


def _apply(s: Schedule, block: str, match: ShiftedProduct, target: Target) -> None:
    if not s.attempt(lambda a: _finish(a, block, match, target)):
        _alone(s, match, target)
        schedule_elementwise(s, block, target)


def _finish(s: Schedule, consumer: str, match: ShiftedProduct, target: Target) -> None:
    """Compute the sums where ``consumer`` reads them."""
    reduction, by = match.reduction, match.by
    total = nanoseconds(s.func, reduction, target.costs)
    lanes = target.lanes(max(widest_itemsize(s.func, reduction), widest_itemsize(s.func, consumer)))
    loops = _consumer_loops(s, match, consumer)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, consumer)}
    high, across = extents[loops.down], extents[loops.across]
    own = _own_order(s, match, target) if loops.panels else "rows"
    images = prod(extents[x] or 1 for x in loops.batch)
    room = _room(s, match, loops.wide) if own == "rows" and loops.wide is not None else None
    columns, column = _split_channels(s, loops, by)
    if high is None or across is None or loops.wide is None:
        run = choose_number(s, f"{reduction}.run", _RUNS, _HEIGHT)
        down, (over, along) = loops.down, s.split(loops.across, (None, run))
        steps, inside = [down, over], [along]
    else:
        taken = across + loops.beyond
        rows = _own_rows(high, taken, loops.wide, SIDE * by.columns, images if own == "rows" else None, room, target)
        down, row = s.split(loops.down, (None, choose_number(s, f"{reduction}.rows", divisors(high), rows)))
        steps, inside = [down], [row, loops.across]
    order = s.sample_categorical(f"{reduction}.order", _ORDERS, own) if columns else own
    lead = [*columns, *loops.batch, *steps] if order == "columns" else [*loops.batch, *steps, *columns]
    s.reorder(*lead, *inside, *column)
    s.compute_at(reduction, lead[-1], whole=True, multiple=_HEIGHT)
    _in_blocks(s, match, lead, lead[0] in columns, target)
    _place_image(s, match, lead, down, room is not None, target)
    write_out(s, consumer, column, lanes)
    parallelize(s, consumer, lead, None if total is None else total * share_of_tiles(target, by.product), target)


def _split_channels(s: Schedule, loops: _Loops, by: TileProduct) -> tuple[list[str], list[str]]:
    """The loops over panels and over the channels of one."""
    if loops.channels is None or not loops.panels:
        return [], [] if loops.channels is None else [loops.channels]
    panels, channels = s.split(loops.channels, (None, SIDE * by.columns))
    return [panels], [channels]


def _alone(s: Schedule, match: ShiftedProduct, target: Target) -> None:
    """All sums before anything reads them: what finishes them walks over the image in another way."""
    total = nanoseconds(s.func, match.reduction, target.costs)
    panel = s.loops(match.reduction)[1]
    s.reorder(panel, s.loops(match.reduction)[0])
    over = _in_blocks(s, match, [panel], True, target)
    took = None if total is None else total * share_of_tiles(target, match.by.product)
    parallelize(s, match.reduction, [panel, over], took, target)


def _in_blocks(s: Schedule, match: ShiftedProduct, lead: Sequence[str], outside: bool, target: Target) -> str:
    """Compute the rows inside ``lead`` in blocks; the loop over these. ``outside``: the panels are."""
    block = find_block(s.func, match.reduction)
    bound = block.indices[0].substitute(block_environment(block)).free_vars()
    rows = next(x for x in s.loops(match.reduction) if x in bound and x not in lead)
    over, nest = s.split(rows, (None, _HEIGHT))
    fetch_panels(s, match.reduction, nest, match.right, outside, target)
    streamed = choose_streamed(s, match.reduction, _passing(s, match, target))
    stream(s, nest, streamed, match.image, match.right)
    s.tensorize(nest, match.by.name)
    return over


def _passing(s: Schedule, match: ShiftedProduct, target: Target) -> str:
    """Each block of rows goes over the panel. One that is larger than the first-level cache passes by, and rows that
    other taps read stay; to one that nearly fills it the rows leave it."""
    right = find_buffer(s.func, match.right)
    size, panels = buffer_bytes(right), right.shape[0].value()
    if size is None or panels is None or size > panels * target.l1_bytes:
        return "panel"
    return "rows" if size > panels * target.l1_panel_bytes else "none"


def _place_image(
    s: Schedule, match: ShiftedProduct, lead: Sequence[str], down: str, near: bool, target: Target
) -> None:
    """Copy the image at the loop over its rows, by default if those of a step are ``near`` then, or before."""
    for stage in [b.name for b in all_blocks(s.func) if b.buffer == match.image]:
        if s.sample_compute_location(stage, [down], down if near else ROOT) != ROOT:
            s.compute_at(stage, down)
            vectorize_inner(s, stage, lead.index(down) + 1, target)


def _consumer_loops(s: Schedule, match: ShiftedProduct, consumer: str) -> _Loops:
    """The loops by what they do to the row of the product that is read. Raises ScheduleError."""
    block, sums = find_block(s.func, consumer), find_block(s.func, match.reduction).buffer
    env, names = block_environment(block), [x.var for x in loops_of(s.func, consumer)]
    read = [[i.substitute(env) for i in x.indices] for x in loads(block.value) if x.buffer == sums]
    row, _, column = read[0]
    panels = [simplify(i, loop_ranges(loops_of(s.func, consumer))) for _, i, _ in read]
    panel, beyond = panels[0], [(i - row).value() for i, _, _ in read]
    apart = {v: c for v in names if (c := row.coefficient(v)) is not None and c != 0}
    channels = [v for v in names if v in panel.free_vars() | column.free_vars()]
    order = sorted(apart, key=lambda v: (len(apart[v].free_vars()), apart[v].value() or inf, -names.index(v)))
    known = [n for n in beyond if n is not None and n >= 0]
    straight = row.free_vars() <= {*apart, *s.func.dims} and len(known) == len(beyond)
    alike = all(i == 0 for i in panels) or all(other == read[0] for other in read)
    one = len(channels) == 1 or (not channels and panel == 0)
    if not (straight and alike and one) or {*channels} & {*apart} or len(order) < 2 or apart[order[0]] != 1:
        raise ScheduleError(f"{consumer}: reads no run of rows")
    across, down = order[:2]
    batch = [v for v in names if v not in (across, down, *channels)]
    of_channels = channels[0] if channels else None
    return _Loops(tuple(batch), down, across, of_channels, panel != 0, apart[down].value(), max(known))


def _own_order(s: Schedule, match: ShiftedProduct, target: Target) -> str:
    """Columns outside where the panels do not stay in the second-level cache but the image does, as one of unknown size
    is taken to, or where each thread would read more of both otherwise."""
    right = find_buffer(s.func, match.right)
    image, panels = buffer_bytes(find_buffer(s.func, match.image)), buffer_bytes(right)
    if panels is None:
        return "rows"
    if image is None:
        return "columns" if target.resident_bytes < panels else "rows"
    many = (right.shape[0].value() or 1) >= _STEPS * target.threads
    return "columns" if read_panels_once(image, panels, target, many) else "rows"


def _room(s: Schedule, match: ShiftedProduct, wide: int) -> tuple[int, int] | None:
    """If the image is copied where it is read: how many of its rows have a local buffer, and how many a step reads
    besides its own. None if these are too many, or the size of the image is not known."""
    image = find_buffer(s.func, match.image)
    size, words = buffer_bytes(image), image.shape[-1].value()
    if size is None or words is None:
        return None
    pixels, rows = image.shape[0].value() or 0, find_buffer(s.func, find_block(s.func, match.reduction).buffer).shape[0]
    beside = -(-(pixels - (rows.value() or 0) + _HEIGHT) // wide)
    fit = LOCAL_BYTES // (wide * words * image.dtype.itemsize)
    return (fit, beside) if fit > beside else None


def _own_rows(
    high: int, across: int, wide: int, width: int, images: int | None, room: tuple[int, int] | None, target: Target
) -> int:
    """Rows of the image in a step: those that take least for a row of the image, of rows of the product and of copies,
    whose sums and rows have local buffers, and that leave each thread a few steps of ``images``, where only these have
    steps."""

    def size(rows: int) -> int:
        return -(-((rows - 1) * wide + across) // _HEIGHT) * _HEIGHT

    def taken(rows: int) -> float:
        return (size(rows) + (0 if room is None else room[1] * wide * _COPY)) / rows

    most = high if room is None else room[0] - room[1]
    fits = [r for r in divisors(high) if 4 * width * size(r) <= LOCAL_BYTES and r <= most] or [1]
    shared = [r for r in fits if images is None or images * (high // r) >= _STEPS * target.threads]
    return min(shared or fits[:1], key=lambda r: (taken(r), r))


SHIFTED_TILES = ScheduleRule(
    "shifted_tiles", _matches, _apply, ("order", "rows", "run", "ahead", "stream", "at", *SPREAD)
)
