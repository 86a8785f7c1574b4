"""Which part of a buffer a nest writes: the interval of addresses, where that is known in numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.bounds import Interval, interval, simplify
from tilewright.core.arith.expr import IntExpr
from tilewright.tensor_ir.analysis.access import bound_indices, linear_address
from tilewright.tensor_ir.analysis.scopes import block_environment, loop_ranges
from tilewright.tensor_ir.ir import Block, Loop, Stmt, Store, walk

Shapes = Mapping[str, tuple[IntExpr, ...]]


def write_apart(a: Stmt, b: Stmt, buffer: str, shapes: Shapes) -> bool:
    """True if no element of ``buffer`` is written by both nests: what a peeled loop and its tail write, for example."""
    (a_low, a_high), (b_low, b_high) = _written(a, buffer, shapes), _written(b, buffer, shapes)
    before = a_high is not None and b_low is not None and a_high < b_low
    after = b_high is not None and a_low is not None and b_high < a_low
    return before or after


def _written(nest: Stmt, buffer: str, shapes: Shapes) -> Interval:
    """Bounds of the addresses at which ``nest`` writes; None where there is none."""
    ranges = loop_ranges(s for s in walk(nest) if isinstance(s, Loop))
    lows: list[int | None] = []
    highs: list[int | None] = []
    for s in walk(nest):
        if isinstance(s, (Block, Store)) and s.buffer == buffer:
            environment = block_environment(s) if isinstance(s, Block) else {}
            indices = bound_indices(s.indices, environment, ranges)
            low, high = interval(simplify(linear_address(indices, shapes[buffer]), ranges), ranges)
            lows.append(low)
            highs.append(high)
    return (
        None if None in lows else min((x for x in lows if x is not None), default=None),
        None if None in highs else max((x for x in highs if x is not None), default=None),
    )
