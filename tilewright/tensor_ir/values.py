"""Values of formulas: what Python's operators make of elements, numbers and indices while a formula is written.

A formula runs once, to build the program; nothing in it is known then. So a value has no truth: Python's ``if``,
``and``, ``max`` would decide now what is to be decided for each element, and raise TypeError here. The functions to use
instead are :func:`where`, :func:`maximum`, :func:`minimum`, ``&``, ``|``, ``~``, and comparisons, of values with
Python's operators, of indices with :func:`equal`, :func:`less` and so on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, overload

from tilewright.core import dtypes
from tilewright.core.arith import minmax
from tilewright.core.arith.expr import IntExpr, IntLike, Var, as_expr, of_atom
from tilewright.core.dtypes import DType
from tilewright.core.suggestions import did_you_mean
from tilewright.tensor_ir.ir import Cast, Const, Dyn, Expr, Index, Op, Select
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_NO_TRUTH = (
    "{} is not known while the formula is built, so it can be no Python condition: use where(condition, a, b) for "
    "if-else, maximum and minimum for max and min, &, | and ~ for and, or and not"
)
_NO_COMPARISON = (
    "{} is not known while the formula is built, so Python cannot compare it: "
    "use equal, not_equal, less, less_equal, greater or greater_equal"
)


class FormulaVar(Var):
    """An index while a formula is built. Python's own comparison with a number would say no, whatever the index is."""

    __slots__ = ()

    def require_known(self) -> NoReturn:
        raise TypeError(_NO_COMPARISON.format(f"index {self.name}"))


def formula_index(name: str) -> IntExpr:
    """The index ``name`` as a formula gets it."""
    return of_atom(FormulaVar(name))


@dataclass(frozen=True, slots=True, eq=False)
class ReduceAxis:
    """A reduction variable; usable as an index like any integer expression."""

    name: str
    extent: IntExpr

    @property
    def index(self) -> IntExpr:
        return formula_index(self.name)

    def __eq__(self, o: object) -> bool:
        if isinstance(o, ReduceAxis):
            return (self.name, self.extent) == (o.name, o.extent)
        raise TypeError(_NO_COMPARISON.format(f"reduction axis {self.name}"))

    def __hash__(self) -> int:
        return hash((self.name, self.extent))

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH.format(f"reduction axis {self.name}"))

    def __add__(self, o: IndexLike) -> IntExpr:
        return self.index + index_of(o)

    __radd__ = __add__

    def __mul__(self, o: IntLike) -> IntExpr:
        return self.index * o

    __rmul__ = __mul__

    def __sub__(self, o: IndexLike) -> IntExpr:
        return self.index - index_of(o)

    def __rsub__(self, o: IndexLike) -> IntExpr:  # type: ignore[misc]  # a value that is an operand comes first
        return index_of(o) - self.index

    def __floordiv__(self, o: IntLike) -> IntExpr:
        return self.index // o

    def __mod__(self, o: IntLike) -> IntExpr:
        return self.index % o


class Val:
    """A value under construction: an :data:`Expr` with Python operators. Both sides must have the same element type;
    Python numbers take the type of the other side."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def __add__(self, o: ValLike) -> Val:
        return op("add", self, o)

    def __radd__(self, o: ValLike) -> Val:
        return op("add", lift(o, self.dtype), self)

    def __sub__(self, o: ValLike) -> Val:
        return op("sub", self, o)

    def __rsub__(self, o: ValLike) -> Val:
        return op("sub", lift(o, self.dtype), self)

    def __mul__(self, o: ValLike) -> Val:
        return op("mul", self, o)

    def __rmul__(self, o: ValLike) -> Val:
        return op("mul", lift(o, self.dtype), self)

    def __truediv__(self, o: ValLike) -> Val:
        return op("div", self, o)

    def __rtruediv__(self, o: ValLike) -> Val:
        return op("div", lift(o, self.dtype), self)

    def __neg__(self) -> Val:
        return op("neg", self)

    def __lt__(self, o: ValLike) -> Val:
        return op("less", self, o)

    def __le__(self, o: ValLike) -> Val:
        return op("less_equal", self, o)

    def __gt__(self, o: ValLike) -> Val:
        return op("greater", self, o)

    def __ge__(self, o: ValLike) -> Val:
        return op("greater_equal", self, o)

    def equal(self, o: ValLike) -> Val:
        return op("equal", self, o)

    def __eq__(self, o: object) -> Val:  # type: ignore[override]
        return equal(self, o)  # type: ignore[arg-type]

    def __ne__(self, o: object) -> Val:  # type: ignore[override]
        return not_equal(self, o)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH.format("a value"))

    def __and__(self, o: ValLike) -> Val:
        return op("logical_and" if self.dtype.kind == "b" else "bit_and", self, o)

    def __or__(self, o: ValLike) -> Val:
        return op("logical_or" if self.dtype.kind == "b" else "bit_or", self, o)

    def __invert__(self) -> Val:
        return op("logical_not" if self.dtype.kind == "b" else "bit_not", self)

    def cast(self, dtype: DType) -> Val:
        """The value converted to ``dtype`` (itself if it has that type)."""
        return self if dtype == self.dtype else Val(Cast(self.expr, dtype))

    def as_index(self) -> IntExpr:
        """The value as an index (a gather). Raises TypeError unless it is an integer."""
        if not self.dtype.is_integer:
            raise TypeError(f"an index must be an integer, got {self.dtype}")
        if isinstance(self.expr, Index):
            return self.expr.expr
        return of_atom(Dyn(self.expr))


IndexLike: TypeAlias = IntLike | ReduceAxis | Val
ValLike: TypeAlias = IndexLike | float | bool


def index_of(x: IndexLike) -> IntExpr:
    """Anything usable as an index, as an integer expression."""
    if isinstance(x, ReduceAxis):
        return x.index
    if isinstance(x, Val):
        return x.as_index()
    return as_expr(x)


def lift(x: ValLike, dtype: DType) -> Val:
    """``x`` as a value; a number becomes a constant of ``dtype``, an index is converted to it."""
    if isinstance(x, Val):
        return x
    if isinstance(x, ReduceAxis) or (isinstance(x, IntExpr) and not x.is_const):
        return index_value(x, dtype) if dtype.is_integer else index_value(x).cast(dtype)
    if isinstance(x, IntExpr):
        x = x.const
    if dtype.kind == "f":
        return Val(Const(float(x) if x == x else math.nan, dtype))
    if dtype.is_integer and x != int(x):
        raise TypeError(f"{x}: expected a whole number, as the other operand is {dtype}")
    return Val(Const(bool(x) if dtype.kind == "b" else int(x), dtype))


def op(name: str, *args: ValLike) -> Val:
    """Apply a scalar operation by name. Raises TypeError for a name that is not known, mixed element types or a wrong
    number of arguments."""
    info = SCALAR_OPS.get(name)
    if info is None:
        known = f"there are {', '.join(SCALAR_OPS)}"
        raise TypeError(f"op: no scalar operation {name!r}{did_you_mean(name, SCALAR_OPS)}; {known}")
    like = _type_of(args)
    vals = [lift(a, like) for a in args]
    if len(vals) != info.arity:
        raise TypeError(f"{name}: expected {info.arity} arguments, got {len(vals)}")
    own = vals[0].dtype
    if any([v.dtype != own for v in vals[1:]]):
        raise TypeError(f"{name}: element types differ: {', '.join(str(v.dtype) for v in vals)}")
    if not info.accepts(own):
        raise TypeError(f"{name}: element type {own} is not accepted")
    return Val(Op(name, tuple([v.expr for v in vals]), info.result_type(own)))


def constant(value: float | bool, dtype: DType) -> Val:
    """A literal."""
    return lift(value, dtype)


def index_value(i: IndexLike, dtype: DType = dtypes.int64) -> Val:
    """An index expression as a value of ``dtype``."""
    return Val(Index(index_of(i), dtype))


def _type_of(args: Sequence[ValLike]) -> DType:
    """The element type that operands without one take: that of the first value, else that of indices."""
    for a in args:
        if isinstance(a, Val):
            return a.dtype
    indices = any(isinstance(a, (IntExpr, ReduceAxis)) for a in args)
    return dtypes.int64 if indices and not any(isinstance(a, float) for a in args) else dtypes.float32


def select(condition: Val, then: ValLike, otherwise: ValLike) -> Val:
    """``then`` where ``condition`` else ``otherwise``; the branch not taken is not evaluated."""
    if not isinstance(condition, Val):
        raise TypeError(f"select: the condition must be a value of a formula, got {condition!r}")
    like = _type_of((then, otherwise))
    a, b = lift(then, like), lift(otherwise, like)
    if a.dtype != b.dtype:
        raise TypeError(f"select: element types differ: {a.dtype}, {b.dtype}")
    return Val(Select(condition.expr, a.expr, b.expr))


def in_range(i: IndexLike, low: IntLike, high: IntLike) -> Val:
    """True where ``low <= i < high``."""
    v = index_value(i)
    return (v >= index_value(low)) & (v < index_value(high))


where = select


def equal(a: ValLike, b: ValLike) -> Val:
    """``a == b`` for values and indices."""
    return op("equal", a, b)


def not_equal(a: ValLike, b: ValLike) -> Val:
    """``a != b`` for values and indices."""
    return op("not_equal", a, b)


def less(a: ValLike, b: ValLike) -> Val:
    """``a < b`` for values and indices."""
    return op("less", a, b)


def less_equal(a: ValLike, b: ValLike) -> Val:
    """``a <= b`` for values and indices."""
    return op("less_equal", a, b)


def greater(a: ValLike, b: ValLike) -> Val:
    """``a > b`` for values and indices."""
    return op("greater", a, b)


def greater_equal(a: ValLike, b: ValLike) -> Val:
    """``a >= b`` for values and indices."""
    return op("greater_equal", a, b)


@overload
def maximum(first: IntLike | ReduceAxis, *others: IntLike | ReduceAxis) -> IntExpr: ...  # type: ignore[overload-overlap]
@overload
def maximum(first: ValLike, *others: ValLike) -> Val: ...
def maximum(first: ValLike, *others: ValLike) -> Val | IntExpr:
    """The greatest argument: an index if all are, else a value."""
    return _extremum("max", minmax.maximum, (first, *others))


@overload
def minimum(first: IntLike | ReduceAxis, *others: IntLike | ReduceAxis) -> IntExpr: ...  # type: ignore[overload-overlap]
@overload
def minimum(first: ValLike, *others: ValLike) -> Val: ...
def minimum(first: ValLike, *others: ValLike) -> Val | IntExpr:
    """The least argument: an index if all are, else a value."""
    return _extremum("min", minmax.minimum, (first, *others))


def _extremum(name: str, of_indices: Callable[..., IntExpr], args: tuple[ValLike, ...]) -> Val | IntExpr:
    if not any(isinstance(a, (Val, float)) for a in args):
        return of_indices(*map(index_of, args))  # type: ignore[arg-type]  # the rest is
    like = _type_of(args)
    return functools.reduce(lambda a, b: op(name, a, b), (lift(a, like) for a in args))
