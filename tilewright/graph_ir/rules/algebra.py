"""Arithmetic and logic: strength reduction, adjacent constants merged, casts joined."""

from __future__ import annotations

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule

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
    """Guard: the constants are small together, and the inner node goes, since all that read it merge with it."""
    if not m.dtype("x").is_float:
        return NOT_HERE
    inner, ed = m.node("in").outputs[0], m.editor
    if ed.is_output(inner) or not all(_has_constant(ed, u, m.root.op) for u in ed.users(inner)):
        return f"'{inner}' is also used elsewhere"
    a, b = m.constant("a"), m.constant("b")
    if max(a.size, b.size) > _SMALL or np.broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return "the merged constant would be larger than both"
    return None


def _has_constant(ed: GraphEditor, node: Node, op: str) -> bool:
    return node.op == op and not node.domain and any(ed.constant(i) is not None for i in node.inputs)


def _merged(op: str, m: Match) -> str:
    a, b = m.array("a").astype(np.float64), m.array("b").astype(np.float64)
    return m.op(op, m["x"], m.const(a * b if op == "Mul" else a + b, like="a"))


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
        P("Mul", P("Mul", "x", C("a"), at="in"), C("b")),
        lambda m: _merged("Mul", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "add_add",
        "Add(Add(x, a), b) --> Add(x, a+b)",
        P("Add", P("Add", "x", C("a"), at="in"), C("b")),
        lambda m: _merged("Add", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
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
