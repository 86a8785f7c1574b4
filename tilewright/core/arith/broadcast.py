"""The size that sizes broadcast to: the atom ``broadcast(...)`` in canonical form.

Sizes broadcast when all that are not 1 are equal; that one is then the size of the result (0 with 1 gives 0). Who
builds such an expression takes care that they do: of sizes that do not, ``broadcast`` is one of those that are not 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.expr import ONE, IntExpr, IntLike, Operation, as_expr, of_atom


class Broadcast(Operation):
    __slots__ = ()
    symbol = "broadcast"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return broadcasted(*children)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return next((v for a in self.args if (v := a.evaluate(env)) != 1), 1)


def broadcasted(*args: IntLike) -> IntExpr:
    """What ``args`` broadcast to. A constant other than 1 decides; broadcasts among ``args`` are flattened."""
    kept: dict[IntExpr, None] = {}
    for x in args:
        e = as_expr(x)
        if e.is_const and e != ONE:
            return e
        kept.update(dict.fromkeys(_operands(e)))
    kept.pop(ONE, None)
    if len(kept) < 2:
        return next(iter(kept), ONE)
    return of_atom(Broadcast(tuple(sorted(kept, key=str))))


def _operands(e: IntExpr) -> tuple[IntExpr, ...]:
    if len(e.terms) == 1 and e.const == 0 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
        a = e.terms[0][0][0]
        if isinstance(a, Broadcast):
            return a.args
    return (e,)
