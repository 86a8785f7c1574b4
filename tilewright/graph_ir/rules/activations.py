"""Activations spelled out by exporters, recognised as the one operator that they are."""

from __future__ import annotations

import math

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, Operand, P, Rule

_ROOT2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 / math.pi)


def _number(name: str, value: float) -> C:
    return C(name, value, tolerance=2e-3)


def _shape_kept(m: Match) -> str | None:
    if m.shape("x") is None or m.shape("x") != m.out_shape or not m.dtype("x").is_float:
        return NOT_HERE
    return None


def _gelu(name: str, gate: Operand, approximate: str, equation: str) -> Rule:
    """``0.5 * x * gate``, with its factors in any order."""
    half, two = C("half", 0.5), C("two", 2.0)
    return Rule(
        name,
        equation,
        Either(
            P("Mul", P("Mul", "x", gate), half),
            P("Mul", "x", P("Mul", gate, half)),
            P("Mul", P("Mul", "x", half), gate),
            P("Mul", "x", P("Div", gate, two)),
            P("Mul", P("Div", "x", two), gate),
            P("Div", P("Mul", "x", gate), two),
        ),
        lambda m: m.op("Gelu", m["x"], approximate=approximate),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    )


def _one_plus(x: Operand, one: str = "one") -> P:
    return P("Add", x, C(one, 1.0))


_ERF_GATE = _one_plus(
    P("Erf", Either(P("Div", "x", _number("root2", _ROOT2)), P("Mul", "x", _number("inv_root2", 1.0 / _ROOT2))))
)
_SQUARE = Either(P("Mul", "x", "x"), P("Pow", "x", C("square", 2.0)))
_CUBE = Either(P("Pow", "x", C("three", 3.0)), P("Mul", "x", _SQUARE))
_C, _K = _number("c", 0.044715), _number("k", _ROOT_2_PI)
_GROWTH = _one_plus(Either(P("Mul", _SQUARE, _C), P("Mul", "x", P("Mul", "x", _C))), "unit")
_TANH_GATE = _one_plus(
    P(
        "Tanh",
        Either(
            P("Mul", P("Add", "x", Either(P("Mul", _CUBE, _C), P("Mul", "x", P("Mul", _SQUARE, _C)))), _K),
            P("Mul", P("Mul", "x", _GROWTH), _K),
            P("Mul", P("Mul", "x", _K), _GROWTH),
        ),
    )
)
RULES: tuple[Rule, ...] = (
    _gelu("gelu_erf", _ERF_GATE, "none", "0.5 * x * (1 + Erf(x / sqrt(2))) --> Gelu(x)"),
    _gelu(
        "gelu_tanh",
        _TANH_GATE,
        "tanh",
        "0.5 * x * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3))) --> Gelu(x, approximate=tanh)",
    ),
    Rule(
        "hard_swish",
        "Mul(x, HardSigmoid(x, 1/6, 0.5)) --> HardSwish(x)",
        P("Mul", "x", P("HardSigmoid", "x", at="gate")),
        lambda m: m.op("HardSwish", m["x"]),
        lambda m: _shape_kept(m) if _is_sixth(m) else NOT_HERE,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)


def _is_sixth(m: Match) -> bool:
    alpha, beta = m.node("gate").attr("alpha", 0.2), m.node("gate").attr("beta", 0.5)
    return isinstance(alpha, int | float) and abs(alpha - 1 / 6) < 1e-6 and beta == 0.5
