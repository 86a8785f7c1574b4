"""peel: separate the full iterations of a loop from the ragged ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, extremes, is_nonneg, loop_range, simplify, upper_bound
from tilewright.core.arith.expr import ZERO, Atom, FloorDiv, IntExpr, as_atom, of_atom, var, with_atoms
from tilewright.core.arith.minmax import Max, Min, maximum, minimum
from tilewright.schedule.base import (
    Primitive,
    find_nested_loop,
    refuse,
    replace_stmt,
    simplify_stmt,
    substitute_stmt,
    with_bound,
)
from tilewright.schedule.copies import fresh_copy
from tilewright.tensor_ir.analysis.scopes import block_environment, loop_ranges
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Expr,
    Func,
    Loop,
    Seq,
    Stmt,
    loads,
    map_children,
    map_expr,
    seq,
    stmt_children,
    walk,
)
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class Peel(Primitive):
    """Split a loop in two: a main loop in which ragged inner extents are full, and a tail with what remains.

    Halide and TVM call this loop partition. Where no extent is ragged, clamped indices count: the main loop has those
    in which ``min(i, end)`` is ``i``.

    Rewrite:
        for i_0 in ceildiv(N, 8): for i_1 in min(8, N - i_0*8): S[i_0*8 + i_1]
        --> peel("i_0")
        for i_0 in N // 8: for i_1 in 8: S[i_0*8 + i_1]
        for i_0_t in ceildiv(N, 8) - N // 8: for i_1_t in N % 8: S_t[N//8*8 + i_1_t]

    Keeps: every iteration, once, in the same order. Everything in the tail is renamed with suffix ``_t``.
    Refuses:
        - the loop is not there
        - the loop is neither serial nor parallel
        - no inner extent is ragged in this loop, and no index clamped
        - the loop has no full iteration
    Cost: the code of the body twice; the main loop loses its masks and variable trip counts.
    """

    name: ClassVar[str] = "peel"
    loop: str

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return (fresh_in(names_of(func), f"{self.loop}_t"),)

    def apply(self, func: Func) -> Func:
        loop, outer = find_nested_loop(func, self.loop, self)
        if loop.kind not in ("serial", "parallel"):
            raise refuse(self, f"expected a serial or parallel loop, got a {loop.kind} one")
        ranges = loop_ranges(outer)
        if any(_ragged_in(s, loop.var) for s in walk(loop.body)):
            main = _main(loop, ranges)
        elif limits := list(_limits_of_indices(loop.body, loop.var, {})):
            full = simplify(minimum(*(maximum(0, c) for c in limits), loop.extent), ranges)
            main = dataclasses.replace(
                loop, extent=full, body=_settled(loop.body, {**ranges, loop.var: loop_range(full)})
            )
        else:
            raise refuse(self, f"expected an inner extent or index that is ragged in {loop.var}, got none")
        if main is None or main.extent == 0:
            raise refuse(self, f"expected at least one full iteration of {loop.extent}, got none that is provably full")
        return replace_stmt(func, loop, seq(main, _tail(func, loop, main.extent, ranges)))


def _ragged_in(s: Stmt, name: str) -> bool:
    return isinstance(s, Loop) and name in s.extent.free_vars()


def _main(loop: Loop, ranges: Ranges) -> Loop | None:
    """The leading iterations, in which inner extents are full; None where their number cannot be told outside."""
    limits = list(dict.fromkeys(_limits(loop.body, loop.var, {}, ranges)))[::-1]  # the innermost is often the tightest
    if not limits:
        return None
    bounded = [simplify(minimum(maximum(0, simplify(c, ranges)), loop.extent), ranges) for c in limits]
    for full in bounded:
        body = simplify_stmt(loop.body, {**ranges, loop.var: loop_range(full)})
        if not any(_ragged_in(s, loop.var) for s in walk(body)):
            return dataclasses.replace(loop, extent=full, body=body)
    full = simplify(minimum(*bounded), ranges)
    body = simplify_stmt(loop.body, {**ranges, loop.var: loop_range(full)})
    return dataclasses.replace(loop, extent=full, body=body)


def _limits(s: Stmt, name: str, inner: Ranges, outer: Ranges) -> Iterator[IntExpr]:
    """For each ragged extent below, the number of leading iterations of loop ``name`` in which it is full.

    ``inner`` holds the ranges of the loops between, taken as full.
    """
    if isinstance(s, Loop):
        full = s.extent
        if name in s.extent.free_vars():
            full, ends = _full_extent(s.extent, name)
            for end in ends:
                limit = _limit(end - full, name, inner)
                if limit is not None:
                    yield limit
        inner = {**inner, s.var: loop_range(full)}
    for c in stmt_children(s):
        yield from _limits(c, name, inner, outer)


def _limits_of_indices(s: Stmt, name: str, inner: Ranges) -> Iterator[IntExpr]:
    """For each index below that is clamped, the number of leading iterations of loop ``name`` in which it is not."""
    if isinstance(s, Loop):
        inner = {**inner, s.var: loop_range(s.extent)}
    if isinstance(s, Block):
        env = block_environment(s)
        for index in dict.fromkeys(i for x in loads(s.value) for i in x.indices):
            for x, y in _clamps(index):
                slack = (y - x).substitute(env)
                if name in slack.free_vars() and (limit := _limit(slack, name, inner)) is not None:
                    yield limit
    for c in stmt_children(s):
        yield from _limits_of_indices(c, name, inner)


def _clamps(index: IntExpr) -> Iterator[tuple[IntExpr, IntExpr]]:
    """The two arguments of each ``min``, in both orders."""
    for a in index.atoms():
        if isinstance(a, Min) and len(a.args) == 2:
            yield a.args
            yield a.args[::-1]


def _settled(s: Stmt, ranges: Ranges) -> Stmt:
    """``s`` with the indices that are less than where they are clamped without that."""
    if isinstance(s, Loop):
        return dataclasses.replace(s, body=_settled(s.body, {**ranges, s.var: loop_range(s.extent)}))
    if not isinstance(s, Block):
        return map_children(s, lambda c: _settled(c, ranges))
    env = block_environment(s)

    def least(a: Atom) -> IntExpr:
        found = [x for x, y in _clamps(of_atom(a)) if is_nonneg((y - x).substitute(env), ranges)]
        return found[0] if found else of_atom(a)

    def settled(e: Expr) -> Expr:
        return map_expr(e, settled, lambda i: with_atoms(i, least))

    return dataclasses.replace(s, value=settled(s.value))


def _full_extent(extent: IntExpr, name: str) -> tuple[IntExpr, list[IntExpr]]:
    """``min(f, e1, e2...)`` (inside ``max(0, ...)`` or not) as ``f`` and the arguments that use the variable."""
    args: tuple[IntExpr, ...] = (extent,)
    for kind in (Max, Min):
        a = as_atom(args[0]) if len(args) == 1 else None
        if isinstance(a, kind):
            args = tuple(x for x in a.args if not (kind is Max and x == ZERO))
    fixed = [x for x in args if name not in x.free_vars()]
    if not fixed:
        return extent, []
    return minimum(*fixed), [x for x in args if name in x.free_vars()]


def _limit(slack: IntExpr, name: str, inner: Ranges) -> IntExpr | None:
    """The number of leading values of ``name`` for which ``slack >= 0``, over all values of the inner variables."""
    used = {k: v for k, v in inner.items() if k in slack.free_vars()}
    if used:
        ends = extremes(slack, used)
        if ends is None:
            return None
        slack = ends[0]
    coefficient = slack.coefficient(name)
    step = None if coefficient is None else coefficient.value()
    if step is None or step >= 0:
        return None
    rest = slack - var(name) * step
    if rest.free_vars() & inner.keys():
        return None
    return rest // -step + 1


def _tail(func: Func, loop: Loop, full: IntExpr, ranges: Ranges) -> Stmt:
    taken = names_of(func)
    name = fresh_in(taken, f"{loop.var}_t")
    extent = simplify(loop.extent - full, ranges)
    start = full if _is_at_most_one(extent, ranges) else full + var(name)
    body = fresh_copy(substitute_stmt(loop.body, {loop.var: start}), "_t", taken)
    inner = {**ranges, name: loop_range(extent)}
    return dataclasses.replace(loop, var=name, extent=extent, body=_tidy(body, {}, inner))


def _is_at_most_one(e: IntExpr, ranges: Ranges) -> bool:
    """True if ``e <= 1`` is proved; knows that ``(x + c)//d - x//d`` with ``0 <= c <= d`` is."""
    bound = upper_bound(e, ranges)
    if bound is not None:
        return bound <= 1
    if len(e.terms) != 2 or e.const > 0 or {c for _, c in e.terms} != {1, -1} or any(len(m) != 1 for m, _ in e.terms):
        return False
    up, down = (m[0] for m, _ in sorted(e.terms, key=lambda t: -t[1]))
    if not isinstance(up, FloorDiv) or not isinstance(down, FloorDiv) or up.args[1] != down.args[1]:
        return False
    d, gap = up.args[1].value(), (up.args[0] - down.args[0]).value()
    return d is not None and gap is not None and 0 <= gap <= d


def _tidy(s: Stmt, single: dict[str, int], ranges: Ranges) -> Stmt:
    """``s`` simplified, in extents with ``x - x//d*d`` as ``x % d``, and 0 for the variables of ``single`` iterations.

    The bound of an extent, which vectorized and unrolled loops need, is then plain to see.
    """
    if isinstance(s, Loop):
        whole = s.extent.substitute(single)
        extent = with_bound(s, simplify(_join(whole), ranges), whole, ranges)
        if extent == 1:
            single = {**single, s.var: 0}
        body = _tidy(s.body, single, {**ranges, s.var: loop_range(extent)})
        return dataclasses.replace(s, extent=extent, body=body)
    if isinstance(s, (Seq, Alloc)):
        return map_children(s, lambda c: _tidy(c, single, ranges))
    return simplify_stmt(s, ranges)


def _join(e: IntExpr) -> IntExpr:
    for mono, c in e.terms:
        a = mono[0]
        if len(mono) != 1:
            continue
        if isinstance(a, FloorDiv) and (d := a.args[1].value()) is not None and c < 0 and c % d == 0:
            joined = e - of_atom(a) * c + (a.args[0] - a.args[0] % d) * (c // d)
            if len(joined.terms) < len(e.terms):
                return _join(joined)
        elif isinstance(a, (Min, Max)):
            args = [_join(x) for x in a.args]
            if any(x != y for x, y in zip(args, a.args, strict=True)):
                return e - of_atom(a) * c + (minimum if isinstance(a, Min) else maximum)(*args) * c
    return e
