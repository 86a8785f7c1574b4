"""Facts about index expressions under loops: the interval that they sweep, and whether they sweep all of it once.

All answers are sound and incomplete: None or False means "not proved".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilewright.core.arith.bounds import Ranges, extremes, is_nonneg, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, as_var, ceildiv, var
from tilewright.core.arith.minmax import minimum
from tilewright.tensor_ir.ir import Loop

Bounds: TypeAlias = tuple[IntExpr, IntExpr]


def bounds(e: IntExpr, inner: Sequence[str], ranges: Ranges) -> Bounds | None:
    """Inclusive ``(low, high)`` of ``e`` as the variables ``inner`` run over their ``ranges``; the rest stays symbolic.

    ``inner`` is in the order in which the variables are bound. The bounds are attained for expressions that are
    monotone in each variable; otherwise they may be wider.
    """
    e = simplify(e, ranges)
    if not e.free_vars() & frozenset(inner):
        return e, e
    ends = extremes(e, {n: ranges[n] for n in inner}, ranges)
    return None if ends is None else (simplify(ends[0], ranges), simplify(ends[1], ranges))


def same(a: IntExpr, b: IntExpr, ranges: Ranges) -> bool:
    """True if ``a == b`` is proved."""
    if a == b:
        return True
    d = simplify(a - b, ranges)
    return d == 0 or (is_nonneg(d, ranges) and is_nonneg(-d, ranges))


def covers_once(binding: IntExpr, loops: Sequence[Loop], extent: IntExpr, ranges: Ranges) -> bool:
    """True if ``binding`` takes each value in 0 .. extent-1 exactly once as ``loops`` run (as after ``split``)."""
    used = [loop for loop in loops if loop.var in binding.free_vars()]
    if not used:
        return binding == 0 and extent == 1
    if len(used) == 1 and as_var(binding) == used[0].var:
        return same(used[0].extent, extent, ranges)
    digits: list[tuple[int, Loop]] = []
    rest = binding
    for loop in used:
        coefficient = binding.coefficient(loop.var)
        stride = None if coefficient is None else coefficient.value()
        if stride is None or stride < 1:
            return False
        digits.append((stride, loop))
        rest = rest - var(loop.var) * stride
    digits.sort(key=lambda d: (-d[0], upper_bound(d[1].extent, ranges) == 1))
    if rest != 0 or digits[-1][0] != 1:
        return False
    left = extent
    for n, (stride, loop) in enumerate(digits):
        if n and digits[n - 1][0] % stride:
            return False
        if not same(loop.extent, simplify(ceildiv(left, stride), ranges), ranges):
            return False
        left = simplify(minimum(stride, left - var(loop.var) * stride), ranges)
    return True
