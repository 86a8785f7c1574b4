"""Arithmetic on quantized numbers without a way through bytes: what one kernel quantizes, clips and dequantizes.

``float32(int32(uint8(clamp(round(x) + z, 0, 255))) - z)`` is ``clamp(round(x), -z, 255 - z)``: an integer that float32
holds exactly stays one. The rules move conversions outwards, over sums and limits with a constant, and limits over
sums, so that conversions meet and cancel. Every value stays what it was, also of NaN and
infinities.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.core import dtypes
from tilewright.core.arith.expr import Atom, IntExpr, of_atom, with_atoms
from tilewright.core.dtypes import DType
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import (
    Block,
    Cast,
    Const,
    Dyn,
    Expr,
    Func,
    Op,
    Stmt,
    map_children,
    map_expr,
    walk_expr,
    walk_index,
)

F32 = dtypes.float32
_EXACT = 1 << 20
"""The largest integers that are treated so: sums of some of them, and of what is rounded, are exact in float32."""

_ROUNDING = ("round", "floor", "ceil", "trunc")


def fold_quantized(func: Func, target: Target) -> Func:
    """``func`` with such values made shorter; itself if it has none."""
    body = _folded(func.body)
    return func if body is func.body else dataclasses.replace(func, body=body)


def _folded(s: Stmt) -> Stmt:
    if not isinstance(s, Block):
        return map_children(s, _folded)
    if not any(isinstance(x, Op) and x.name == "clamp" for x in walk_expr(s.value)):
        return s
    value = simplify_quantized(s.value)
    return s if value == s.value else dataclasses.replace(s, value=value)


def simplify_quantized(e: Expr) -> Expr:
    """``e`` by the rules, innermost values first."""
    e = map_expr(e, simplify_quantized, _in_index)
    if isinstance(e, Cast):
        return _cast(e.value, e.dtype)
    if isinstance(e, Op) and len(e.args) == 2 and (c := _integer(e.args[1])) is not None:
        return _with_constant(e, c)
    return e


def _in_index(i: IntExpr) -> IntExpr:
    return i if next(walk_index(i), None) is None else with_atoms(i, _in_atom)


def _in_atom(a: Atom) -> IntExpr:
    """The conversion to an index stays: that it is one of a byte tells how to look up."""
    if not isinstance(a, Dyn):
        return a.rebuilt(*map(_in_index, a.children()))
    if isinstance(a.value, Cast):
        return of_atom(Dyn(Cast(simplify_quantized(a.value.value), a.value.dtype)))
    return of_atom(Dyn(simplify_quantized(a.value)))


def _cast(value: Expr, to: DType) -> Expr:
    number = _integer(value)
    if number is not None and (to == F32 or to.holds(number, number)):
        return _constant(number, to)
    if isinstance(value, Cast) and value.value.dtype == F32 and value.dtype.is_integer:
        found = _range(value.value)
        if found is not None and value.dtype.holds(*found):
            if to == F32:
                return value.value
            if to.holds(*found):
                return Cast(value.value, to)
    return Cast(value, to)


def _with_constant(e: Op, c: int) -> Expr:
    """A sum, difference or limit of a value and an integer."""
    x = e.args[0]
    if e.name not in ("add", "sub", "max", "min"):
        return e
    if isinstance(x, Cast) and x.value.dtype == F32 and e.dtype.is_integer:
        inner, moved = _range(x.value), None
        if inner is not None and e.dtype.holds(*inner):
            moved = simplify_quantized(Op(e.name, (x.value, _constant(c, F32)), F32))
        after = None if moved is None else _range(moved)
        return e if moved is None or after is None or not e.dtype.holds(*after) else Cast(moved, e.dtype)
    if e.dtype != F32 or (found := _range(x)) is None or not isinstance(x, Op) or x.name != "clamp":
        return e
    low, high = found
    if e.name in ("max", "min"):
        pick = max if e.name == "max" else min
        return _clamp(x.args[0], pick(low, c), pick(high, c))
    by = c if e.name == "add" else -c
    if max(abs(low + by), abs(high + by)) > _EXACT:
        return e
    x = x.args[0]
    if isinstance(x, Op) and x.name == "add" and (own := _integer(x.args[1])) is not None:
        x, more = x.args[0], by + own
    else:
        more = by
    if more or low + by < 0:  # a sum with 0 has no negative zero, nor has what is above or at 0
        x = Op("add", (x, _constant(more, F32)), F32)
    return _clamp(x, low + by, high + by)


def _clamp(x: Expr, low: int, high: int) -> Expr:
    return Op("clamp", (x, _constant(low, F32), _constant(high, F32)), F32)


def _range(e: Expr) -> tuple[int, int] | None:
    """The least and the largest value of a float32 that is always an integer."""
    if not isinstance(e, Op) or e.name != "clamp" or e.dtype != F32:
        return None
    low, high = _integer(e.args[1]), _integer(e.args[2])
    x = e.args[0]
    if isinstance(x, Op) and x.name == "add" and _integer(x.args[1]) is not None:
        x = x.args[0]
    return (low, high) if low is not None and high is not None and low <= high and _is_rounded(x) else None


def _is_rounded(e: Expr) -> bool:
    return isinstance(e, Op) and e.name in _ROUNDING and e.dtype == F32


def _integer(e: Expr) -> int | None:
    """The value of a constant that is a small integer."""
    if not isinstance(e, Const) or isinstance(e.value, bool) or not math.isfinite(e.value):
        return None
    return int(e.value) if e.value == int(e.value) and abs(e.value) <= _EXACT else None


def _constant(value: int, dtype: DType) -> Const:
    return Const(float(value) if dtype.kind == "f" else value, dtype)
