"""Prefetching: what a loop with the hint ``prefetch="B"`` fetches into cache, read off the loops around it.

A product keeps a panel of its weights in cache while it goes over the rows; the next panel would first be missed when
its turn comes. A loop with this hint fetches one cache line of it a step, or a few if the panel has more lines
than there are steps::

    for n in N:              the next step of this loop reads the next panel
        for m in M:          the panel is read again: its lines are shared out over these steps
            for k_0 in range(K, prefetch="B"):
                for k_1 in 4: acc[m] = acc[m] + A[m, k_0*4 + k_1] * B[n, k_0*4 + k_1]

Here step (m, k_0) fetches line ``m*K + k_0`` of panel n + 1. Other loops of the reduction may stand between those over
rows and the loop that fetches: the panel's lines are counted through them. Where the number of rows is symbolic there
may be more steps than lines: the rest of them fetch the last one. Where no loop around reads the same part again, a
step fetches what it will itself read in the next step of the loop around it: one line, or all of a few rows. It is a
hint: a line too many, or past the end of the buffer, costs time at most. Where the loops around do not have this form,
nothing is fetched.

Where a panel is read but once, its lines would be there too early: ``prefetch="B, C + 3"`` fetches what the step three
later reads of two buffers. That is not far, but perhaps in the next page, where what the CPU fetches by itself ends.
Where loops read the panel again, their first step does so, and the others fetch what the next panel has.

A nest that an intrinsic runs has the reduction inside: each of its steps fetches a part of what the same step will read
of the next panel, its code says how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.core.arith.bounds import Ranges, simplify
from tilewright.core.arith.expr import ZERO, IntExpr, product, var
from tilewright.core.arith.minmax import minimum
from tilewright.machine.memory import LINE_BYTES
from tilewright.tensor_ir.analysis.access import address, stride
from tilewright.tensor_ir.analysis.scopes import block_environment, blocks_in, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.empty_reductions import reduce_vars
from tilewright.tensor_ir.hints import Prefetch, find_hint
from tilewright.tensor_ir.ir import Block, Func, Loop, loads, walk

_MOST_LINES, _MOST_LINES_OF_ROWS = 4, 64


@dataclass(frozen=True, slots=True)
class FetchedLines:
    """What to fetch at the start of each step of a loop: lines of ``buffer``, ``lines`` elements behind ``offset``.

    ``shared``: the loops, outermost first, that read the same part again and so share the fetching. ``first``: True if
    the first step of these alone does it, False if all others do.
    """

    buffer: str
    offset: IntExpr
    lines: tuple[int, ...]
    shared: tuple[str, ...]
    first: bool | None = None


def prefetches(func: Func) -> dict[str, tuple[FetchedLines, ...]]:
    """What each loop with the hint fetches, by loop; those around which nothing can be fetched ahead are left out."""
    found = {}
    for s in walk(func.body):
        hint = find_hint(s.hints, Prefetch) if isinstance(s, Loop) else None
        if not isinstance(s, Loop) or hint is None:
            continue
        lines = [_later(func, s, b, hint.steps) if hint.steps else prefetch_of(func, s, b) for b in hint.buffers]
        lines += [_by_others(func, s, x) for x in lines[:1] if x is not None and x.first]
        if any(x is not None for x in lines):
            found[s.var] = tuple(x for x in lines if x is not None)
    return found


def steps_written_out(loop: Loop) -> Loop | None:
    """The loop in ``loop`` that has a known number of steps of the same reduction, one behind the other."""
    inner = loop.body
    if not isinstance(inner, Loop) or inner.kind != "unrolled" or (inner.extent.value() or 0) < 2:
        return None
    blocks = blocks_in(inner.body)
    return inner if blocks and all(inner.var in reduce_vars(b) for b in blocks) else None


def bytes_of_step(func: Func, loop: Loop, buffer: str) -> int:
    """How far behind what a step of ``loop`` reads of a parameter the next step reads; 0 if that is not known."""
    first = _first_read(func, loop, buffer)
    return 0 if first is None else _taken(first[0], loop, first[1]) * _itemsize(func, buffer)


def _later(func: Func, loop: Loop, buffer: str, steps: int) -> FetchedLines | None:
    """What the step so many ``steps`` later reads of ``buffer``, as if the loop went on."""
    first = _first_read(func, loop, buffer)
    if first is None:
        return None
    at, ranges, _ = first
    taken, line = _taken(at, loop, ranges), max(1, LINE_BYTES // _itemsize(func, buffer))
    if not 0 < taken <= line * _MOST_LINES_OF_ROWS:
        return None
    here = at.substitute({s.var: 0 for s in walk(loop.body) if isinstance(s, Loop)})
    found = _next_panel(func, loop, buffer)
    again = tuple(x.var for x in ([] if found is None else found[2]) if x.extent != 1)
    lines = tuple(range(0, taken, line))
    return FetchedLines(buffer, simplify(here + taken * steps, ranges), lines, again, bool(again) or None)


def _by_others(func: Func, loop: Loop, by_first: FetchedLines) -> FetchedLines | None:
    """What the steps fetch that read again what the first one read: the next panel."""
    found = prefetch_of(func, loop, by_first.buffer)
    return None if found is None else replace(found, first=False)


def prefetch_of(func: Func, loop: Loop, buffer: str) -> FetchedLines | None:
    """What ``loop`` would fetch of ``buffer``, or None (see the module docstring)."""
    found = _next_panel(func, loop, buffer)
    if found is None:
        return None
    at, step, share, within, ranges = found
    inside = [s for s in walk(loop.body) if isinstance(s, Loop)]
    position = ZERO
    for s in (*share, *within, loop):
        position = position * s.extent + var(s.var)
    if any(s.extent.free_vars() & ranges.keys() for s in (*share, *within, loop)):
        return None
    here = at.substitute({s.var: 0 for s in (*within, loop, *inside)})
    taken, line = _taken(at, loop, ranges), max(1, LINE_BYTES // _itemsize(func, buffer))
    lines: Sequence[int]
    if share or within:
        lines = range(0, _lines_a_step(taken, line, share) * line, line)
        position = position * line * len(lines)
    else:
        lines = _next_read(at, inside, line, ranges)
        position = position * max(line, taken)
    if not all(s.extent.is_const for s in share):
        position = minimum(position, step - line)
    return FetchedLines(buffer, simplify(here + step + position, ranges), tuple(lines), tuple(s.var for s in share))


def ahead_of_nest(func: Func, nest: Loop, buffer: str) -> tuple[IntExpr, IntExpr, int | None] | None:
    """Of a nest that an intrinsic runs: how far behind what it reads of ``buffer`` its next panel lies, which of the
    nests that read the same panel it is, and how many there are, None if that is not known. None if there is no next
    panel."""
    found = _next_panel(func, nest, buffer)
    if found is None:
        return None
    _, step, share, within, ranges = found
    if within or any(s.extent.free_vars() & ranges.keys() for s in share):
        return None
    position = ZERO
    for s in share:
        position = position * s.extent + var(s.var)
    return step, position, product(s.extent for s in share).value()


def _next_panel(func: Func, loop: Loop, buffer: str) -> tuple[IntExpr, IntExpr, list[Loop], list[Loop], Ranges] | None:
    """Of what ``loop`` reads of ``buffer``, the address, how far behind it lies what the next step of a loop around it
    reads, the loops between that read the same again, and the other loops of the reduction between."""
    first = _first_read(func, loop, buffer)
    if first is None:
        return None
    at, ranges, block = first
    around = loops_in(loop_path(func, loop.var))
    reduced = reduce_vars(block)
    within: list[Loop] = []
    share: list[Loop] = []
    for outer in reversed(around[:-1]):
        step = stride(at, outer.var, ranges)
        if step is None:
            return None
        if step == ZERO or outer.extent == 1:
            share.insert(0, outer)
        elif outer.var in reduced and not share:
            within.insert(0, outer)
        else:
            break
    else:
        return None
    return at, step, share, within, ranges


def _first_read(func: Func, loop: Loop, buffer: str) -> tuple[IntExpr, Ranges, Block] | None:
    """The address of what ``loop`` reads first of a parameter, the ranges of the loops, and the block that reads it."""
    reads = [(b, x) for b in blocks_in(loop.body) for x in loads(b.value) if x.buffer == buffer]
    known = {b.name: b for b in func.params}
    around = loops_in(loop_path(func, loop.var))
    if not reads or buffer not in known or any(s.kind == "vectorized" for s in around):
        return None
    block, read = reads[0]
    ranges = loop_ranges([*around, *(s for s in walk(loop.body) if isinstance(s, Loop))])
    return address(read, known[buffer].shape, block_environment(block), ranges), ranges, block


def _taken(at: IntExpr, loop: Loop, ranges: Ranges) -> int:
    """Elements from what a step of ``loop`` reads to what the next one reads; 0 if that is not known."""
    own = stride(at, loop.var, ranges)
    return 0 if own is None else own.value() or 0


def _itemsize(func: Func, buffer: str) -> int:
    return next(b for b in func.params if b.name == buffer).dtype.itemsize


def _lines_a_step(taken: int, line: int, share: Sequence[Loop]) -> int:
    """Lines that a step fetches of a panel of which it takes ``taken`` elements, where ``share`` share the fetching."""
    tiles = [s.extent.value() for s in share]
    if not tiles or None in tiles:
        return 1
    return max(1, min(_MOST_LINES, -(-taken // (line * math.prod(n or 1 for n in tiles)))))


def _next_read(address: IntExpr, inside: Sequence[Loop], line: int, ranges: Ranges) -> tuple[int, ...]:
    """Elements in each of the lines that the loops inside read in rows that lie apart; of a single row the first.

    The last ones: in memory that is not aligned, the line of the first was fetched with what comes before it.
    """
    rows, span = [0], 1
    for s in inside:
        step, extent = stride(address, s.var, ranges), s.extent.value()
        apart = 0 if step is None else step.value() or 0
        if extent is not None and apart >= 2 * line:
            rows = [r + n * apart for r in rows for n in range(extent)]
        elif extent is not None:
            span += (extent - 1) * apart
    lines = [r + min(n + line, span) - 1 for r in rows for n in range(0, span, line)]
    return tuple(lines) if len(rows) > 1 and len(lines) <= _MOST_LINES_OF_ROWS else (0,)
