"""What finishes sums of matrix tiles runs between the steps of later ones.

A product in matrix tiles keeps its unit busy with one instruction in 16 cycles; what finishes its sums, in vectors,
takes about as many instructions, and the unit waits for them::

    for mo in range(13):            # blocks of 32 rows
        nest of an intrinsic        # acc[mo*32 + i, j] = sum
    for y in range(7):              # pixels, each with its row of the sums
        for x in range(56):
            out[y, x, j] = f(acc[y*58 + x, j])

With the hint ``trails`` on the second loop, each step of a nest is followed by a few of its pixels, those whose rows
are complete (:mod:`tilewright.codegen.emit.trailing`). A CPU looks some hundred instructions ahead, so both go on at
once. Nothing changes but the order: the first loop writes only the sums, which are a local buffer, and the second
nothing that the first reads.

Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, the chapter on AMX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.codegen.prepare.phases import uses
from tilewright.core.arith.bounds import Ranges, extremes, is_nonneg, loop_range, simplify
from tilewright.core.arith.expr import IntExpr, product
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.intrinsic_match import intrinsic_of
from tilewright.tensor_ir.analysis.scopes import block_environment, blocks_in, buffers, loads_of, loop_ranges, loops_in
from tilewright.tensor_ir.hints import TRAILED_BLOCKS, Trails, with_hint
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct
from tilewright.tensor_ir.ir import Block, Buffer, Func, Loop, Seq, Stmt, map_children, walk, walk_index

_STEPS_OF_A_SLICE = 4
"""Steps for each slice, at most: the last layers of a network have hundreds of channels, and a few pixels (resnet18:
six, where trailing made a layer 1.1 times as slow; of two and a half, 1.07 times as fast)."""


@dataclass(frozen=True, slots=True)
class Trail:
    """``nest``: the products. ``blocks``: the loop over blocks of them; sums are complete in the last step of
    ``turns``, other loops around. ``begin``: the first row of sums of a block, before which all are complete then.
    ``loops``: what finishes sums, outermost first; a step of them is a slice, which reads sums of ``rows`` at most."""

    nest: Loop
    blocks: Loop
    turns: tuple[Loop, ...]
    begin: IntExpr
    loops: tuple[Loop, ...]
    rows: tuple[IntExpr, ...]


def trail_sums(func: Func, target: Target) -> Func:
    """``func`` with the hint on each loop nest that finishes sums right behind those that compute them."""
    local = private_buffers(func)

    def visit(s: Stmt, ranges: Ranges) -> Stmt:
        if isinstance(s, Loop):
            ranges = {**ranges, s.var: loop_range(s.extent)}
        s = map_children(s, lambda c: visit(c, ranges))
        if not isinstance(s, Seq):
            return s
        pairs = zip(s.stmts, s.stmts[1:], strict=False)
        marked = [*s.stmts[:1], *(_marked(second, trail_of(first, second, local, ranges)) for first, second in pairs)]
        return dataclasses.replace(s, stmts=tuple(marked)) if marked != [*s.stmts] else s

    body = visit(func.body, {})
    return func if body is func.body else dataclasses.replace(func, body=body)


def private_buffers(func: Func) -> dict[str, Buffer]:
    """The buffers of a function that a thread has for itself, by name."""
    return {b.name: b for b in buffers(func) if b.scope in ("stack", "workspace")}


def _marked(second: Stmt, trail: Trail | None) -> Stmt:
    most = 0 if trail is None else _slices_a_step(trail)
    if not most or not isinstance(second, Loop):
        return second
    return dataclasses.replace(second, hints=with_hint(second.hints, Trails(most)))


def trail_of(first: Stmt, second: Stmt, local: Mapping[str, Buffer], ranges: Ranges) -> Trail | None:
    """How ``second`` may trail ``first``, if it may. ``local``: the buffers that one thread has for itself; ``ranges``:
    of the loops around both."""
    around, nest = _serial_loops(first)
    by = TILE_PRODUCTS.get(intrinsic_of(nest) or "")
    if by is None or by.form == "parts" or not isinstance(nest, Loop):
        return None
    (sums,) = blocks_in(nest)
    acc = local.get(sums.buffer)
    loops, slice_ = _serial_loops(second)
    if acc is None or not _is_one_panel(acc, by) or not loops or not _are_apart(first, second, acc.name):
        return None
    ranges = {**ranges, **_ranges_in(first)}
    row = simplify(sums.indices[0].substitute(block_environment(sums)), ranges)
    moving = [x for x in around if row.coefficient(x.var) != 0]
    if len(moving) != 1 or row.coefficient(moving[0].var) != SIDE * by.rows or row.coefficient(nest.var) != 1:
        return None
    rows = _last_rows(second, slice_, acc.name, {**ranges, **_ranges_in(second)})
    if rows is None or loads_of(loops[0]) or not all(_has_steps(x, loops, ranges) for x in loops[1:]):
        return None
    turns = tuple(x for x in around if x is not moving[0] and x.extent != 1)
    return Trail(nest, moving[0], turns, row.substitute({nest.var: 0}), loops, rows)


def _serial_loops(s: Stmt) -> tuple[tuple[Loop, ...], Stmt]:
    """The loops from ``s`` on whose steps come one after the other, and what they run."""
    loops: list[Loop] = []
    while isinstance(s, Loop) and s.kind == "serial":
        loops.append(s)
        s = s.body
    return tuple(loops), s


def _has_steps(loop: Loop, loops: Sequence[Loop], ranges: Ranges) -> bool:
    """True if ``loop`` has as many steps in each step of ``loops``, and some."""
    varies = loop.extent.free_vars() & {x.var for x in loops} or loads_of(loop)
    return not varies and is_nonneg(loop.extent - 1, ranges)


def _ranges_in(s: Stmt) -> dict[str, tuple[IntExpr, IntExpr]]:
    return loop_ranges(loops_in(walk(s)))


def _is_one_panel(acc: Buffer, by: TileProduct) -> bool:
    """True for sums that lie row by row, a panel wide."""
    return acc.shape[-1] == SIDE * by.columns and all(d == 1 for d in acc.shape[1:-1])


def _are_apart(first: Stmt, second: Stmt, acc: str) -> bool:
    """True if ``first`` writes only the sums, and ``second`` nothing that ``first`` uses; both by one thread."""
    (read, written), (_, finished) = uses(first), uses(second)
    kinds = {x.kind for x in loops_in(walk(second))}
    return written == {acc} and not finished & (read | written) and not kinds & {"parallel", "opaque"}


def _last_rows(second: Stmt, slice_: Stmt, acc: str, ranges: Ranges) -> tuple[IntExpr, ...] | None:
    """The last rows of the sums that a slice reads, in each of its loads; None if it is not known of one before the
    slice runs, or there is none."""
    inside = _ranges_in(slice_)
    found: dict[IntExpr, None] = {}
    for s in walk(second):
        env = block_environment(s) if isinstance(s, Block) else {}
        for x in loads_of(s):
            if x.buffer == acc:
                row = simplify(x.indices[0].substitute(env), ranges)
                ends = extremes(row, inside, ranges)
                if ends is None or next(walk_index(row), None) is not None:
                    return None
                found[ends[1]] = None
    return tuple(found) or None


def _steps_of(nest: Loop) -> IntExpr:
    """The steps of a nest of products: of its reduction, but for the words of one."""
    (block,) = blocks_in(nest)
    bound = block_environment(block)
    steps = {v for a in block.axes if a.kind == "reduce" for v in bound[a.name].free_vars()}
    return product(x.extent for x in loops_in(walk(nest)) if x.var in steps) // SIDE


def _slices_a_step(trail: Trail) -> int:
    """So many slices behind each step that all are done soon after the last one; 0 if there are too few blocks, or so
    few slices that what waits for them is less than what the steps lose by being apart."""
    blocks, rows = trail.blocks.extent.value(), trail.nest.extent.value() or SIDE
    steps, slices = _steps_of(trail.nest).value(), product(x.extent for x in trail.loops).value()
    if (blocks is not None and blocks < TRAILED_BLOCKS) or not steps:
        return 0
    if blocks is None or slices is None:
        blocks, slices = 2, rows
    if blocks * steps > _STEPS_OF_A_SLICE * slices:
        return 0
    return -(-slices // ((blocks - 1) * steps))
