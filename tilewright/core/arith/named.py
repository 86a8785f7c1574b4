"""Long integer expressions under a name: the atom ``size_...`` stands for a formula, and is as short as a variable.

Sizes are made of sizes: pooling an array and joining the result with the array doubles what its size is made of, and a
chain of that makes formulas that no computer can write down. Under a name, a formula is shared instead of repeated.
The name is a digest of the formula, so that equal formulas have equal names. To whom looks at expressions, the atom is
opaque; what it depends on (its variables, its value, what it becomes when they are replaced) is what the formula does.
No method goes down the formulas as a tree, nor by recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b

from tilewright.core.arith.expr import Atom, IntExpr, IntLike, as_expr, of_atom, with_atoms

MAX_SIZE = 12
"""Variables and operations of a tensor's size that has no name."""


class Named(Atom):
    """A size with a ``formula``, which nobody writes out. ``bounds``: of its value, once they are known."""

    __slots__ = ("_plain", "_result", "_value", "_vars", "bounds", "formula", "inner", "name")

    def __init__(self, formula: IntExpr) -> None:
        self.formula = formula
        self.name = f"size_{blake2b(str(formula).encode(), digest_size=8).hexdigest()}"
        self.inner = named_in((formula,))
        self.bounds: tuple[int | None, int | None] | None = None
        self._plain = formula.is_plain
        self._vars = tuple(sorted(formula.free_vars()))
        self._value: tuple[tuple[int, ...], int] | None = None
        self._result: tuple[tuple[IntExpr | None, ...], IntExpr] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def free_vars(self) -> frozenset[str]:
        return self.formula.free_vars()

    @property
    def is_plain(self) -> bool:
        return self._plain

    def evaluate(self, env: Mapping[str, int]) -> int:
        def known(x: Named) -> int | None:
            found = x._value
            return found[1] if found is not None and found[0] == tuple([env[v] for v in x._vars]) else None

        while (value := known(self)) is None:
            for x in innermost_first(self, lambda x: known(x) is not None):
                x._value = tuple([env[v] for v in x._vars]), x.formula.evaluate(env)
        return value

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        def arguments(x: Named) -> tuple[IntExpr | None, ...]:
            return tuple([as_expr(env[v]) if v in env else None for v in x._vars])

        def known(x: Named) -> IntExpr | None:
            found = x._result
            return found[1] if found is not None and found[0] == arguments(x) else None

        while (result := known(self)) is None:
            for x in innermost_first(self, lambda x: known(x) is not None):
                x._result = arguments(x), short(x.formula.substitute(env))
        return result


def short(e: IntExpr) -> IntExpr:
    """``e``, or its name if it is longer than ``MAX_SIZE``."""
    return e if e.size <= MAX_SIZE else of_atom(Named(e))


def named_in(expressions: Iterable[IntExpr]) -> tuple[Named, ...]:
    """The named sizes in expressions, without those in their formulas."""
    found: dict[Named, None] = {}
    todo = [e for e in expressions if e.terms]
    while todo:
        for a in todo.pop().atoms():
            if isinstance(a, Named):
                found[a] = None
            elif isinstance(a, Atom):
                todo.extend(a.children())
    return tuple(found)


def with_named(e: IntExpr, value: Callable[[Named], IntExpr]) -> IntExpr:
    """``e`` with ``value`` of each named size in its place; the same object if there are none."""

    def of(a: Atom) -> IntExpr:
        return value(a) if isinstance(a, Named) else a.rebuilt(*[with_named(x, value) for x in a.children()])

    return with_atoms(e, of) if named_in((e,)) else e


def innermost_first(start: Named, is_done: Callable[[Named], bool]) -> Iterator[Named]:
    """Named sizes that are not done yet, each after those in its formula: the last is ``start``. Who takes one makes
    it done."""
    todo = [start]
    while todo:
        x = todo[-1]
        waiting = [] if is_done(x) else [y for y in x.inner if not is_done(y)]
        if waiting:
            todo.extend(waiting)
            continue
        todo.pop()
        if not is_done(x):
            yield x


def definitions(expressions: Iterable[IntExpr]) -> tuple[Named, ...]:
    """All named sizes that the expressions depend on, each after those in its formula."""
    out: dict[Named, None] = {}
    for start in named_in(expressions):
        for x in innermost_first(start, out.__contains__):
            out[x] = None
    return tuple(out)
