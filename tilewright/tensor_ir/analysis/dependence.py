"""Which loops carry a dependence: what decides whether loops may be interchanged, spread over threads, or vectorized.

Two accesses to one element, at least one of them a store, are dependent. A loop is *pinned* by a pair of accesses when
meeting in one element proves that both happen in the same iteration of it; it *carries* the pair otherwise. Pinning is
proved from strides: in ``8*i_0 + i_1`` with ``i_1 <= 7`` equal sums have equal parts (a mixed-radix number), and
``f // n`` with ``f % n`` pins ``f``. What is not proved is carried: the answers are sound and incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import Ranges, extremes, interval, is_less, upper_bound
from tilewright.core.arith.expr import ZERO, Atom, FloorDiv, IntExpr, Mod, Var, const, of_atom
from tilewright.core.arith.minmax import Max, Min, maximum
from tilewright.tensor_ir.analysis.scopes import block_environment, loads_of, loop_ranges, loops_in
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Load,
    Loop,
    Op,
    Seq,
    Stmt,
    Store,
    loads,
    stmt_children,
    walk,
    walk_index,
)

ASSOCIATIVE = frozenset(
    ("add", "mul", "max", "min", "logical_and", "logical_or", "logical_xor", "bit_and", "bit_or", "bit_xor")
)


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of a buffer; ``indices`` in terms of loop variables, ``loops`` from the nest's top inwards."""

    buffer: str
    indices: tuple[IntExpr, ...]
    is_store: bool
    stmt: Stmt
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A possible dependence: the loops that carry it, and where it comes from.

    ``reassociates``: it is only the order of steps of an associative reduction, whose initial value is still stored
    first in any loop order.
    """

    loops: frozenset[str]
    buffer: str
    source: str
    sink: str
    reassociates: bool = False

    def __str__(self) -> str:
        return f"{self.sink} depends on {self.source} through {self.buffer}"


def is_associative_update(block: Block) -> bool:
    """True for ``C[i] = op(C[i], value)`` with an associative ``op`` and a value that does not read ``C``."""
    v = block.value
    if not isinstance(v, Op) or v.name not in ASSOCIATIVE or len(v.args) != 2:
        return False
    old, new = v.args
    is_own = isinstance(old, Load) and old.buffer == block.buffer and old.indices == block.indices
    return is_own and all(x.buffer != block.buffer for x in loads(new))


def _accesses(s: Stmt, buffers: frozenset[str], loops: tuple[Loop, ...]) -> Iterator[Access]:
    """Every load and store of ``buffers`` below a statement, in program order; a statement's loads before its store."""
    if isinstance(s, Loop):
        loops = (*loops, s)
    env = block_environment(s) if isinstance(s, Block) else {}
    for x in loads_of(s):
        if x.buffer in buffers:
            yield Access(x.buffer, tuple(i.substitute(env) for i in x.indices), False, s, loops)
    if isinstance(s, (Block, Store)) and s.buffer in buffers:
        yield Access(s.buffer, tuple(i.substitute(env) for i in s.indices), True, s, loops)
    for c in stmt_children(s):
        yield from _accesses(c, buffers, loops)


def carried_dependences(nest: Loop, chain: Sequence[str], outer: Ranges) -> list[Carried]:
    """The dependences that loops of ``chain`` carry; ``chain`` starts at ``nest`` and goes inwards.

    Buffers allocated inside the nest are private to an iteration and carry nothing. ``outer``: the ranges around it.
    """
    private = {s.buffer.name for s in walk(nest) if isinstance(s, Alloc)}
    written = {s.buffer for s in walk(nest) if isinstance(s, (Block, Store))}
    by_buffer: dict[str, list[Access]] = {}
    for a in _accesses(nest, frozenset(written - private), ()):
        by_buffer.setdefault(a.buffer, []).append(a)
    names = frozenset(chain)
    prover = _Prover(names, {**outer, **loop_ranges(loops_in(walk(nest)))})
    out: list[Carried] = []
    for group in by_buffer.values():
        stores = [a for a in group if a.is_store]
        done: set[tuple[int, int, tuple[IntExpr, ...]]] = set()
        for w in stores:
            for x in group:
                key = (id(w.stmt), id(x.stmt), x.indices)
                if key in done or (x.is_store and (id(x.stmt), id(w.stmt), w.indices) in done):
                    continue
                done.add(key)
                loops = names - prover.pinned(w, x)
                if loops:
                    out.append(_carried(w, x, loops, names))
    for s in walk(nest):
        if isinstance(s, Block):
            ordered = [b for a, b in zip(s.axes, s.bindings, strict=True) if a.kind == "ordered"]
            used = names & frozenset().union(*(b.free_vars() for b in ordered))
            if used:
                out.append(Carried(used, s.buffer, s.name, s.name))
    return out


def is_injective(indices: Sequence[IntExpr], extents: Mapping[str, IntExpr]) -> bool:
    """True if different values of the variables, each from 0 to below its extent, are proved to differ in an index."""
    loops = tuple(Loop(name, extent, Seq(())) for name, extent in extents.items())
    access = Access("", tuple(indices), True, Seq(()), loops)
    return _Prover(frozenset(extents), loop_ranges(loops)).pinned(access, access) >= extents.keys()


def _carried(w: Access, x: Access, loops: frozenset[str], chain: frozenset[str]) -> Carried:
    reassociates = False
    if isinstance(w.stmt, Block) and w.stmt is x.stmt and is_associative_update(w.stmt):
        # the first step of an element is the one with all its loops at 0 only if those loops do nothing else
        by_kind: dict[bool, frozenset[str]] = {True: frozenset(), False: frozenset()}
        for a, b in zip(w.stmt.axes, w.stmt.bindings, strict=True):
            by_kind[a.kind == "reduce"] |= b.free_vars()
        reassociates = loops <= by_kind[True] and not (by_kind[True] & by_kind[False] & chain)
    return Carried(loops, w.buffer, _label(w.stmt), _label(x.stmt), reassociates)


def _label(s: Stmt) -> str:
    if isinstance(s, Block):
        return s.name
    return f"store to {s.buffer}" if isinstance(s, Store) else "a condition"


def _never_meet(a: Access, b: Access) -> bool:
    """True if an index of one differs from that of the other by a constant that is not 0, in the same iteration of the
    loops around the nest: a recurrence reads row ``s`` of a state and stores row ``s + 1``."""
    inside = {x.var for x in (*a.loops, *b.loops)}
    apart = ((p - q).value() for p, q in zip(a.indices, b.indices, strict=True) if not p.free_vars() & inside)
    return any(d is not None and d != 0 for d in apart)


# -- pinning -----------------------------------------------------------------------------------------------------
class _Prover:
    """Proves that accesses that meet in one element are in the same iteration of loops. ``names``: those asked for."""

    def __init__(self, names: frozenset[str], ranges: Ranges) -> None:
        self.names = names
        self.ranges = ranges
        self._linear: dict[tuple[IntExpr, frozenset[str]], tuple[dict[Atom, IntExpr], IntExpr] | None] = {}

    def pinned(self, a: Access, b: Access) -> frozenset[str]:
        """Loops around both accesses that are proved to be in the same iteration when they meet in one element."""
        shared: list[str] = []
        for p, q in zip(a.loops, b.loops, strict=False):
            if p is not q:
                break
            shared.append(p.var)
        if len(a.indices) != len(b.indices):
            return frozenset()
        if _never_meet(a, b):
            return frozenset(shared)
        unknown = frozenset(shared)
        wanted = self.names & unknown
        equal = {v for v in shared if (top := upper_bound(self.ranges[v][1], self.ranges)) is not None and top <= 0}
        parts: set[Atom] = set()  # divisions and remainders known to be equal
        work = list(zip(a.indices, b.indices, strict=True))
        if isinstance(a.stmt, Block) and a.stmt is b.stmt and a.indices == b.indices:
            # a block promises that points which differ in a spatial axis of its place store different elements; an
            # axis that is only read through (the start of a region) may differ from step to step of a reduction
            placing = frozenset().union(*(i.free_vars() for i in a.stmt.indices))
            bound = zip(a.stmt.axes, a.stmt.bindings, strict=True)
            work += [(e, e) for x, e in bound if x.kind == "spatial" and x.name in placing]
        work += _joined(work)
        seen = set(work)
        changed = True
        while changed and not equal >= wanted:
            changed = False
            for x, y in list(work):
                for atom in self._pin_equation(x, y, unknown, equal, parts):
                    changed = True
                    if isinstance(atom, Var):
                        equal.add(atom.name)
                    else:
                        parts.add(atom)
            for atom in parts:
                if isinstance(atom, Mod):
                    for x in self._recomposed(atom, equal, parts):
                        if (x, x) not in seen:
                            seen.add((x, x))
                            work.append((x, x))
                            changed = True
        return frozenset(equal)

    def _recomposed(self, remainder: Mod, equal: set[str], parts: set[Atom]) -> list[IntExpr]:
        """What must be equal because it has a quotient that is, and this remainder.

        A remainder loses multiples of its divisor when it is simplified: ``(2*i + j) % 3`` is that of ``8*i + j``.
        """
        x, n = remainder.args
        same = all(q in parts or (isinstance(q, Var) and q.name in equal) for q in remainder.quotient().atoms())
        others = [q.args[0] for q in parts if isinstance(q, FloorDiv) and q.args[1] == n and q.args[0] != x]
        return [*([x] if same else []), *(y for y in others if (y - x) % n == 0)]

    def _pin_equation(
        self, x: IntExpr, y: IntExpr, unknown: frozenset[str], equal: set[str], parts: set[Atom]
    ) -> set[Atom]:
        """The atoms that ``x(here) == y(there)`` proves equal, given those known to be ``equal``."""
        left, right = self._in_atoms(x, unknown), self._in_atoms(y, unknown)
        if left is None or right is None:
            return set()
        atoms: list[tuple[Atom, IntExpr]] = []
        for a in {**left[0], **right[0]}:
            p, q = left[0].get(a, ZERO), right[0].get(a, ZERO)
            if p != q:
                return set()
            if a not in parts and not (a.free_vars() & unknown) <= equal:
                stride = _magnitude(p, self.ranges)
                if stride is None:
                    return set()
                atoms.append((a, stride))
        if not atoms:
            return set()
        low, high = interval(left[1] - right[1], self.ranges)
        if low is None or high is None:
            return set()
        rest = const(max(-low, high))
        reach: IntExpr | None = rest
        # the longest run of largest strides, each of which exceeds all that the smaller ones can make up
        atoms.sort(key=lambda t: (not t[1].is_const, t[1].const if t[1].is_const else len(str(t[1]))))
        below = ZERO
        found: set[Atom] = set()
        for a, stride in atoms:
            if reach is None or not is_less(reach, stride, self.ranges):
                together = self._spread(below, unknown)
                reach = reach if together is None else rest + together
            found = found | {a} if reach is not None and is_less(reach, stride, self.ranges) else set()
            width = None if reach is None else _width(a, unknown, self.ranges)
            reach = None if reach is None or width is None else reach + stride * width
            below = below + of_atom(a) * stride
        return found

    def _spread(self, e: IntExpr, unknown: frozenset[str]) -> int | None:
        """How far two values of ``e`` can be apart, where the range of a variable depends on others in ``e``."""
        inside = {v: self.ranges[v] for v in self.ranges if v in e.free_vars() & unknown}
        if len(inside) < 2:
            return None
        ends = extremes(e, inside, self.ranges)
        if ends is None or (ends[0].free_vars() | ends[1].free_vars()) & unknown:
            return None
        return (ends[1] - ends[0]).value()

    def _in_atoms(self, e: IntExpr, unknown: frozenset[str]) -> tuple[dict[Atom, IntExpr], IntExpr] | None:
        """As :func:`_linear`, worked out once for each expression."""
        key = (e, unknown)
        if key not in self._linear:
            self._linear[key] = _linear(e, unknown)
        return self._linear[key]


def _joined(equations: Sequence[tuple[IntExpr, IntExpr]]) -> list[tuple[IntExpr, IntExpr]]:
    """Equations in ``f`` from those in ``f // d`` and, later, ``f % d``: the places of a loop over several axes."""
    out: list[tuple[IntExpr, IntExpr]] = []
    whole: tuple[IntExpr, IntExpr] | None = None
    for x, y in equations:
        by = next((a.args[1] for a in x.atoms() if isinstance(a, Mod) and a.args[1].is_const), None)
        if whole is not None and by is not None:
            joined = whole[0] * by + x, whole[1] * by + y
            if _divisions(joined[0]) < _divisions(whole[0]) + _divisions(x):
                out.append(joined)
                whole = joined
                continue
        if _divisions(x):
            whole = x, y
    return out


def _divisions(e: IntExpr) -> int:
    return sum(1 for a in e.atoms() if isinstance(a, (FloorDiv, Mod)))


def _linear(e: IntExpr, unknown: frozenset[str]) -> tuple[dict[Atom, IntExpr], IntExpr] | None:
    """``e`` as coefficients of the atoms that use ``unknown`` names, and the rest; None where it is not that."""
    if next(walk_index(e), None) is not None:
        return None
    out: dict[Atom, IntExpr] = {}
    rest = const(e.const)
    for mono, c in e.terms:
        hits = [a for a in mono if not unknown.isdisjoint(a.free_vars())]
        if not hits:
            rest = rest + IntExpr(((mono, c),), 0)
        elif len(hits) == 1 and isinstance(hits[0], (Var, FloorDiv, Mod)):
            others = tuple(a for a in mono if a is not hits[0])
            out[hits[0]] = out.get(hits[0], ZERO) + (IntExpr(((others, c),), 0) if others else const(c))
        else:
            return None
    return out, rest


def _magnitude(stride: IntExpr, ranges: Ranges) -> IntExpr | None:
    """The absolute value of a stride whose sign is known; None for others, and for zero."""
    low, high = interval(stride, ranges)
    if low is not None and low >= 0 and stride != 0:
        return stride
    return -stride if high is not None and high <= 0 and stride != 0 else None


def _width(a: Atom, unknown: frozenset[str], ranges: Ranges) -> IntExpr | None:
    """How far two values of an atom can be apart, without ``unknown`` names; None if that is not found."""
    low, high = interval(of_atom(a), ranges)
    if low is not None and high is not None:
        return const(max(0, high - low))
    if isinstance(a, Mod):
        return None if a.args[1].free_vars() & unknown else a.args[1] - 1
    return _bound(ranges[a.name][1], unknown) if isinstance(a, Var) and a.name in ranges else None


def _bound(e: IntExpr, unknown: frozenset[str]) -> IntExpr | None:
    """An upper bound of ``e`` without ``unknown`` names: looks into one minimum, or one ``max(0, ...)``."""
    if not e.free_vars() & unknown:
        return e
    for mono, c in e.terms:
        a = mono[0]
        if len(mono) != 1 or c != 1 or not isinstance(a, (Min, Max)):
            continue
        rest = e - of_atom(a)
        if rest.free_vars() & unknown:
            return None
        bounds = [_bound(x, unknown) for x in a.args]
        known = [b for b in bounds if b is not None]
        if isinstance(a, Min):
            return rest + known[0] if known else None
        return rest + maximum(*known) if len(known) == len(bounds) else None
    return None
