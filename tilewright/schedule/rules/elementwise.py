"""Elementwise, data movement, gathers, and everything else that is one block without a reduction.

Neighbouring loops are fused where every access stays linear, the loop with the most unit strides is vectorized, a few
vectors are in flight, and the outermost loop is spread over threads. Decisions: ``<block>.vectors``, how many,
``<block>.loop``, which loop becomes vectors, ``<block>.lanes``, how wide they are, ``<block>.rows``, how many steps of
another loop are written out inside (transposes), and those of :mod:`.parallelism` and :mod:`.streaming_stores`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.base import ELEMENTS, ScheduleRule
from tilewright.schedule.rules.facts import (
    StridedAccess,
    block_accesses,
    expr_size,
    is_spatial,
    loops_of,
    nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.sampling import choose_number
from tilewright.schedule.rules.streaming_stores import stream_if_large
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import find_block, find_loop

_VECTOR_COUNTS = (1, 2, 4, 8)
_ROW_COUNTS = (1, 2, 4, 8)
_WRITTEN_OUT = 4096
"""Nodes of an expression that are written out side by side by default: a sample of cubic interpolation has 1,400 to
2,800, which are independent enough for one vector to keep the CPU busy, and take LLVM long enough."""
_ALTERNATE = 4
"""Planes that are stored as one (:mod:`tilewright.codegen.emit.copies`)."""


def _matches(s: Schedule, block: str, target: Target) -> list[None]:
    """A block of spatial axes by itself."""
    return [None] if is_spatial(find_block(s.func, block)) else []


def schedule_elementwise(s: Schedule, block: str, target: Target, above: int = 0) -> None:
    """Schedule the nest of ``block`` below its first ``above`` loops. Parallel only when ``above`` is 0."""
    total = nanoseconds(s.func, block, target.costs)
    fuse_linear(s, block, above)
    names = [x.var for x in loops_of(s.func, block)][above:]
    if not names:
        return
    inner = _choose_vector_loop(s, block, names)
    outer = [n for n in names if n != inner]
    if outer and names[-1] != inner and not s.attempt(lambda a: a.reorder(*outer, inner)):
        inner, outer = names[-1], names[:-1]
    row = _take_rows(s, block, outer, inner)
    lead = vectorize_loop(s, block, inner, target)
    if row is not None:
        s.attempt(lambda a: _write_rows(a, block, row))
    outer = [*outer, *([lead] if lead is not None else [])]
    if above == 0:
        parallelize(s, block, [n for n in outer if n in s.loops(block)], total, target)
        stream_if_large(s, block, target)
    if lead is not None and lead in s.loops(block):
        peel_if_ragged(s, block, lead)


def _choose_vector_loop(s: Schedule, block: str, names: list[str]) -> str:
    """The loop that becomes vectors: the best by strides, or another along which some access is contiguous."""
    own = vector_loop(s, block, names)
    accesses = block_accesses(s.func, block)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    fit = [n for n in names if n == own or (extents[n] != 1 and any(x.stride(n) == 1 for x in accesses))]
    place = choose_number(s, f"{block}.loop", [names.index(n) for n in fit], names.index(own))
    return names[place]


def _take_rows(s: Schedule, block: str, outer: list[str], inner: str) -> str | None:
    """A few steps of another loop, to be written out inside the vector loop: where a vector alone jumps in memory.

    ``outer`` then has what is left of that loop.
    """
    accesses = block_accesses(s.func, block)
    if all(x.stride(inner) in (0, 1) for x in accesses):
        return None
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    beside = [n for n in outer if extents[n] != 1 and any(x.stride(n) == 1 for x in accesses)]
    if not beside:
        return None
    own = extents[beside[-1]]
    options = [r for r in _ROW_COUNTS if own is not None and own % r == 0]
    few = own if own is not None and own <= _ALTERNATE and _alternates(accesses, beside[-1], inner, own) else 1
    count = choose_number(s, f"{block}.rows", options, few)
    if count == 1:
        return None
    at = outer.index(beside[-1])
    outer[at], row = s.split(beside[-1], (None, count))
    return row


def _alternates(accesses: Sequence[StridedAccess], row: str, inner: str, count: int) -> bool:
    """True if a few planes become one: vectors along ``inner`` are stored so that those of ``row`` lie in between."""
    return all(
        (x.stride(inner) == count and x.stride(row) == 1) if x.is_store else x.stride(inner) == 1 for x in accesses
    )


def _write_rows(s: Schedule, block: str, row: str) -> None:
    names = s.loops(block)
    *outer, lanes = (n for n in names[names.index(row) :] if n != row)
    s.reorder(*outer, row, lanes)
    s.unroll(row)


def fuse_linear(s: Schedule, block: str, above: int = 0) -> None:
    """Fuse neighbours, innermost first, while ``stride(outer) == stride(inner) * extent(inner)`` for every access."""
    names = [x.var for x in loops_of(s.func, block)][above:]
    while len(names) > 1:
        loops = {x.var: x for x in loops_of(s.func, block)}
        accesses = block_accesses(s.func, block)
        for a, b in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
            if all(is_fusable(x, a, b, loops[b].extent) for x in accesses):
                try:
                    s.fuse(a, b)
                except ScheduleError:
                    continue
                break
        else:
            return
        names = [x.var for x in loops_of(s.func, block)][above:]


def is_fusable(x: StridedAccess, outer: str, inner: str, extent: IntExpr) -> bool:
    """True if ``x`` goes on in the next step of ``outer`` where the last one of ``inner`` ended."""
    so, si = x.strides.get(outer), x.strides.get(inner)
    return so is not None and si is not None and so == si * extent


def vector_loop(s: Schedule, block: str, names: list[str]) -> str:
    """The loop whose steps touch most neighbours; ties go to the innermost."""
    accesses = block_accesses(s.func, block)
    extents = {x.var: x.extent.value() for x in loops_of(s.func, block)}
    best, best_score = names[-1], float("-inf")
    for depth, name in enumerate(names):
        score = depth * 1e-3
        for x in accesses:
            step = x.stride(name)
            good = step == 1 or (step == 0 and not x.is_store)
            score += (2.0 if x.is_store else 1.0) * (1.0 if good else -0.5 if step is not None else -1.0)
        extent = extents[name]
        if extent is not None and extent < 4:
            score -= 4.0
        if score > best_score:
            best, best_score = name, score
    return best


def vectorize_loop(s: Schedule, block: str, loop: str, target: Target, vectors: int | None = None) -> str | None:
    """Split ``loop`` into an outer loop, an unrolled one and vector lanes; returns the outer loop's name.

    A loop that fits in one vector becomes the lanes as it is (returns None).
    """
    lanes = target.lanes(widest_itemsize(s.func, block))
    extent = find_loop(s.func, loop).extent.value()
    if extent == 1 or lanes == 1:
        return loop
    lanes = choose_lanes(s, block, lanes, target)
    if extent is not None and extent <= lanes:
        s.vectorize(loop)
        return None
    count = vectors or target.costs.side_by_side
    while count > 1 and extent is not None and extent < 2 * lanes * count:
        count //= 2
    size = expr_size(find_block(s.func, block).value)
    while count > 1 and count * size > _WRITTEN_OUT:
        count //= 2
    count = whole_vectors(s, loop, count, lanes)
    count = int(s.sample_categorical(f"{block}.vectors", _VECTOR_COUNTS, count))
    if count > 1:
        outer, middle, inner = s.split(loop, (None, count, lanes))
        s.vectorize(inner)
        s.unroll(middle)
        return outer
    outer, inner = s.split(loop, (None, lanes))
    s.vectorize(inner)
    return outer


def whole_vectors(s: Schedule, loop: str, count: int, lanes: int) -> int:
    """``count`` vectors a step, or fewer where a symbolic extent has no partial step then."""
    extent = find_loop(s.func, loop).extent
    if extent.is_const:
        return count
    return next((c for c in (count, count // 2, count // 4) if c and extent % (c * lanes) == 0), count)


def choose_lanes(s: Schedule, block: str, lanes: int, target: Target) -> int:
    """The width of a vector: where registers are wider than 256 bits, half of one may run at a higher clock."""
    narrow = [lanes // 2] if target.has_wide_vectors and lanes > 1 else []
    return choose_number(s, f"{block}.lanes", narrow, lanes)


def peel_if_ragged(s: Schedule, block: str, loop: str) -> None:
    """Separate the last, partial iteration of ``loop``, if some loop inside depends on it.

    Not where the tail would be of symbolic size and written out: a test per step is cheaper than what it would become.
    """
    around = {x.var: x for x in loops_of(s.func, block)}
    if not around[loop].extent.is_const and any(x.kind == "unrolled" for x in around.values()):
        return
    for x in loops_of(s.func, block):
        if loop in x.extent.free_vars():
            try:
                s.peel(loop)
            except ScheduleError:
                return
            return


def vectorize_inner(s: Schedule, block: str, above: int, target: Target, vectors: int | None = None) -> None:
    """Vectorize the innermost loop of ``block`` below its first ``above`` loops, if it has one."""
    fuse_linear(s, block, above)
    names = [x.var for x in loops_of(s.func, block)][above:]
    if not names:
        return
    lead = vectorize_loop(s, block, names[-1], target, vectors)
    if lead is not None:
        peel_if_ragged(s, block, lead)


ELEMENTWISE = ScheduleRule(
    "elementwise", _matches, lambda s, block, match, target: schedule_elementwise(s, block, target), ELEMENTS
)
