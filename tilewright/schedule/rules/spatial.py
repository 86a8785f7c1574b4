"""Elementwise, data movement, gathers, and everything else that is one block without a reduction.

Neighbouring loops are fused where every access stays linear, the loop with the most unit strides is vectorized, a few
vectors are in flight, and the outermost loop is spread over threads. Decision: ``<block>.vectors``, how many.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import IntExpr
from tilewright.core.target import Target
from tilewright.schedule.rules.facts import Access, block_accesses, loops_of, nanoseconds, widest_itemsize
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.schedule import Schedule

_VECTORS = 4
_VECTOR_COUNTS = (1, 2, 4, 8)


def schedule_spatial(s: Schedule, block: str, target: Target, above: int = 0) -> None:
    """Schedule the nest of ``block`` below its first ``above`` loops. Parallel only when ``above`` is 0."""
    total = nanoseconds(s.func, block)
    fuse_linear(s, block, above)
    names = [x.var for x in loops_of(s.func, block)][above:]
    if not names:
        return
    inner = vector_loop(s, block, names)
    outer = [n for n in names if n != inner]
    if outer and names[-1] != inner:
        try:
            s.reorder(*outer, inner)
        except ScheduleError:
            inner = names[-1]
            outer = names[:-1]
    lead = vectorize_loop(s, block, inner, target)
    outer = [*outer, *([lead] if lead is not None else [])]
    if above == 0:
        parallelize(s, block, outer, total, target)
    if lead is not None and lead in {x.var for x in loops_of(s.func, block)}:
        peel_if_ragged(s, block, lead)


def fuse_linear(s: Schedule, block: str, above: int = 0) -> None:
    """Fuse neighbours, innermost first, while ``stride(outer) == stride(inner) * extent(inner)`` for every access."""
    names = [x.var for x in loops_of(s.func, block)][above:]
    while len(names) > 1:
        loops = {x.var: x for x in loops_of(s.func, block)}
        accesses = block_accesses(s.func, block)
        for a, b in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
            if all(_fusable(x, a, b, loops[b].extent) for x in accesses):
                try:
                    s.fuse(a, b)
                except ScheduleError:
                    continue
                break
        else:
            return
        names = [x.var for x in loops_of(s.func, block)][above:]


def _fusable(x: Access, outer: str, inner: str, extent: IntExpr) -> bool:
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


def vectorize_loop(s: Schedule, block: str, loop: str, target: Target, vectors: int = _VECTORS) -> str | None:
    """Split ``loop`` into an outer loop, an unrolled one and vector lanes; returns the outer loop's name.

    A loop that fits in one vector becomes the lanes as it is (returns None).
    """
    lanes = target.lanes(widest_itemsize(s.func, block))
    extent = next(x.extent.value() for x in loops_of(s.func, block) if x.var == loop)
    if extent == 1 or lanes == 1:
        return loop
    if extent is not None and extent <= lanes:
        s.vectorize(loop)
        return None
    count = vectors
    while count > 1 and extent is not None and extent < 2 * lanes * count:
        count //= 2
    count = int(s.sample_categorical(f"{block}.vectors", _VECTOR_COUNTS, count))
    if count > 1:
        outer, middle, inner = s.split(loop, (None, count, lanes))
        s.vectorize(inner)
        s.unroll(middle)
        return outer
    outer, inner = s.split(loop, (None, lanes))
    s.vectorize(inner)
    return outer


def peel_if_ragged(s: Schedule, block: str, loop: str) -> None:
    """Separate the last, partial iteration of ``loop``, if some loop inside depends on it.

    Not where the tail would be of symbolic size and written out: a test a step is cheaper than what it would become.
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


def vectorize_inner(s: Schedule, block: str, above: int, target: Target) -> None:
    """Vectorize the innermost loop of ``block`` below its first ``above`` loops, if it has one."""
    fuse_linear(s, block, above)
    names = [x.var for x in loops_of(s.func, block)][above:]
    if not names:
        return
    lead = vectorize_loop(s, block, names[-1], target)
    if lead is not None:
        peel_if_ragged(s, block, lead)
