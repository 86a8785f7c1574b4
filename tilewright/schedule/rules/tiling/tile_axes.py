"""How the loops of a block that finishes a reduction map onto the axes of the accumulator: batch, rows, columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import simplify
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod, as_var
from tilewright.schedule.rules.facts import is_multiply_add, is_packed_operand, loops_of, reduce_loops, varying_loops
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import block_environment, find_block, find_buffer, loop_ranges
from tilewright.tensor_ir.ir import Block, loads


@dataclass(frozen=True, slots=True)
class TileAxes:
    """Loops of the consumer by role. ``rows`` and ``batch`` outermost first; ``columns`` becomes vectors.

    ``panel``: columns that one packed panel holds (the accumulator's last extent), None if it is not packed.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: str
    panel: int | None


def tile_axes(
    s: Schedule, reduction: str, consumer: str, around: Sequence[str] = (), group: str | None = None
) -> TileAxes | None:
    """How the consumer's loops inside ``around`` map onto the accumulator's axes; None if not one to one.

    Loops over which the consumer reduces count as batch, and so does ``group``, each step of which has its own panels.
    """
    acc = find_block(s.func, reduction)
    user = find_block(s.func, consumer)
    env = block_environment(user)
    reads = {x.indices for x in loads(user.value) if x.buffer == acc.buffer}
    if len(reads) != 1:
        return None
    steps = set(reduce_loops(s.func, consumer))
    ranges = loop_ranges(loops_of(s.func, consumer))
    bound = [simplify(i.substitute(env), ranges) for i in next(iter(reads))]
    kept = [d for d, i in enumerate(bound) if not i.free_vars() & steps]
    index = [bound[d] for d in kept]
    names = [x.var for x in loops_of(s.func, consumer) if x.var not in around]
    width = find_buffer(s.func, acc.buffer).shape[kept[-1]] if index else None
    free = [i.free_vars() & set(names) for i in index]
    packed = (
        len(index) >= 2 and len(free[-1]) == 1 and free[-2] - {group} <= free[-1]
        and is_multiply_add(acc) and width is not None and _is_panel(index[-2], index[-1], width)
    )  # fmt: skip
    if packed and width is not None:
        (columns,) = free[-1]
        panel, rest = width.value(), free[:-2]
    else:
        plain = as_var(index[-1]) if index else None
        if plain is None:
            return None
        columns, panel, rest = plain, None, free[:-1]
    if any(columns in f or group in f for f in rest):
        return None
    rows = tuple(n for n in names if rest and n in rest[-1])
    return TileAxes(tuple(n for n in names if n not in (*rows, columns)), rows, columns, panel)


def repeating_loops(s: Schedule, reduction: str, consumer: str) -> tuple[str, ...]:
    """The loops of the consumer, besides those over which it reduces itself, whose steps all read the same results: in
    tiles they would be computed anew for each."""
    varying = varying_loops(s.func, consumer, {find_block(s.func, reduction).buffer})
    others = {*varying, *reduce_loops(s.func, consumer)}
    return tuple(x.var for x in loops_of(s.func, consumer) if x.var not in others and x.extent.value() != 1)


def split_groups(s: Schedule, reduction: str, consumer: str) -> str | None:
    """Split the consumer's loop over columns where each group of columns has panels of its own: the loop over groups.

    None if there are no such groups.
    """
    acc = find_block(s.func, reduction)
    user = find_block(s.func, consumer)
    env = block_environment(user)
    places = [x.indices[-1].substitute(env) for x in loads(user.value) if x.buffer == acc.buffer and x.indices]
    for loop in loops_of(s.func, consumer):
        size = max((n for i in places for n in _remainders(i, loop.var)), default=1)
        if size > 1 and (loop.extent % size).value() == 0:
            return s.split(loop.var, (None, size))[0]
    return None


def _remainders(index: IntExpr, loop: str) -> list[int]:
    """The constants by which ``index`` takes remainders of ``loop``."""
    out: list[int] = []
    for a in index.atoms():
        if isinstance(a, (FloorDiv, Mod)):
            value, by = a.args[0], a.args[1].value()
            out += [by] if isinstance(a, Mod) and by is not None and as_var(value) == loop else _remainders(value, loop)
    return out


def _is_panel(outer: IntExpr, inner: IntExpr, width: IntExpr) -> bool:
    """True if the last two indices are ``c // width`` and ``c % width`` of one expression."""
    joined = outer * width + inner
    return width.is_const and not joined.is_const and not any(isinstance(a, (FloorDiv, Mod)) for a in joined.atoms())


def is_packed(reduction: Block) -> bool:
    """True for a product with an operand in panels."""
    operands = {x.buffer for x in loads(reduction.value)} - {reduction.buffer}
    return is_multiply_add(reduction) and any(is_packed_operand(b, reduction) for b in operands)
