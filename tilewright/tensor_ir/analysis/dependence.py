"""Dependences: may two iterations of a loop touch the same element, one of them writing it?

Two accesses are kept apart by a proof on their indices, dimension by dimension and as a linear address: if the index is
``c*v + r`` in iteration ``v`` and ``c*w + s`` in a later iteration ``w``, it suffices that ``r - s < c`` and
``s - r < c`` for all values of the inner loops. A loop variable that occurs as ``v // d`` and ``v % d`` (a fused loop)
is taken apart into two loops first. Besides, a block promises that points which differ in a spatial axis write
different elements; that decides writes whose place is read from memory.

Answers: ``no`` (proved), ``yes`` (proved: an ordered axis, or an address without the variable), ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tilewright.core.errors import ScheduleError
from tilewright.core.intbounds import Ranges, is_nonneg, loop_range, simplify
from tilewright.core.intexpr import FloorDiv, IntExpr, Mod, as_var, var
from tilewright.tensor_ir.analysis.access import bound_indices, linear_address
from tilewright.tensor_ir.analysis.scopes import (
    block_environment,
    buffers,
    find_loop,
    loads_in_index,
    loads_of,
    loop_ranges,
    loops_above,
    written_buffers,
)
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Stmt, Store, stmt_children, walk

Answer: TypeAlias = Literal["yes", "no", "unknown"]
ConflictKind: TypeAlias = Literal["write", "read", "reduction", "ordered"]
_Interval: TypeAlias = tuple[IntExpr, IntExpr]
_SPLITS = 3  # how often one loop variable is taken apart


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two iterations of ``loop`` may (``unknown``) or do (``yes``) meet in ``buffer``.

    ``kind``: two writes; a write and a read; a reduction (a block with itself, so that order is free up to rounding);
    an ordered axis. ``writer`` and ``other`` name blocks ("" for a plain store).
    """

    loop: str
    buffer: str
    kind: ConflictKind
    answer: Answer
    writer: str
    other: str

    def __str__(self) -> str:
        verb = "meet" if self.answer == "yes" else "may meet"
        what = {
            "write": "two writes",
            "read": "a write and a read",
            "reduction": "the steps of a reduction",
            "ordered": "the steps of an ordered axis",
        }[self.kind]
        who = self.writer if self.writer == self.other else f"{self.writer} and {self.other}"
        return f"iterations of {self.loop} {verb} in {self.buffer}: {what} ({who})"


@dataclass(frozen=True, slots=True)
class _Access:
    """One access in terms of loop variables. ``place``: None where an index depends on memory written in the loop."""

    buffer: str
    writes: bool
    block: Block | None
    place: tuple[IntExpr, ...] | None
    spatial: tuple[IntExpr, ...]
    inner: tuple[Loop, ...]


def conflicts(func: Func, loop: str) -> tuple[Conflict, ...]:
    """Every pair of accesses in which different iterations of ``loop`` are not proved apart. Empty: independent.

    Buffers allocated inside the loop are private to an iteration. Raises ScheduleError if there is no such loop.
    """
    target = find_loop(func, loop)
    return _conflicts(func, target, loops_above(func, loop), ())


def is_parallelisable(func: Func, loop: str) -> Answer:
    """May the iterations of ``loop`` run in any order, or at once? ``no`` only if a conflict is proved."""
    return _verdict(conflicts(func, loop))


def is_vectorisable(func: Func, loop: str) -> Answer:
    """May the iterations of ``loop`` run as lanes? The same question: lanes run at once, statement by statement."""
    return is_parallelisable(func, loop)


def carries_only_reductions(func: Func, loop: str) -> bool:
    """True if all that orders the iterations of ``loop`` is the accumulation of reductions."""
    return all(c.kind == "reduction" for c in conflicts(func, loop))


def may_interchange(func: Func, outer: str, inner: str) -> Answer:
    """May the loop ``outer`` and the next loop inside it, ``inner``, change places, dependences considered?

    Yes if one of them is independent whatever the other does, or if all that the outer one carries is reductions,
    whose order is free up to rounding. Raises ScheduleError if a loop does not exist or ``inner`` is not the next one.
    """
    first, second = find_loop(func, outer), find_loop(func, inner)
    around = loops_above(func, outer)
    if loops_above(func, inner) != (*around, first):
        raise ScheduleError(f"{func.name}: {inner} is not the next loop inside {outer}")
    if all(c.kind == "reduction" for c in _conflicts(func, first, around, ())):
        return "yes"
    return "unknown" if _conflicts(func, second, around, (first,)) else "yes"


def _verdict(found: Sequence[Conflict]) -> Answer:
    if not found:
        return "yes"
    return "no" if any(c.answer == "yes" for c in found) else "unknown"


def _conflicts(func: Func, target: Loop, around: Sequence[Loop], free: Sequence[Loop]) -> tuple[Conflict, ...]:
    """``free``: loops between ``around`` and the target whose variables may differ as well."""
    if target.extent == 1 or target.extent == 0:
        return ()
    shapes = {b.name: b.shape for b in buffers(func)}
    written = frozenset(written_buffers(target.body))
    private = {s.buffer.name for s in walk(target.body) if isinstance(s, Alloc)}
    ranges = loop_ranges([*around, *free, target])
    accesses = [
        a for a in _accesses(target.body, ranges, (), written) if a.buffer not in private and a.buffer in written
    ]
    out: dict[Conflict, None] = {}
    for c in _ordered(target):
        out[c] = None
    prover = _Prover(target.var, around, (*free, target))
    for i, a in enumerate(accesses):
        for j, b in enumerate(accesses):
            if not a.writes or (b.writes and j < i):
                continue
            answer = prover.meet(a, b, shapes[a.buffer])
            if answer != "no":
                name_a, name_b = (x.block.name if x.block is not None else "" for x in (a, b))
                out[Conflict(target.var, a.buffer, _kind(a, b), answer, name_a, name_b)] = None
    return tuple(out)


def _kind(a: _Access, b: _Access) -> ConflictKind:
    if a.block is not None and a.block is b.block and any(x.kind == "reduce" for x in a.block.axes):
        same = b.writes or (a.place is not None and a.place == b.place)
        if same:
            return "reduction"
    return "write" if b.writes else "read"


def _ordered(target: Loop) -> Iterator[Conflict]:
    for s in walk(target.body):
        if isinstance(s, Block):
            for axis, binding in zip(s.axes, s.bindings, strict=True):
                if axis.kind == "ordered" and target.var in binding.free_vars():
                    yield Conflict(target.var, s.buffer, "ordered", "yes", s.name, s.name)


def _accesses(
    s: Stmt, ranges: Mapping[str, _Interval], inner: tuple[Loop, ...], written: frozenset[str]
) -> Iterator[_Access]:
    if isinstance(s, Loop):
        ranges, inner = {**ranges, s.var: loop_range(s.extent)}, (*inner, s)
    block = s if isinstance(s, Block) else None
    environment = {} if block is None else block_environment(block)
    spatial: tuple[IntExpr, ...] = ()
    if block is not None:
        pairs = zip(block.axes, block.bindings, strict=True)
        spatial = tuple(simplify(b, ranges) for a, b in pairs if a.kind == "spatial")

    def place(indices: tuple[IntExpr, ...]) -> tuple[IntExpr, ...] | None:
        if any(x.buffer in written for i in indices for x in loads_in_index(i)):
            return None
        return bound_indices(indices, environment, ranges)

    if isinstance(s, (Block, Store)):
        yield _Access(s.buffer, True, block, place(s.indices), spatial, inner)
    for x in loads_of(s):
        yield _Access(x.buffer, False, block, place(x.indices), spatial, inner)
    for c in stmt_children(s):
        yield from _accesses(c, ranges, inner, written)


class _Prover:
    """Keeps the iterations of one loop apart. ``around`` have one value for both sides, ``moving`` one for each."""

    def __init__(self, loop: str, around: Sequence[Loop], moving: Sequence[Loop]) -> None:
        self.loop, self.moving = loop, moving
        self.around = loop_ranges(around)

    def meet(self, a: _Access, b: _Access, shape: tuple[IntExpr, ...]) -> Answer:
        """Do ``a`` in one iteration and ``b`` in another touch the same element?"""
        same_block = a.block is not None and a.block is b.block
        if same_block and (b.writes or a.place == b.place) and a.block is not None:
            extents = tuple(x.extent for x in a.block.axes if x.kind == "spatial")
            if self._apart(a.spatial, a.spatial, extents, a.inner, a.inner):
                return "no"
        if a.place is None or b.place is None:
            return "unknown"
        if self._apart(a.place, b.place, shape, a.inner, b.inner):
            return "no"
        moved = {self.loop} | {x.var for x in (*a.inner, *b.inner, *self.moving)}
        fixed = not any(i.free_vars() & moved for i in (*a.place, *b.place))
        return "yes" if fixed and a.place == b.place else "unknown"

    def _apart(
        self,
        a: tuple[IntExpr, ...],
        b: tuple[IntExpr, ...],
        shape: tuple[IntExpr, ...],
        inner_a: tuple[Loop, ...],
        inner_b: tuple[Loop, ...],
    ) -> bool:
        side_a = _Side(self.moving, inner_a, "_a")
        side_b = _Side(self.moving, inner_b, "_b")
        return self._apart_in(self.loop, a, b, shape, side_a, side_b, dict(self.around), _SPLITS)

    def _apart_in(
        self,
        v: str,
        a: tuple[IntExpr, ...],
        b: tuple[IntExpr, ...],
        shape: tuple[IntExpr, ...],
        side_a: _Side,
        side_b: _Side,
        outer: Mapping[str, _Interval],
        splits: int,
    ) -> bool:
        candidates = [*zip(a, b, strict=True)]
        if len(a) > 1:
            ranges_a = {**outer, **side_a.own}
            ranges_b = {**outer, **side_b.own}
            linear_a = simplify(linear_address(a, shape), ranges_a)
            linear_b = simplify(linear_address(b, shape), ranges_b)
            candidates.append((linear_a, linear_b))
        if any(_one_dimension_apart(v, x, y, side_a, side_b, outer) for x, y in candidates):
            return True
        d = _divisor(v, (*a, *b))
        if d is None or splits == 0:
            return False
        # v = q*d + r: first different q whatever r, then equal q and different r
        q, r = f"{v}_q", f"{v}_r"
        whole = {v: var(q) * d + var(r)}
        split_a, split_b = side_a.split(v, q, r, d), side_b.split(v, q, r, d)
        new_a = tuple(simplify(i.substitute(whole), {**outer, **split_a.own}) for i in a)
        new_b = tuple(simplify(i.substitute(whole), {**outer, **split_b.own}) for i in b)
        if not self._apart_in(q, new_a, new_b, shape, split_a, split_b, outer, splits - 1):
            return False
        fixed = {**outer, q: split_a.own[q]}
        return self._apart_in(r, new_a, new_b, shape, split_a.without(q), split_b.without(q), fixed, splits - 1)


class _Side:
    """The variables that one of the two iterations has for itself, in order, with their ranges."""

    def __init__(self, moving: Sequence[Loop], inner: Sequence[Loop], suffix: str) -> None:
        self.suffix = suffix
        self.own: dict[str, _Interval] = loop_ranges([*moving, *inner])

    def split(self, v: str, q: str, r: str, d: IntExpr) -> _Side:
        out = _Side((), (), self.suffix)
        whole = {v: var(q) * d + var(r)}
        for name, (low, high) in self.own.items():
            if name == v:
                out.own[q] = (low, (high // d).substitute(whole))
                out.own[r] = loop_range(d)
            else:
                out.own[name] = (low.substitute(whole), high.substitute(whole))
        return out

    def without(self, name: str) -> _Side:
        out = _Side((), (), self.suffix)
        out.own = {k: x for k, x in self.own.items() if k != name}
        return out

    def renamed(self) -> dict[str, IntExpr]:
        return {name: var(name + self.suffix) for name in self.own}

    def ranges(self) -> dict[str, _Interval]:
        env = self.renamed()
        return {name + self.suffix: (lo.substitute(env), hi.substitute(env)) for name, (lo, hi) in self.own.items()}


def _one_dimension_apart(
    v: str, x: IntExpr, y: IntExpr, side_a: _Side, side_b: _Side, outer: Mapping[str, _Interval]
) -> bool:
    """``x`` at one value of ``v`` never equals ``y`` at another one."""
    c = x.coefficient(v)
    if c is None or c == 0 or c != y.coefficient(v):
        return False
    if c.free_vars() & (side_a.own.keys() | side_b.own.keys()):
        return False
    ranges: Ranges = {**outer, **side_a.ranges(), **side_b.ranges()}
    if is_nonneg(-c - 1, ranges):
        x, y, c = -x, -y, -c
    if not is_nonneg(c, ranges):
        return False
    rest_x = (x - c * var(v)).substitute(side_a.renamed())
    rest_y = (y - c * var(v)).substitute(side_b.renamed())
    return is_nonneg(c - 1 - (rest_x - rest_y), ranges) and is_nonneg(c - 1 - (rest_y - rest_x), ranges)


def _divisor(v: str, indices: Sequence[IntExpr]) -> IntExpr | None:
    """The least ``d`` of ``v // d`` or ``v % d`` in the indices; None if ``v`` is not divided."""
    found: list[IntExpr] = []
    stack = list(indices)
    while stack:
        for a in stack.pop().atoms():
            if isinstance(a, (FloorDiv, Mod)) and as_var(a.args[0]) == v and v not in a.args[1].free_vars():
                found.append(a.args[1])
            stack.extend(a.children())
    constants = [d for d in found if d.is_const]
    return min(constants, key=int) if constants else (found[0] if found else None)
