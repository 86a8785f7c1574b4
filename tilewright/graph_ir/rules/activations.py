"""Activations spelled out by exporters, recognised as the one operator that they are."""

from __future__ import annotations

import math

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, Operand, P, Rule

_ROOT2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 / math.pi)


def _number(name: str, value: float) -> C:
    return C(name, value, tolerance=2e-3)


def _shape_kept(m: Match) -> str | None:
    if m.shape("x") is None or m.shape("x") != m.out_shape or not m.dtype("x").is_float:
        return NOT_HERE
    return None


def _gelu(name: str, pattern: P, approximate: str, equation: str) -> Rule:
    return Rule(
        name,
        equation,
        pattern,
        lambda m: m.op("Gelu", m["x"], approximate=approximate),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    )


def _spellings(stem: str, gate: Operand, approximate: str, equation: str) -> tuple[Rule, ...]:
    """The ways to write ``0.5 * x * gate``."""
    half = C("half", 0.5)
    forms = (
        P("Mul", P("Mul", "x", gate), half),
        P("Mul", "x", P("Mul", gate, half)),
        P("Mul", P("Mul", "x", half), gate),
        P("Div", P("Mul", "x", gate), C("two", 2.0)),
    )
    return tuple(_gelu(f"{stem}_{k}", f, approximate, equation) for k, f in enumerate(forms))


def _erf_gates() -> tuple[P, ...]:
    inside = (P("Div", "x", _number("root2", _ROOT2)), P("Mul", "x", _number("inv_root2", 1.0 / _ROOT2)))
    return tuple(P("Add", P("Erf", i), C("one", 1.0)) for i in inside)


def _tanh_gates() -> tuple[P, ...]:
    cubes = (
        P("Pow", "x", C("three", 3.0)),
        P("Mul", "x", P("Mul", "x", "x")),
        P("Mul", P("Mul", "x", "x"), "x"),
    )
    out = []
    for cube in cubes:
        inner = P("Add", "x", P("Mul", cube, _number("c", 0.044715)))
        out.append(P("Add", P("Tanh", P("Mul", inner, _number("k", _ROOT_2_PI))), C("one", 1.0)))
    return tuple(out)


RULES: tuple[Rule, ...] = (
    *(
        r
        for k, gate in enumerate(_erf_gates())
        for r in _spellings(f"gelu_erf_{k}", gate, "none", "0.5 * x * (1 + Erf(x / sqrt(2))) --> Gelu(x)")
    ),
    *(
        r
        for k, gate in enumerate(_tanh_gates())
        for r in _spellings(
            f"gelu_tanh_{k}",
            gate,
            "tanh",
            "0.5 * x * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3))) --> Gelu(x, approximate=tanh)",
        )
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
