"""Resampling along the last axis (image resizing): a row is made in vectors, then picked from at the positions wanted.

A block that combines elements of a stage at positions read from memory along the last axis has to collect them one by
one. What it collects from is made row by row, in vectors, just before: a row stays in a near cache, and what goes into
it (the other direction of a resize, conversions, a move of channels) is computed once for all positions. Where the
stage itself reads neighbours along another axis, as of an image whose channels lie together, rows are kept in that
order. Filters of many taps are reductions, of which a few vectors stay in registers. Decisions: those of
:mod:`.parallelism` and of :func:`.elementwise.vectorize_loop`.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.rules.auto_inline import is_sampled
from tilewright.schedule.rules.base import SPREAD, VECTORS, ScheduleRule
from tilewright.schedule.rules.elementwise import fuse_linear, peel_if_ragged, vectorize_loop
from tilewright.schedule.rules.facts import (
    block_accesses,
    is_reduction,
    is_spatial,
    loops_of,
    reduce_loops,
    reduction_feeders,
    total_nanoseconds,
    widest_itemsize,
)
from tilewright.schedule.rules.parallelism import parallelize
from tilewright.schedule.rules.tiling.write_tile import write_out
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, consumers, find_block, find_loop
from tilewright.tensor_ir.ir import loads


def _matches(s: Schedule, block: str, target: Target) -> list[tuple[str, str]]:
    """The block that samples rows of a stage which only it reads, ``block`` or what it finishes; and that stage."""
    if not is_spatial(find_block(s.func, block)):
        return []
    found = ((user, sampled_stage(s, user)) for user in (block, *reduction_feeders(s, block)))
    return [(user, stage) for user, stage in found if stage is not None][:1]


def sampled_stage(s: Schedule, block: str) -> str | None:
    """The stage of which ``block`` samples rows; None if there is none, or more than one."""
    user = find_block(s.func, block)
    read = dict.fromkeys(x.buffer for x in loads(user.value))
    stages = [
        name for name in s.blocks()
        if (b := find_block(s.func, name)).buffer in read and is_sampled(b, user)
        and all(a.kind != "ordered" for a in b.axes) and [u.name for u in consumers(s.func, b.buffer)] == [block]
    ]  # fmt: skip
    return stages[0] if len(stages) == 1 else None


def _apply(s: Schedule, block: str, match: tuple[str, str], target: Target) -> None:
    user, stage = match
    total = total_nanoseconds(s.func, dict.fromkeys((stage, user, block)), target.costs)
    inner = _inner_dims(s, stage)
    rows = _row_loops(s, block, user, stage, inner)
    rest = [x.var for x in loops_of(s.func, block) if x.var not in rows]
    if not rows or not rest:
        raise ScheduleError(f"{block}: no rows of {stage}")
    s.reorder(*rows, *rest)
    copy = s.cache_write(stage, "global") if is_reduction(find_block(s.func, stage)) else stage
    if user == block:
        s.compute_at(copy, rows[-1])
        _vectorize(s, block, rest[-1], target)
    else:
        lanes = target.lanes(widest_itemsize(s.func, user))
        lead, lane = s.split(rest[-1], (None, lanes))
        s.compute_at(user, lead)
        s.compute_at(copy, rows[-1])
        _write_sum(s, user, len(rows) + len(rest), lanes)
        s.vectorize(lane)
        s.attempt(lambda a: a.peel(lead))
    _turn(s, copy, inner, len(rows))
    if copy == stage:
        fuse_linear(s, copy, len(rows))
        _vectorize(s, copy, s.loops(copy)[-1], target)
    else:
        _filter_rows(s, copy, stage, inner, target)
    parallelize(s, block, rows, total, target)


def _inner_dims(s: Schedule, stage: str) -> list[int]:
    """Dimensions that make up a row of ``stage``, by falling stride in what it reads: the last, and smaller steps."""
    steps = reduce_loops(s.func, stage)
    names = [n for n in s.loops(stage) if n not in steps]
    last = 1
    smaller: dict[str, int] = {}
    for x in block_accesses(s.func, stage):
        step = x.stride(names[-1])
        if not x.is_store and step is not None and step > last:
            last = step
            smaller = {n: k for n in names[:-1] if (k := x.stride(n)) is not None and 0 < k < step}
    dims = sorted(range(len(names)), key=lambda d: -smaller.get(names[d], 0))
    return [len(names) - 1, *(d for d in dims if names[d] in smaller)]


def _row_loops(s: Schedule, block: str, user: str, stage: str, inner: list[int]) -> list[str]:
    """Loops of ``block`` over which the rows vary that ``user`` reads."""
    places = [
        i for x in loads(find_block(s.func, user).value) if x.buffer == find_block(s.func, stage).buffer
        for d, i in enumerate(x.indices) if d not in inner
    ]  # fmt: skip
    found = find_block(s.func, block)
    if user != block:
        sums = find_block(s.func, user)
        reads = next(x.indices for x in loads(found.value) if x.buffer == sums.buffer)
        at = {v: i for own, i in zip(sums.indices, reads, strict=True) for v in own.free_vars()}
        places = [i.substitute(at) for i in places]
    env = block_environment(found)
    used = {v for i in places for v in i.substitute(env).free_vars()}
    return [x.var for x in loops_of(s.func, block) if x.var in used or (x.extent == 1 and len(inner) == 1)]


def _turn(s: Schedule, block: str, inner: list[int], above: int) -> None:
    """Keep the buffer of ``block``, and its loops below the first ``above``, in the order in which a row is read."""
    if len(inner) == 1:
        return
    found = find_block(s.func, block)
    env = block_environment(found)
    order = [*(d for d in range(len(found.indices)) if d not in inner), *inner]
    names = [f"i{d}" for d in range(len(order))]
    loops = [n for n in s.loops(block)[above:] if n not in reduce_loops(s.func, block)]
    spatial = [a.name for a in found.axes if a.kind == "spatial"]
    s.transform_layout(found.buffer, f"{', '.join(names)} -> {', '.join(names[d] for d in order)}")
    places = [next((n for n in loops if n in env[spatial[d]].free_vars()), "") for d in order]
    if len([n for n in places if n]) > 1:
        s.reorder(*(n for n in places if n))


def _filter_rows(s: Schedule, copy: str, stage: str, inner: list[int], target: Target) -> None:
    """A few vectors of a row at a time, from the first tap to the last in registers."""
    lanes = target.lanes(widest_itemsize(s.func, stage))
    own = s.loops(copy)
    column = own[-len(inner)]
    vectors = target.costs.side_by_side // (1 if len(inner) == 1 else 2)  # channels lie together in the second case
    lead, part = s.split(column, (None, lanes * vectors))
    s.compute_at(stage, lead)
    above = s.loops(copy).index(part)
    _turn(s, stage, inner, above)
    known = set(s.blocks())
    s.attempt(lambda a: a.peel(lead))
    tail = [b for b in s.blocks() if b not in known]
    for sums, out in ((stage, copy), *([(tail[0], tail[1])] if tail else [])):
        fuse_linear(s, out, above)
        write_out(s, out, s.loops(out)[above:], lanes)
        _write_sum(s, sums, above, lanes)


def _write_sum(s: Schedule, block: str, above: int, lanes: int) -> None:
    """A reduction below its first ``above`` loops: taps outside, results in vectors."""
    steps = reduce_loops(s.func, block)
    own = [n for n in s.loops(block)[above:] if n not in steps]
    s.reorder(*steps, *own)
    init = s.decompose_reduction(block, steps[0])
    for name, outer in ((init, above), (block, above + len(steps))):
        fuse_linear(s, name, outer)
        write_out(s, name, s.loops(name)[outer:], lanes)


def _vectorize(s: Schedule, block: str, loop: str, target: Target) -> None:
    """Vectors along ``loop``; one at a time where the extent is symbolic, so that all but the last need no mask."""
    known = find_loop(s.func, loop).extent.is_const
    lead = vectorize_loop(s, block, loop, target) if known else vectorize_loop(s, block, loop, target, 1)
    if lead is not None:
        peel_if_ragged(s, block, lead)


RESAMPLE = ScheduleRule("resample", _matches, _apply, (*VECTORS, *SPREAD))
