"""Products in matrix tiles, a few steps of the sums of several row tiles in turns, then the next few: what these read
of a panel stays in the first-level cache, and the sums lie in memory in between, where the intrinsic resumes them.

Of two operands one is read again soon, and the other passes by. Where both do not fit in the first-level cache, the one
that passes is streamed: it is loaded without taking the place of the other, which then may be almost as large as the
cache.

Decisions, of ``<acc>`` the reduction: ``.depth`` (steps at a time), ``.stream`` (the operand that passes).
"""

from __future__ import annotations

from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import reduce_loops
from tilewright.schedule.rules.sampling import choose_number, divisors
from tilewright.schedule.rules.tiling.cache_blocking import LoopOrder
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_loop
from tilewright.tensor_ir.intrinsics import SIDE, TileProduct

_PASSING = ("none", "rows", "panel")
_LEAST = 4
"""Steps at a time, at least: sums are loaded and stored for each few."""
_TILE_BYTES = 4 * SIDE * SIDE
"""Of an operand or of sums."""


def tiles_in_turns(count: int | None, by: TileProduct, target: Target) -> int:
    """How many of ``count`` row tiles take steps in turns: as many as have their sums in the first-level cache."""
    sums = _TILE_BYTES * by.rows * by.columns
    return max((n for n in divisors(count) if n * sums <= target.l1_sums_bytes), default=1)


def choose_streamed(s: Schedule, reduction: str, own: str) -> str:
    """Ask which operand passes through the first-level cache without staying there: none, the rows or the panel."""
    return str(s.sample_categorical(f"{reduction}.stream", _PASSING, own))


def stream(s: Schedule, nest: str, streamed: str, rows: str, panel: str) -> None:
    """Let ``nest`` stream what :func:`choose_streamed` found, of the buffers ``rows`` and ``panel``."""
    if streamed != "none":
        s.stream(nest, rows if streamed == "rows" else panel)


def passing(s: Schedule, reduction: str, by: TileProduct, order: LoopOrder, target: Target) -> str:
    """The operand of which each step of the innermost loop that has several reads something else, where what the others
    read again does not stay in the first-level cache by itself."""
    steps = find_loop(s.func, reduce_loops(s.func, reduction)[0]).extent.value()
    last = next((x for x in reversed(order.loops) if find_loop(s.func, x).extent.value() != 1), None)
    if last is None:
        return "none"
    kept, other = (by.columns, "rows") if last in order.rows else (by.rows, "panel")
    stays = steps is not None and steps * _TILE_BYTES * kept * by.planes <= target.l1_panel_bytes
    return "none" if stays else other


def choose_steps(s: Schedule, reduction: str, by: TileProduct, target: Target, alone: bool) -> int | None:
    """Ask how many steps at a time; None for all, the default for a panel that fits in the first-level cache.
    ``alone``: nothing but the sums shares that with the panel."""
    extent = find_loop(s.func, reduce_loops(s.func, reduction)[0]).extent.value()
    sizes = [n for n in divisors(extent) if n >= _LEAST]
    if extent is None or not sizes:
        return None
    step = _TILE_BYTES * by.columns * by.planes
    fitting = [n for n in sizes if n * step <= (target.l1_sums_bytes if alone else target.l1_panel_bytes)]
    own = fitting[-1] if fitting and extent * step >= target.l1_bytes else extent
    depth = choose_number(s, f"{reduction}.depth", sizes, own)
    return None if depth == extent else depth


def sum_in_turns(s: Schedule, reduction: str, over: str, depth: int) -> None:
    """Sum up ``depth`` steps for all row tiles, one in each step of ``over``, then the next."""
    turns, _ = s.split(reduce_loops(s.func, reduction)[0], (None, depth))
    loops = s.loops(reduction)
    s.reorder(turns, *(x for x in loops[loops.index(over) :] if x != turns))
