"""Which operators compute an Einsum of one operand or two: all ways in a row, and the cheapest.

A label is a name for an axis. Of two operands, a label of both that the result has is a batch axis, one that the result
lacks is summed; a label of one operand is a row or a column, or is summed in that operand first. Then::

    nothing is summed                   Mul of the operands, their axes in the order of the result
    neither rows nor columns            ReduceSum(Mul(a, b))
    else                                MatMul of [batch..., rows, summed] and [batch..., summed, columns]

with Transpose and a view (Reshape, Squeeze, Unsqueeze) in front of an operand and behind the product where the axes lie
otherwise. An axis of size 1 of a label that is longer elsewhere is broadcast: it is left out of its operand, or is a
batch axis that MatMul and Mul broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import TypeAlias

from tilewright.core.arith.expr import ONE, IntExpr, product
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.rules.views import reshape_target

Term: TypeAlias = Mapping[str, IntExpr]
"""The labels of a tensor with the sizes of its axes, in their order."""
Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """How a tensor comes to other axes: what is None is not needed. ``summed``: axes that go first; ``first``: a shape
    that it is seen in; ``perm``: of a Transpose; ``last``: a shape that it is seen in then. ``source``: the shape
    behind the sum."""

    source: Shape
    summed: tuple[int, ...] = ()
    first: Shape | None = None
    perm: tuple[int, ...] | None = None
    last: Shape | None = None

    @property
    def nodes(self) -> int:
        """How many nodes it takes."""
        return bool(self.summed) + sum(x is not None for x in (self.first, self.perm, self.last))

    @property
    def is_copied(self) -> bool:
        """True for a Transpose that no kernel beside it can do, since a view lies between them."""
        return self.perm is not None and (self.first is not None or self.last is not None)

    def views(self) -> Iterator[tuple[Shape, Shape]]:
        """The shapes in front of and behind each view."""
        at = self.source
        if self.first is not None:
            yield at, self.first
            at = self.first
        if self.perm is not None:
            at = tuple(at[p] for p in self.perm)
        if self.last is not None:
            yield at, self.last


@dataclass(frozen=True, slots=True)
class Plan:
    """``op`` ("" for one operand alone) of ``operands``, each with its place among those of the Einsum; the sum of its
    result over the axes ``summed``; then ``result``. ``copies``: tensors that have to be copied; ``nodes``: of all,
    without those of constant operands."""

    op: str
    operands: tuple[tuple[int, Moved], ...]
    summed: tuple[int, ...]
    result: Moved
    copies: int
    nodes: int


def plans(terms: Sequence[Term], out: Term, free: Sequence[bool]) -> Iterator[Plan]:
    """All ways to compute it, of one term or two whose labels are distinct. ``free``: for each operand, whether it
    costs nothing to move its axes, since it is a constant."""
    if len(terms) == 1:
        (term,) = terms
        kept = {x: d for x, d in term.items() if x in out}
        summed = tuple(k for k, x in enumerate(term) if x not in out)
        moved = _moved(kept, [(x,) for x in out], summed)
        yield from _plan("", ((0, moved),), (), Moved(_shape(out, [(x,) for x in out])), free)
        return
    for first, second in ((0, 1), (1, 0)):
        yield from _pair_plans((first, second), (terms[first], terms[second]), out, free)


def _pair_plans(places: tuple[int, int], terms: tuple[Term, Term], out: Term, free: Sequence[bool]) -> Iterator[Plan]:
    """Those with the operands in this order."""
    given = tuple({x for x in t if not _is_spread(x, t, o)} for t, o in (terms, terms[::-1]))
    own = tuple(tuple(x for x in t if x not in out and x in s and x not in o)
                for t, s, o in ((terms[0], given[0], given[1]), (terms[1], given[1], given[0])))  # fmt: skip
    sums = tuple(tuple(k for k, x in enumerate(t) if x in gone) for t, gone in zip(terms, own, strict=True))
    a, b = ({x: d for x, d in t.items() if x not in gone} for t, gone in zip(terms, own, strict=True))
    in_a, in_b = (s - set(gone) for s, gone in zip(given, own, strict=True))

    def made(
        op: str, groups: tuple[list[Labels], list[Labels]], result: list[Labels], axes: tuple[int, ...] = ()
    ) -> Iterator[Plan]:
        moves = tuple(_moved(t, g, s) for t, g, s in zip((a, b), groups, sums, strict=True))
        yield from _plan(op, tuple(zip(places, moves, strict=True)), axes, _unmoved(out, result), free)

    summed = [x for x in a if x in in_a and x in in_b and x not in out]
    if not summed:
        yield from made("Mul", (_aligned(a, in_a, tuple(out)), _aligned(b, in_b, tuple(out))), [(x,) for x in out])
        return
    if in_a | in_b <= {*summed} | (a.keys() & b.keys()):
        batch = [x for x in out if x in in_a or x in in_b]
        for order in _orders([*batch, *summed], a, b):
            axes = tuple(k for k, x in enumerate(order) if x in summed)
            kept: list[Labels] = [(x,) for x in order if x not in summed]
            yield from made("Mul", (_aligned(a, in_a, order), _aligned(b, in_b, order)), kept, axes)
    if all(a[x] == b[x] for x in summed):
        for batch in _batches(a, b, out, in_a, in_b):
            rows = [x for x in out if x in in_a and x not in batch]
            columns = [x for x in out if x in in_b and x not in batch]
            ways = (_orders(batch, a, b, out), _orders(rows, a, out), _orders(columns, b, out), _orders(summed, a, b))
            for way in combinations(*ways):
                yield from made("MatMul", *_product_groups(*way, a, b, in_a, in_b))


def _batches(a: Term, b: Term, out: Term, in_a: set[str], in_b: set[str]) -> Iterator[list[str]]:
    """Which labels are batch axes: those of both operands; with those of size 1 in one of them; with those of one
    operand but its last one, along which the other one is broadcast."""
    for spread in (False, True):
        batch = [x for x in out if (x in in_a and x in in_b) or (spread and x in a and x in b)]
        yield batch
        for term, own in ((a, in_a), (b, in_b)):
            alone = [x for x in out if x in own and x not in batch]
            for order in _orders(alone, term, out) if len(alone) > 1 else ():
                yield [x for x in out if x in batch or x in order[:-1]]


def _is_spread(label: str, term: Term, other: Term) -> bool:
    """True for an axis of size 1 whose label is longer in the other operand."""
    return term[label].value() == 1 and label in other and other[label].value() != 1


def _product_groups(
    batch: Labels, rows: Labels, columns: Labels, summed: Labels, a: Term, b: Term, in_a: set[str], in_b: set[str]
) -> tuple[tuple[list[Labels], list[Labels]], list[Labels]]:
    """The axes of both operands of a MatMul and of its result, each of the labels that it joins."""
    if not batch:  # all rows are those of one product, whatever axes they have; vectors need no second axis
        lead, last = [(r,) for r in rows], [columns] if columns else []
        return ([*lead, summed], [summed, *last]), [*lead, *last]
    left, right = ([(x,) if x in own else () for x in batch] for own in (in_a, in_b))
    operands = _without_ones([*left, rows, summed], a, 2), _without_ones([*right, summed, columns], b, 2)
    return operands, [*((x,) for x in batch), rows, columns]


def _orders(labels: Sequence[str], *terms: Term) -> tuple[Labels, ...]:
    """The labels in the order of each term that has them all."""
    places = (list(t) for t in terms if all(x in t for x in labels))
    return tuple(dict.fromkeys(tuple(sorted(labels, key=p.index)) for p in places)) or (tuple(labels),)


def _aligned(term: Term, own: set[str], order: Labels) -> list[Labels]:
    """The axes of an operand of a Mul whose result has ``order``."""
    return _without_ones([(x,) if x in own else () for x in order], term)


def _without_ones(groups: list[Labels], term: Term, least: int = 0) -> list[Labels]:
    """Axes to which an operand is broadcast: of those in front that it lacks, as few as can be, but ``least`` axes."""
    while len(groups) > max(len(term), least) and not groups[0]:
        groups = groups[1:]
    return groups


def _shape(sizes: Term, groups: Sequence[Labels]) -> Shape:
    return tuple(product(sizes[x] for x in g) for g in groups)


def _long(labels: Sequence[str], sizes: Term) -> list[str]:
    return [x for x in labels if sizes[x].value() != 1]


def _moved(term: Term, groups: Sequence[Labels], summed: tuple[int, ...]) -> Moved:
    """The axes of ``term`` as ``groups``, behind a sum over ``summed``; the labels that no group has are of size 1."""
    want = [x for g in groups for x in g]
    shape, now, perm = _shape(term, groups), tuple(term.values()), None
    if _long(list(term), term) != _long(want, term):
        order = [*(x for x in term if x not in want), *want]
        perm, now = tuple([*term].index(x) for x in order), tuple(term[x] for x in order)
    return Moved(tuple(term.values()), summed, None, perm, None if shape == now else shape)


def _unmoved(out: Term, groups: Sequence[Labels]) -> Moved:
    """A tensor of axes ``groups`` with one axis for each label of ``out``, in their order."""
    shape, flat, target = _shape(out, groups), [x for g in groups for x in g], tuple(out.values())
    if _long(flat, out) == _long([*out], out):
        return Moved(shape, first=None if shape == target else target)
    split = tuple(out[x] for x in flat)
    return Moved(shape, (), None if shape == split else split, tuple(flat.index(x) for x in out))


def _plan(
    op: str, operands: tuple[tuple[int, Moved], ...], summed: tuple[int, ...], result: Moved, free: Sequence[bool]
) -> Iterator[Plan]:
    """The plan, unless a shape cannot be written."""
    if any(view_of(*v) is None for m in (*(m for _, m in operands), result) for v in m.views()):
        return
    paid = [m for k, m in operands if not free[k]]
    turned = op == "MatMul" and result.perm is not None and result.perm[-1] != len(result.perm) - 1
    copies = sum(m.is_copied for m in paid) + (result.is_copied or turned)
    nodes = sum(m.nodes for m in paid) + bool(op) + bool(summed) + result.nodes
    yield Plan(op, operands, summed, result, copies, nodes)


def view_of(source: Shape, target: Shape) -> tuple[str, list[int]] | None:
    """The operator that sees a tensor of ``source`` as one of ``target``, and its second operand. None if a size that
    is neither a number nor kept is beside another open one: where that is 0, no -1 can tell the first."""
    if len(target) > len(source) and (axes := _ones_between(source, target)) is not None:
        return "Unsqueeze", axes
    if len(source) > len(target) and (axes := _ones_between(target, source)) is not None:
        return "Squeeze", axes
    dims = reshape_target(source, target)
    is_open = dims is None or (-1 in dims and any(not d.is_const for d, n in zip(target, dims, strict=True) if n != -1))
    return None if dims is None or is_open else ("Reshape", dims)


def _ones_between(short: Shape, long: Shape) -> list[int] | None:
    """The axes of ``long`` without which it is ``short``, if they are of size 1."""
    axes, k = [], 0
    for axis, d in enumerate(long):
        if k < len(short) and d == short[k]:
            k += 1
        elif d == ONE:
            axes.append(axis)
        else:
            return None
    return axes if k == len(short) else None
