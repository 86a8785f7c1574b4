"""Blocks and stores made ready for emission: axes replaced by loop expressions, indices linearised, conditions decided.

The result of :meth:`Flattener.store` is a :class:`FlatStore`: one element offset for the store and, in its value,
one for each load (``Load.indices`` has length 1). Equal subexpressions are the same object, so that emission
computes each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.core import dtypes
from tilewright.core.arith.bounds import Ranges, is_nonneg, simplify
from tilewright.core.arith.expr import ZERO, IntExpr, IntLike, var
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Block, Cast, Const, Expr, Index, Load, Op, Select, Store

_TRUE = Const(True, dtypes.bool_)
_FALSE = Const(False, dtypes.bool_)


@dataclass(slots=True)
class BufferInfo:
    """Where a buffer is. ``strides`` in elements; ``private``: the vectorized loop variable in whose body it is
    allocated (each lane has its own copy, lanes innermost); ``capacity``: elements that exist, None if not known
    here."""

    name: str
    dtype: DType
    pointer: str
    strides: tuple[IntExpr, ...]
    local: bool = False
    private: str | None = None
    lanes: int = 1
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class FlatStore:
    buffer: str
    offset: IntExpr
    value: Expr


class Flattener:
    """Flattens the statements of one function. ``buffers`` and ``ranges`` are shared with the emitter and grow as it
    descends; every name is unique in a function, so results stay valid and are kept by statement."""

    def __init__(self, buffers: Mapping[str, BufferInfo], ranges: Ranges) -> None:
        self.buffers = buffers
        self.ranges = ranges
        self._interned: dict[tuple[Any, ...], Expr] = {}
        self._stores: dict[int, tuple[object, FlatStore]] = {}
        self._values: dict[Expr, Expr] = {}
        self._offsets: dict[tuple[str, tuple[IntExpr, ...]], IntExpr] = {}

    def store(self, s: Block | Store) -> FlatStore:
        """The flat form of a statement that writes."""
        known = self._stores.get(id(s))
        if known is not None:
            return known[1]
        if isinstance(s, Store):
            flat = FlatStore(s.buffer, self.offset(s.buffer, s.indices), self.flat(s.value, {}))
        else:
            flat = self._block(s)
        self._stores[id(s)] = (s, flat)
        return flat

    def value(self, e: Expr) -> Expr:
        """The flat form of a value outside a block (a guard's condition, a value inside an index)."""
        if e not in self._values:
            self._values[e] = self.flat(e, {})
        return self._values[e]

    def offset(self, buffer: str, indices: tuple[IntExpr, ...]) -> IntExpr:
        """The element offset of ``buffer[indices]``."""
        key = (buffer, indices)
        if key in self._offsets:
            return self._offsets[key]
        if buffer not in self.buffers:
            raise InternalError(f"codegen: buffer {buffer} is not allocated here")
        info = self.buffers[buffer]
        total = ZERO
        for i, s in zip(indices, info.strides, strict=True):
            total = total + i * s
        total = simplify(total, self.ranges)
        if info.private is not None:
            total = total * info.lanes + var(info.private)
        self._offsets[key] = total
        return total

    def _block(self, b: Block) -> FlatStore:
        env = {a.name: simplify(e, self.ranges) for a, e in zip(b.axes, b.bindings, strict=True)}
        offset = self.offset(b.buffer, tuple(i.substitute(env) for i in b.indices))
        value = self.flat(b.value, env)
        if b.init is not None:
            first: Expr = _TRUE
            for a in b.axes:
                if a.kind == "reduce":
                    first = self._and(first, self._compare("equal", env[a.name], ZERO))
            target = self._intern(Load(b.buffer, (offset,), value.dtype))
            start = self.flat(b.init, env)
            value = self._replace(value, target, self._select(first, start, target), {})
        return FlatStore(b.buffer, offset, value)

    # -- values --------------------------------------------------------------------------------------------------
    def flat(self, e: Expr, env: Mapping[str, IntLike]) -> Expr:
        """``e`` with ``env`` substituted, indices flat, and conditions that the ranges decide removed."""
        if isinstance(e, Const):
            return self._intern(e)
        if isinstance(e, Load):
            indices = tuple(i.substitute(env) for i in e.indices)
            return self._intern(Load(e.buffer, (self.offset(e.buffer, indices),), e.dtype))
        if isinstance(e, Index):
            return self._intern(Index(simplify(e.expr.substitute(env), self.ranges), e.dtype))
        if isinstance(e, Cast):
            v = self.flat(e.value, env)
            if v.dtype == e.dtype:
                return v
            if isinstance(v, Index) and e.dtype.name in ("int64", "int32"):
                return self._intern(Index(v.expr, e.dtype))
            return self._intern(Cast(v, e.dtype))
        if isinstance(e, Select):
            condition = self.flat(e.condition, env)
            if isinstance(condition, Const):
                return self.flat(e.then if condition.value else e.otherwise, env)
            return self._select(condition, self.flat(e.then, env), self.flat(e.otherwise, env))
        args = tuple(self.flat(a, env) for a in e.args)
        if len(args) == 2 and isinstance(args[0], Index) and isinstance(args[1], Index) and e.name in _DIFFERENCE:
            return self._compare(e.name, args[0].expr, args[1].expr, args)
        if len(args) == 2 and e.name in _DIFFERENCE and (pair := _index_and_const(args)) is not None:
            return self._compare(e.name, pair[0], pair[1], args)
        if e.name == "logical_and":
            return self._and(*args)
        if e.name == "logical_or" and (args[0] in (_TRUE, _FALSE) or args[1] in (_TRUE, _FALSE)):
            a, b = args if args[0] in (_TRUE, _FALSE) else (args[1], args[0])
            return a if a == _TRUE else b
        if e.name == "logical_not" and args[0] in (_TRUE, _FALSE):
            return self._intern(_FALSE if args[0] == _TRUE else _TRUE)
        return self._intern(Op(e.name, args, e.dtype))

    def _intern(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            key: tuple[Any, ...] = ("c", repr(e.value), e.dtype)
        elif isinstance(e, Load):
            key = ("l", e.buffer, e.indices)
        elif isinstance(e, Index):
            key = ("i", e.expr, e.dtype)
        elif isinstance(e, Cast):
            key = ("t", id(e.value), e.dtype)
        elif isinstance(e, Select):
            key = ("s", id(e.condition), id(e.then), id(e.otherwise))
        else:
            key = ("o", e.name, *map(id, e.args))
        return self._interned.setdefault(key, e)

    def _select(self, condition: Expr, then: Expr, otherwise: Expr) -> Expr:
        if isinstance(condition, Const):
            return then if condition.value else otherwise
        return then if then is otherwise else self._intern(Select(condition, then, otherwise))

    def _and(self, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Const):
            return b if a.value else self._intern(_FALSE)
        if isinstance(b, Const):
            return a if b.value else self._intern(_FALSE)
        return self._intern(Op("logical_and", (a, b), dtypes.bool_))

    def _compare(self, name: str, a: IntExpr, b: IntExpr, args: tuple[Expr, ...] | None = None) -> Expr:
        """The comparison of two indices, as a constant where the ranges decide it."""
        true_if, false_if = _DIFFERENCE[name]
        if all(is_nonneg(f(a, b), self.ranges) for f in true_if):
            return self._intern(_TRUE)
        if any(is_nonneg(f(a, b), self.ranges) for f in false_if):
            return self._intern(_FALSE)
        if args is None:
            args = (self._intern(Index(a, dtypes.int64)), self._intern(Index(b, dtypes.int64)))
        return self._intern(Op(name, args, dtypes.bool_))

    def _replace(self, e: Expr, old: Expr, new: Expr, done: dict[int, Expr]) -> Expr:
        if e is old:
            return new
        if id(e) in done:
            return done[id(e)]
        out = e
        if isinstance(e, Cast):
            out = self._intern(Cast(self._replace(e.value, old, new, done), e.dtype))
        elif isinstance(e, Op):
            out = self._intern(Op(e.name, tuple(self._replace(a, old, new, done) for a in e.args), e.dtype))
        elif isinstance(e, Select):
            parts = [self._replace(x, old, new, done) for x in (e.condition, e.then, e.otherwise)]
            out = self._intern(Select(parts[0], parts[1], parts[2]))
        done[id(e)] = out
        return out


def _index_and_const(args: tuple[Expr, ...]) -> tuple[IntExpr, IntExpr] | None:
    """Two operands of which one is an index and the other an integer literal, as index expressions."""
    a, b = args
    if isinstance(a, Index) and isinstance(b, Const) and b.dtype.is_integer:
        return a.expr, ZERO + int(b.value)
    if isinstance(b, Index) and isinstance(a, Const) and a.dtype.is_integer:
        return ZERO + int(a.value), b.expr
    return None


# differences that are all >= 0 when the comparison holds, and of which one is >= 0 only when it does not
_DIFFERENCE: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "less": ((lambda a, b: b - a - 1,), (lambda a, b: a - b,)),
    "less_equal": ((lambda a, b: b - a,), (lambda a, b: a - b - 1,)),
    "greater": ((lambda a, b: a - b - 1,), (lambda a, b: b - a,)),
    "greater_equal": ((lambda a, b: a - b,), (lambda a, b: b - a - 1,)),
    "equal": ((lambda a, b: a - b, lambda a, b: b - a), (lambda a, b: a - b - 1, lambda a, b: b - a - 1)),
    "not_equal": ((lambda a, b: (a - b) * (a - b) - 1,), ()),
}
