"""Logic: negations go where they cost nothing, comparisons of a cast condition become the condition.

A negation is free where it meets another one, or a comparison that has an opposite. Of floats it has none that is right
for NaN: neither ``a < b`` nor ``a >= b`` holds then. Where no operand can be NaN, that does not matter; elsewhere
``not_comparison_of_floats`` has to be enabled by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, P, Rule
from tilewright.graph_ir.rules.noops import can_pass_through

_OPPOSITE = {
    "Less": "GreaterOrEqual",
    "LessOrEqual": "Greater",
    "Greater": "LessOrEqual",
    "GreaterOrEqual": "Less",
}
_DUAL = {"And": "Or", "Or": "And"}
_KEEP_NUMBERS = (
    "Abs",
    "Neg",
    "Ceil",
    "Floor",
    "Round",
    "Relu",
    "Identity",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
)
"""Operators that give NaN for NaN only."""
_DEPTH = 64
_CHECKED = 1 << 14
_NAN = "with NaN, not (a < b) is true and a >= b is false; enable not_comparison_of_floats if there is none"


def _can_be_nan(ed: GraphEditor, name: str, depth: int = 8) -> bool:
    constant, producer = ed.constant(name), ed.producer(name)
    if constant is not None:
        return constant.size > _CHECKED or bool(np.isnan(constant.array.astype(np.float64)).any())
    if producer is None or producer.domain or not depth:
        return True
    if producer.op == "Cast":
        return ed.value(producer.inputs[0]).dtype.kind not in "iub"
    return producer.op not in _KEEP_NUMBERS or _can_be_nan(ed, producer.inputs[0], depth - 1)


def _has_opposite(ed: GraphEditor, node: Node) -> bool:
    """True if the comparison has one for all operands that it can have."""
    if node.op not in _OPPOSITE or node.domain:
        return False
    return not ed.value(node.inputs[0]).dtype.is_float or not any(_can_be_nan(ed, i) for i in node.inputs)


def _opposite(m: Match) -> str | None:
    return None if _has_opposite(m.editor, m.node("cmp")) else _NAN


def _turn(m: Match) -> str:
    return m.op(_OPPOSITE[m.node("cmp").op], m["x"], m["y"])


@dataclass(frozen=True, slots=True)
class _Negation:
    """How to negate a condition: the nodes that are there more in the end, and what makes it."""

    grows: int
    make: Callable[[Match], str]


def _negation(ed: GraphEditor, name: str, depth: int = _DEPTH) -> _Negation:
    """The negation of ``name`` with the fewest nodes. A node that others read stays."""
    node = ed.producer(name)
    only = node is not None and ed.use_count(name) == 1 and not ed.is_output(name)
    plain = _Negation(1, lambda m: m.op("Not", name))
    if node is None or node.domain or not depth:
        return plain
    if node.op == "Not":
        inner = node.inputs[0]
        return _Negation(-1 if only else 0, lambda m: inner)
    if not only:
        return plain
    if _has_opposite(ed, node):
        return _Negation(0, lambda m: m.op(_OPPOSITE[node.op], *node.inputs))
    if node.op in _DUAL:
        dual = _dual(ed, node, depth)
        return dual if dual.grows < plain.grows else plain
    return plain


def _dual(ed: GraphEditor, node: Node, depth: int) -> _Negation:
    """The negation of an And or Or by De Morgan's laws, whose node gives way to its dual."""
    parts = [_negation(ed, i, depth - 1) for i in node.inputs]
    return _Negation(sum(p.grows for p in parts), lambda m: m.op(_DUAL[node.op], *(p.make(m) for p in parts)))


def _chain(m: Match) -> _Negation:
    """What takes the root's place. ``grows`` counts it against the root and what only the root reads."""
    ed = m.editor
    if "chain" in m.nodes:  # Not over And, Or
        dual = _dual(ed, m.node("chain"), _DEPTH)
        return _Negation(dual.grows - 1, dual.make)
    dual = _dual(ed, m.root, _DEPTH)
    return _Negation(dual.grows + 1, lambda m: m.op("Not", dual.make(m)))


def _fewer_nodes(m: Match) -> str | None:
    ed = m.editor
    if "chain" in m.nodes:
        inner = m.node("chain").outputs[0]
        if ed.use_count(inner) != 1:
            return f"'{inner}' is also used elsewhere"
    elif ed.use_count(m.output) == 1 and not ed.is_output(m.output):
        above = ed.users(m.output)[0]
        if above.op in (m.root.op, "Not"):
            return NOT_HERE  # the chain goes on, and is seen from its end
    return None if _chain(m).grows < 0 else NOT_HERE


def _condition(m: Match) -> str | None:
    if m.dtype("x").kind != "b" or m.shape("x") is None or m.shape("x") != m.out_shape:
        return NOT_HERE
    return None


def _itself(m: Match) -> str | None:
    return _condition(m) or can_pass_through(m)


_ZERO, _ONE = C("zero", 0.0), C("one", 1.0)
_CAST = P("Cast", "x")

RULES: tuple[Rule, ...] = (
    Rule(
        "not_comparison",
        "Not(Less(x, y)) --> GreaterOrEqual(x, y), and the other comparisons, where no operand can be NaN",
        P("Not", P(tuple(_OPPOSITE), "x", "y", at="cmp")),
        _turn,
        _opposite,
        exclusive=True,
    ),
    Rule(
        "not_comparison_of_floats",
        "Not(Less(x, y)) --> GreaterOrEqual(x, y), and the other comparisons; with NaN, the one is true and the other"
        " false",
        P("Not", P(tuple(_OPPOSITE), "x", "y", at="cmp")),
        _turn,
        exactness=Exactness.APPROXIMATE,
        exclusive=True,
    ),
    Rule(
        "not_of_chain",
        "Not(Or(Not(a), Not(b), c)) --> And(a, b, Not(c)), and with And, where nodes go",
        P("Not", P(tuple(_DUAL), "x", "y", at="chain")),
        lambda m: _chain(m).make(m),
        _fewer_nodes,
    ),
    Rule(
        "chain_of_nots",
        "And(Not(a), Not(b), Not(c)) --> Not(Or(a, b, c)), and with Or, where nodes go",
        P(tuple(_DUAL), "x", "y"),
        lambda m: _chain(m).make(m),
        _fewer_nodes,
    ),
    Rule(
        "bool_equals_zero",
        "Equal(Cast(x: bool), 0) --> Not(x); also Less(Cast(x), 1), LessOrEqual(Cast(x), 0)",
        Either(P("Equal", _CAST, _ZERO), P("Less", _CAST, _ONE), P("LessOrEqual", _CAST, _ZERO)),
        lambda m: m.op("Not", m["x"]),
        _condition,
    ),
    Rule(
        "bool_equals_one",
        "Equal(Cast(x: bool), 1) --> x; also Greater(Cast(x), 0), GreaterOrEqual(Cast(x), 1)",
        Either(P("Equal", _CAST, _ONE), P("Greater", _CAST, _ZERO), P("GreaterOrEqual", _CAST, _ONE)),
        lambda m: m["x"],
        _itself,
    ),
)
