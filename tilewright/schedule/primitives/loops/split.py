"""split: one loop becomes several, outermost first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tilewright.core.arith.bounds import loop_range, simplify, upper_bound
from tilewright.core.arith.expr import ZERO, IntExpr, ceildiv, const, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.schedule.base import Primitive, find_nested_loop, refuse, replace_stmt, simplify_stmt, substitute_stmt
from tilewright.tensor_ir.analysis.scopes import loop_ranges
from tilewright.tensor_ir.ir import Func, Loop, Stmt
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class Split(Primitive):
    """Replace a loop by a nest of loops, one a factor; one factor may be None and is then worked out.

    Rewrite:
        for i in N: S[i]
        --> split("i", factors=(None, 8))
        for i_0 in ceildiv(N, 8): for i_1 in min(8, N - i_0*8): S[i_0*8 + i_1]

    Keeps: every iteration, once, in the same order: where the factors do not divide the extent, inner extents are
        ragged and no predicate is needed. Annotations stay on the outermost loop.
    Refuses:
        - the loop is not there
        - fewer than two factors
        - more than one factor is None
        - a factor is less than 1
        - the factors do not cover the extent (only when none is None)
        - the loop is not serial
    Cost: loop overhead of the new levels; a ragged level has a variable trip count until it is peeled.
    """

    name: ClassVar[str] = "split"
    loop: str
    factors: tuple[int | None, ...]

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return self._names(func)

    def _names(self, func: Func) -> tuple[str, ...]:
        taken = names_of(func)
        return tuple(fresh_in(taken, f"{self.loop}_{n}") for n in range(len(self.factors)))

    def apply(self, func: Func) -> Func:
        loop, outer = find_nested_loop(func, self.loop, self)
        factors = self.factors
        if len(factors) < 2:
            raise refuse(self, f"expected at least two factors, got {factors}")
        if sum(f is None for f in factors) > 1:
            raise refuse(self, f"at most one factor may be None, got {factors}")
        for f in factors:
            if f is not None and f < 1:
                raise refuse(self, f"factor must be >= 1, got {f}")
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        ranges = loop_ranges(outer)
        known = prod(f for f in factors if f is not None)
        if None not in factors:
            bound = upper_bound(loop.extent, ranges)
            if bound is None or known < bound:
                raise refuse(self, f"factors {factors} do not cover the extent {loop.extent}; use None for one of them")
        names = self._names(func)
        extents, whole = _tile(loop.extent, factors, known, names, ranges)
        inner = dict(ranges)
        for name, e in zip(names, extents, strict=True):
            inner[name] = loop_range(e)
        body: Stmt = simplify_stmt(substitute_stmt(loop.body, {self.loop: whole}), inner)
        for name, e in reversed(list(zip(names, extents, strict=True))):
            hints = loop.hints if name == names[0] else ()
            body = Loop(name, e, body, "serial", hints)
        return replace_stmt(func, loop, body)


def _tile(
    extent: IntExpr,
    factors: Sequence[int | None],
    known: int,
    names: Sequence[str],
    ranges: dict[str, tuple[IntExpr, IntExpr]],
) -> tuple[list[IntExpr], IntExpr]:
    """The extents of the new loops, and the old variable as an expression of the new ones."""
    inferred = simplify(ceildiv(extent, known), ranges)
    if factors[0] is not None and (inferred.value() or 0) < 1:  # it becomes a stride, which must not be 0
        inferred = simplify(maximum(1, inferred), ranges)
    sizes = [inferred if f is None else const(f) for f in factors]
    strides = [const(1)] * len(sizes)
    for n in range(len(sizes) - 1, 0, -1):
        strides[n - 1] = strides[n] * sizes[n]
    ranges = dict(ranges)
    extents: list[IntExpr] = []
    whole = ZERO
    for n, (size, stride, name) in enumerate(zip(sizes, strides, names, strict=True)):
        e = ceildiv(extent - whole, stride)
        if n > 0 or factors[0] is not None:
            e = minimum(size, e)
        e = simplify(e, ranges)
        if n > 0 and not strides[n - 1].is_const:  # a symbolic tile may lie wholly past the end
            e = simplify(maximum(0, e), ranges)
        extents.append(e)
        ranges[name] = loop_range(e)
        whole = whole + var(name) * stride
    return extents, whole
