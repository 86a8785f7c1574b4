"""Resampling along the last axis (image resizing): a row is made in vectors, then picked from at the positions wanted.

A block that combines elements of a stage at positions read from memory along the last axis has to collect them one by
one. What it collects from is made row by row, in vectors, just before: a row stays in a near cache, and what goes into
it (the other direction of a resize, conversions, a move of channels) is computed once for all positions. Where the
stage itself reads neighbours along another axis, as of an image whose channels lie together, rows are kept in that
order. Decisions: those of :mod:`.parallelism` and of :func:`.spatial.vectorize_loop`.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.rules.facts import block_accesses, is_spatial, loops_of, total_nanoseconds
from tilewright.schedule.rules.inlining import is_sampled
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.spatial import fuse_linear, peel_if_ragged, vectorize_loop
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block
from tilewright.tensor_ir.ir import loads


def sampled_rows_rule(s: Schedule, block: str, target: Target) -> bool:
    """A block that samples rows of a stage which only it reads."""
    found = find_block(s.func, block)
    stage = sampled_stage(s, block) if is_spatial(found) else None
    return stage is not None and s.attempt(lambda a: _schedule(a, block, stage, target))


def sampled_stage(s: Schedule, block: str) -> str | None:
    """The spatial stage of which ``block`` samples rows; None if there is none, or more than one."""
    user = find_block(s.func, block)
    read = dict.fromkeys(x.buffer for x in loads(user.value))
    stages = [
        name for name in s.blocks()
        if (b := find_block(s.func, name)).buffer in read and is_spatial(b) and is_sampled(b, user)
        and [u.name for u in consumers(s.func, b.buffer)] == [block]
    ]  # fmt: skip
    return stages[0] if len(stages) == 1 else None


def _schedule(s: Schedule, block: str, stage: str, target: Target) -> None:
    total = total_nanoseconds(s.func, (stage, block))
    inner = _inner_dims(s, stage)
    rows = _row_loops(s, block, stage, inner)
    rest = [x.var for x in loops_of(s.func, block) if x.var not in rows]
    if not rows or not rest:
        raise ScheduleError(f"{block}: no rows of {stage}")
    s.reorder(*rows, *rest)
    s.compute_at(stage, rows[-1])
    _schedule_stage(s, stage, inner, len(rows), target)
    _vectorize(s, block, rest[-1], target)
    parallelize(s, block, rows, total, target)


def _inner_dims(s: Schedule, stage: str) -> list[int]:
    """Dimensions that make up a row of ``stage``, by falling stride in what it reads: the last, and smaller steps."""
    names = s.loops(stage)
    last = 1
    steps: dict[str, int] = {}
    for x in block_accesses(s.func, stage):
        step = x.stride(names[-1])
        if not x.is_store and step is not None and step > last:
            last = step
            steps = {n: k for n in names[:-1] if (k := x.stride(n)) is not None and 0 < k < step}
    dims = sorted(range(len(names)), key=lambda d: -steps.get(names[d], 0))
    return [len(names) - 1, *(d for d in dims if names[d] in steps)]


def _row_loops(s: Schedule, block: str, stage: str, inner: list[int]) -> list[str]:
    """Loops of the consumer over which the rows vary that it reads."""
    env = block_environment(find_block(s.func, block))
    buffer = find_block(s.func, stage).buffer
    used: set[str] = set()
    for x in loads(find_block(s.func, block).value):
        if x.buffer == buffer:
            for d, i in enumerate(x.indices):
                used |= set() if d in inner else i.substitute(env).free_vars()
    return [x.var for x in loops_of(s.func, block) if x.var in used or (x.extent == 1 and len(inner) == 1)]


def _schedule_stage(s: Schedule, stage: str, inner: list[int], above: int, target: Target) -> None:
    """A row of the stage in vectors, in the order in which it is read."""
    if len(inner) > 1:
        found = find_block(s.func, stage)
        env = block_environment(found)
        order = [*(d for d in range(len(found.indices)) if d not in inner), *inner]
        names = [f"i{d}" for d in range(len(order))]
        s.transform_layout(found.buffer, f"{', '.join(names)} -> {', '.join(names[d] for d in order)}")
        loops = s.loops(stage)[above:]
        places = [next((n for n in loops if n in env[found.axes[d].name].free_vars()), "") for d in order]
        s.reorder(*(n for n in places if n))
    fuse_linear(s, stage, above)
    _vectorize(s, stage, s.loops(stage)[-1], target)


def _vectorize(s: Schedule, block: str, loop: str, target: Target) -> None:
    """Vectors along ``loop``; one at a time where the extent is symbolic, so that all but the last need no mask."""
    known = next(x.extent for x in loops_of(s.func, block) if x.var == loop).is_const
    lead = vectorize_loop(s, block, loop, target) if known else vectorize_loop(s, block, loop, target, 1)
    if lead is not None:
        peel_if_ragged(s, block, lead)
