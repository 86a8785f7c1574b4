"""The least and the greatest of integer expressions: the atoms ``min(...)`` and ``max(...)`` in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.core.arith.expr import IntExpr, IntLike, Operation, as_atom, as_expr, of_atom


class Min(Operation):
    __slots__ = ()
    symbol = "min"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return minimum(*children)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return min(a.evaluate(env) for a in self.args)


class Max(Operation):
    __slots__ = ()
    symbol = "max"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return maximum(*children)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return max(a.evaluate(env) for a in self.args)


def minimum(*args: IntLike) -> IntExpr:
    """The least of ``args``."""
    return _extremum(args, Min, -1)


def maximum(*args: IntLike) -> IntExpr:
    """The greatest of ``args``."""
    return _extremum(args, Max, 1)


def _extremum(args: Iterable[IntLike], kind: type[Operation], keep_first: int) -> IntExpr:
    """Flatten, drop duplicates and arguments dominated by a constant difference. ``keep_first``: sign."""
    flat: list[IntExpr] = []
    for x in args:
        e = as_expr(x)
        a = as_atom(e)
        flat.extend(a.args if isinstance(a, kind) else (e,))
    kept: list[IntExpr] = []
    for e in flat:
        for i, k in enumerate(kept):
            d = (e - k).value()
            if d is not None:
                if d * keep_first > 0:
                    kept[i] = e
                break
        else:
            kept.append(e)
    if len(kept) == 1:
        return kept[0]
    return of_atom(kind(tuple(sorted(kept, key=str))))


def with_parts_joined(e: IntExpr) -> IntExpr:
    """``e`` with ``x`` for ``min(x, a) + max(x - a, 0)``: the sizes of the two parts into which ``x`` was cut."""
    single = {mono[0]: c for mono, c in e.terms if len(mono) == 1}
    heads = [(a, c) for a, c in single.items() if isinstance(a, Min) and len(a.args) == 2]
    tails = [(a, c) for a, c in single.items() if isinstance(a, Max) and len(a.args) == 2]
    for head, c in heads:
        x, y = head.args
        for tail, k in tails:
            for whole, cut in ((x, y), (y, x)):
                if c == k and set(tail.args) == {whole - cut, as_expr(0)}:
                    return with_parts_joined(e + (whole - of_atom(head) - of_atom(tail)) * c)
    return e
