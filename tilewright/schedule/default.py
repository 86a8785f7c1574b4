"""The default schedule: a trace by rule for each class of function, taken from its structure and the target alone.

``default_trace(func, target)`` is deterministic, never fails, and gives a trace that replays like any other. Classes, a
module of :mod:`tilewright.schedule.rules` each: recurrence (stages that share a loop over steps), winograd (tiles that
are transformed, multiplied and transformed back), gemm_chain (two products with a softmax between), vectorized
reduction axis (products with few columns), resample (image resizing), column reduction (large reductions over leading
axes), fused depthwise (depthwise after pointwise convolutions), rows of bytes (depthwise ones of bytes), shifted tiles,
grouped tiles and matrix tiles (convolutions and products by AMX), register tiles (matrix products, convolutions,
pooling, small outer reductions), row reduction (softmax, norms, inner reductions), transpose, elementwise (data
movement and gathers, too).
Other blocks with ordered axes stay as they were declared.

A rule is a value, :class:`.rules.base.ScheduleRule`: it schedules the nest of a block, and as much of what feeds it as
it takes in, or leaves the schedule as it was. ``DEFAULT_RULES`` are tried in order on each nest that none has touched,
consumers before their producers; a caller may put rules of his own before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from tilewright.core.errors import InputError
from tilewright.core.options import shown
from tilewright.machine.target import Target
from tilewright.schedule.decisions import Decider, DefaultDecider
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.rules.auto_inline import inline_stages
from tilewright.schedule.rules.base import ScheduleRule
from tilewright.schedule.rules.elementwise import ELEMENTWISE
from tilewright.schedule.rules.facts import all_blocks
from tilewright.schedule.rules.fused_depthwise import FUSED_DEPTHWISE
from tilewright.schedule.rules.gemm_chain import GEMM_CHAIN
from tilewright.schedule.rules.recurrence import RECURRENCE
from tilewright.schedule.rules.reductions.column_reduction import COLUMN_REDUCTION
from tilewright.schedule.rules.reductions.row_reduction import REDUCTION, ROW_REDUCTION
from tilewright.schedule.rules.reductions.vectorized_reduction_axis import VECTORIZED_REDUCTION_AXIS
from tilewright.schedule.rules.resample import RESAMPLE
from tilewright.schedule.rules.rows_of_bytes import ROWS_OF_BYTES
from tilewright.schedule.rules.tiling.grouped_tiles import GROUPED_TILES, stages_for_groups
from tilewright.schedule.rules.tiling.matrix_tiles import MATRIX_TILES, blocks_for_tiles
from tilewright.schedule.rules.tiling.register_tiles import REGISTER_TILES
from tilewright.schedule.rules.tiling.shifted_tiles import SHIFTED_TILES
from tilewright.schedule.rules.tiling.tile_chain import TILE_CHAIN
from tilewright.schedule.rules.transpose import TRANSPOSE, TRANSPOSED_OPERANDS
from tilewright.schedule.rules.winograd import WINOGRAD, find_winograd
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import blocks_in
from tilewright.tensor_ir.ir import Alloc, Block, Func, Seq, Stmt

Rule: TypeAlias = "ScheduleRule | Callable[[Schedule, str, Target], bool]"

DEFAULT_RULES: tuple[ScheduleRule, ...] = (
    RECURRENCE,
    WINOGRAD,
    TILE_CHAIN,
    GEMM_CHAIN,
    VECTORIZED_REDUCTION_AXIS,
    RESAMPLE,
    COLUMN_REDUCTION,
    FUSED_DEPTHWISE,
    ROWS_OF_BYTES,
    SHIFTED_TILES,
    GROUPED_TILES,
    MATRIX_TILES,
    REGISTER_TILES,
    ROW_REDUCTION,
    REDUCTION,
    TRANSPOSE,
    TRANSPOSED_OPERANDS,
    ELEMENTWISE,
)


def default_trace(func: Func, target: Target, rules: Sequence[Rule] = DEFAULT_RULES) -> Trace:
    """The trace that ``compile`` uses for a function without a tuned record."""
    return explained_default(func, target, rules)[0]


def explained_default(
    func: Func, target: Target, rules: Sequence[Rule] = DEFAULT_RULES
) -> tuple[Trace, Mapping[str, str]]:
    """The default trace, and the name of the rule that scheduled a nest, by the block that it was asked for."""
    taken: dict[str, str] = {}
    return schedule_by_rule(func, target, DefaultDecider(), rules, taken=taken).trace, taken


def require_schedule_rules(given: object) -> tuple[ScheduleRule, ...]:
    """The rules of a user, with names that no other rule has. Raises InputError."""
    listed = (given,) if isinstance(given, ScheduleRule) else given
    if not isinstance(listed, Iterable) or isinstance(listed, str):
        raise InputError(f"schedule_rules: expected a list of ScheduleRule values, got {shown(given)}")
    out = tuple(listed)
    names = {r.name for r in DEFAULT_RULES}
    for r in out:
        if not isinstance(r, ScheduleRule):
            raise InputError(f"schedule_rules: expected a ScheduleRule, got {shown(r)}")
        if not isinstance(r.name, str) or not r.name or r.name in names:
            raise InputError(f"schedule_rules: expected a name that no other rule has, got {shown(r.name)}")
        for part in ("matches", "apply"):
            if not callable(getattr(r, part)):
                got = shown(getattr(r, part))
                raise InputError(f"schedule_rules: {r.name}: {part}: expected a function, got {got}")
        names.add(r.name)
    return out


def before_default(rules: Sequence[ScheduleRule]) -> tuple[ScheduleRule, ...]:
    """The rules of a build: those of a user, then the compiler's."""
    return (*rules, *DEFAULT_RULES) if rules else DEFAULT_RULES


def schedule_by_rule(
    func: Func,
    target: Target,
    decider: Decider,
    rules: Sequence[Rule] = DEFAULT_RULES,
    memory: StepMemory | None = None,
    taken: dict[str, str] | None = None,
) -> Schedule:
    """The rules' schedule with ``decider`` taking their decisions: a point of the search space that the rules span.

    ``taken``: gets the names of the rules that scheduled, by the block that they were asked for.
    """
    s = Schedule(func, decider=decider, memory=memory)
    inline_stages(s, blocks_for_tiles(func).union(stages_for_groups(func), *(c.stages() for c in find_winograd(func))))
    done: set[str] = set()
    while (block := _next(s, done)) is not None:
        before = {id(x): x for x in _nests(s.func.body)}
        known = {b.name for b in all_blocks(s.func)}
        for rule in rules:
            if rule(s, block.name, target):
                if taken is not None:
                    taken[block.name] = rule.name if isinstance(rule, ScheduleRule) else rule.__name__
                break
        new = [x for x in _nests(s.func.body) if id(x) not in before]
        done |= {b.name for x in new for b in blocks_in(x)}
        done |= {b.name for b in all_blocks(s.func)} - known
        done.add(block.name)
    return s


def _next(s: Schedule, done: set[str]) -> Block | None:
    """The last block in program order that has no schedule yet: consumers before their producers."""
    return next((b for b in reversed(all_blocks(s.func)) if b.name not in done), None)


def _nests(s: Stmt) -> list[Stmt]:
    """The statements at the root: what a rule leaves alone stays the same object."""
    if isinstance(s, Alloc):
        return _nests(s.body)
    return [x for c in s.stmts for x in _nests(c)] if isinstance(s, Seq) else [s]
