"""The size that sizes broadcast to: the atom ``broadcast(...)`` in canonical form.

Sizes broadcast when all that are not 1 are equal; that one is then the size of the result (0 with 1 gives 0). Who
builds such an expression takes care that they do: of sizes that do not, ``broadcast`` is one of those that are not 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.core.arith.expr import ONE, IntExpr, IntLike, Operation, as_atom, as_expr, of_atom
from tilewright.core.arith.minmax import Min


class Broadcast(Operation):
    __slots__ = ()
    symbol = "broadcast"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return broadcasted(*children)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return next((v for a in self.args if (v := a.evaluate(env)) != 1), 1)


def broadcasted(*args: IntLike) -> IntExpr:
    """What ``args`` broadcast to. A constant other than 1 decides; broadcasts among ``args`` are flattened, and
    ``min(512, x)`` says nothing beside ``x``: where it is not ``x``, the two do not broadcast."""
    kept: dict[IntExpr, None] = {}
    for x in args:
        e = as_expr(x)
        if e.is_const and e != ONE:
            return e
        kept.update(dict.fromkeys(_operands(e)))
    kept.pop(ONE, None)
    kept = {e: None for e in kept if not _is_bounded(e, kept)}
    if len(kept) < 2:
        return next(iter(kept), ONE)
    return of_atom(Broadcast(tuple(sorted(kept, key=str))))


def _operands(e: IntExpr) -> tuple[IntExpr, ...]:
    a = as_atom(e)
    return a.args if isinstance(a, Broadcast) else (e,)


def _is_bounded(e: IntExpr, others: Collection[IntExpr]) -> bool:
    """True for the least of one of ``others`` and constants greater than 1."""
    a = as_atom(e)
    if not isinstance(a, Min):
        return False
    rest = [x for x in a.args if not (x.is_const and x.const > 1)]
    return len(rest) == 1 and rest[0] in others
