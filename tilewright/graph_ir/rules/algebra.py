"""Arithmetic and logic: strength reduction, adjacent constants merged, casts joined, negated comparisons."""

from __future__ import annotations

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, fixed_shape

_NEGATED = {
    "Less": "GreaterOrEqual",
    "LessOrEqual": "Greater",
    "Greater": "LessOrEqual",
    "GreaterOrEqual": "Less",
}
_SMALL = 1 << 16


def _same_dtype(m: Match) -> str | None:
    return None if m.editor.value(m.output).dtype == m.dtype("x") else NOT_HERE


def _float_same(m: Match) -> str | None:
    if not m.dtype("x").is_float or m.shape("x") is None or m.shape("x") != m.out_shape:
        return NOT_HERE
    return _same_dtype(m)


def _power_of_two(m: Match) -> str | None:
    """Guard: every divisor is a power of two whose inverse is a normal number, so that the product is exact."""
    c = m.constant("c")
    if not m.dtype("x").is_float or c.size == 0 or c.size > _SMALL or m.dtype("x").bits < 16:
        return NOT_HERE
    mantissa, exponent = np.frexp(c.array.astype(np.float64))
    if not bool(np.all(np.abs(mantissa) == 0.5)):
        return "the divisor is not a power of two, so multiplying by its inverse would round differently"
    if bool(np.any(np.abs(exponent) > 14)):
        return "the divisor's inverse could leave the range of normal numbers"
    return None


def _inverse(m: Match) -> str:
    return m.op("Mul", m["x"], m.const(1.0 / m.array("c").astype(np.float64), like="c"))


def is_lossless(source: DType, target: DType) -> bool:
    """True if every number of type ``source`` is one of type ``target``."""
    if source == target:
        return True
    if source.kind == "b":
        return target.kind in "iuf" and target.bits >= 8
    if source.is_integer and target.is_integer:
        if source.kind == target.kind:
            return source.bits <= target.bits
        return source.kind == "u" and source.bits < target.bits
    mantissa = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    if source.is_integer and target.name in mantissa:
        return source.bits <= mantissa[target.name] and target.name != "float16"
    if source.is_float and target.name in ("float32", "float64"):
        return source.bits < target.bits
    return False


def _casts(m: Match) -> str | None:
    first, middle = m.dtype("x"), m.editor.value(m.root.inputs[0]).dtype
    last = m.editor.value(m.output).dtype
    if "s" in (first.kind, middle.kind, last.kind):
        return NOT_HERE
    if not is_lossless(first, middle):
        return f"{first} -> {middle} loses information"
    return None


def _merge_scalars(m: Match) -> str | None:
    if not m.dtype("x").is_float:
        return NOT_HERE
    a, b = m.constant("a"), m.constant("b")
    if max(a.size, b.size) > _SMALL or np.broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return "the merged constant would be larger than both"
    return None


def _merged(op: str, m: Match) -> str:
    a, b = m.array("a").astype(np.float64), m.array("b").astype(np.float64)
    return m.op(op, m["x"], m.const(a * b if op == "Mul" else a + b, like="a"))


def _integers(m: Match) -> str | None:
    if m.dtype("x").is_float:
        return "with NaN, not (a < b) is true and a >= b is false"
    return None


def _bool_to_int(m: Match) -> str | None:
    return None if m.dtype("x").kind == "b" and _fits(m) else NOT_HERE


def _fits(m: Match) -> bool:
    return fixed_shape(m.shape("zero")) is not None and m.shape("x") == m.out_shape


def _cast_once(m: Match) -> Node | str:
    return m.op("Cast", m["x"], to=m.editor.value(m.output).dtype)


RULES: tuple[Rule, ...] = (
    Rule(
        "div_power_of_two",
        "Div(x, 2^k) --> Mul(x, 2^-k)",
        P("Div", "x", C("c")),
        _inverse,
        _power_of_two,
    ),
    Rule(
        "cast_cast",
        "Cast(Cast(x, a), b) --> Cast(x, b) when a holds every value of x",
        P("Cast", P("Cast", "x")),
        _cast_once,
        _casts,
    ),
    Rule(
        "mul_mul",
        "Mul(Mul(x, a), b) --> Mul(x, a*b)",
        P("Mul", P("Mul", "x", C("a")), C("b")),
        lambda m: _merged("Mul", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "add_add",
        "Add(Add(x, a), b) --> Add(x, a+b)",
        P("Add", P("Add", "x", C("a")), C("b")),
        lambda m: _merged("Add", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "not_comparison",
        "Not(Less(x, y)) --> GreaterOrEqual(x, y), and the other comparisons, for integers",
        P("Not", P(tuple(_NEGATED), "x", "y", at="cmp")),
        lambda m: m.op(_NEGATED[m.node("cmp").op], m["x"], m["y"]),
        _integers,
        exclusive=True,
    ),
    Rule(
        "bool_equals_zero",
        "Equal(Cast(x: bool), 0) --> Not(x)",
        P("Equal", P("Cast", "x"), C("zero", 0.0)),
        lambda m: m.op("Not", m["x"]),
        _bool_to_int,
    ),
)

STRENGTH: tuple[Rule, ...] = (
    Rule(
        "pow_two",
        "Pow(x, 2) --> Mul(x, x)",
        P("Pow", "x", C("two", 2.0)),
        lambda m: m.op("Mul", m["x"], m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_three",
        "Pow(x, 3) --> Mul(Mul(x, x), x)",
        P("Pow", "x", C("three", 3.0)),
        lambda m: m.op("Mul", m.op("Mul", m["x"], m["x"]), m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_half",
        "Pow(x, 0.5) --> Sqrt(x); differs at -inf only",
        P("Pow", "x", C("half", 0.5)),
        lambda m: m.op("Sqrt", m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
)
