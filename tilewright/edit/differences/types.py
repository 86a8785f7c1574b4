"""Types of two graphs compared. Symbols of dimensions are names: one may stand for another, wherever it occurs."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr, as_var, var
from tilewright.graph_ir.ir import Graph, OptionalType, SequenceType, Shape, TensorType, Type, UnknownType


class DimensionNames:
    """Which symbol of ``b`` each symbol of ``a`` is, as far as types that were compared have told. One symbol each."""

    def __init__(self) -> None:
        self.to_b: dict[str, str] = {}
        self._taken: set[str] = set()

    def are_equal(self, a: Type | None, b: Type | None) -> bool:
        """Whether two types are the same but for names of dimensions. What that needs of the names is kept if so."""
        new: dict[str, str] = {}
        if not self._equal(a, b, new):
            return False
        self.to_b |= new
        self._taken |= set(new.values())
        return True

    def _equal(self, a: Type | None, b: Type | None, new: dict[str, str]) -> bool:
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return a.dtype == b.dtype and self._equal_shapes(a.shape, b.shape, new)
        if isinstance(a, SequenceType | OptionalType) and type(a) is type(b):
            return self._equal(a.element, b.element, new)
        return a is None and b is None

    def _equal_shapes(self, a: Shape | None, b: Shape | None, new: dict[str, str]) -> bool:
        if a is None or b is None:
            return a is b
        return len(a) == len(b) and all(self._equal_sizes(x, y, new) for x, y in zip(a, b, strict=True))

    def _equal_sizes(self, a: IntExpr, b: IntExpr, new: dict[str, str]) -> bool:
        if a.is_const or b.is_const:
            return a == b
        known = self.to_b | new if new else self.to_b
        free = [s for s in sorted(a.free_vars()) if s not in known]
        left = sorted(b.free_vars() - self._taken - set(new.values()))
        if len(free) == 1 and len(left) >= 1:
            own = as_var(b)
            new[free[0]] = own if own in left else free[0] if free[0] in left else left[0]
        elif free == left:
            new |= {s: s for s in free}
        return a.substitute({s: var(t) for s, t in (self.to_b | new).items() if s != t}) == b


def type_of(graph: Graph, name: str) -> Type | None:
    """The type of a value; None if it is not known."""
    value = graph.values.get(name)
    return None if value is None or isinstance(value.type, UnknownType) else value.type


def type_text(t: Type | None) -> str:
    """A type for people."""
    return "unknown" if t is None else str(t)
