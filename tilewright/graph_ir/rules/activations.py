"""Activations spelled out by exporters, recognised as the one operator that they are; bounds of one Clip."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph_ir.ir import Node
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
_RAMP = P("Clip", P("Add", "x", C("three", 3.0)), C("low", 0.0), C("high", 6.0))
_SIX, _SIXTH = C("six", 6.0), _number("sixth", 1 / 6)
_SLOPED = P("Mul", "x", C("slope"))


def _slope(m: Match) -> str | None:
    if m.constant("slope").size != 1 or not m.dtype("x").is_float:
        return NOT_HERE
    if m.root.op != "Where" and not 0 < float(m.array("slope").reshape(-1)[0]) < 1:
        return NOT_HERE
    return _shape_kept(m)


def _bounds(m: Match) -> tuple[float, float]:
    """The least and the greatest that the root lets through of what its operand lets through."""
    low, high = -math.inf, math.inf
    for node in (*m.inner, m.root):
        lo, hi = _bounds_of(m, node)
        low, high = min(max(low, lo), hi), min(max(high, lo), hi)
    return low, high


def _bounds_of(m: Match, node: Node) -> tuple[float, float]:
    if node.op == "Relu":
        return 0.0, math.inf
    operands = [None if not i else m.editor.array(i) for i in node.inputs]
    numbers = [None if a is None or a.size != 1 else float(a.reshape(-1)[0]) for a in operands]
    if node.op == "Clip":
        low, high, *_ = (*numbers[1:], None, None)
        return -math.inf if low is None else low, math.inf if high is None else high
    (bound,) = [n for n in numbers if n is not None] or [math.nan]
    return (bound, math.inf) if node.op == "Max" else (-math.inf, bound)


def _clips(m: Match) -> str | None:
    """Guard: all bounds are single numbers."""
    if m.shape("x") is None or m.shape("x") != m.out_shape or not m.dtype("x").is_float or not m.inner:
        return NOT_HERE
    bounds = [i for n in (*m.inner, m.root) if n.op == "Clip" for i in n.inputs[1:] if i]
    bounds += [m.names[key] for key in ("a", "b") if key in m.names]
    if any((c := m.editor.constant(i)) is None or c.size != 1 for i in bounds):
        return "a bound is not one constant number"
    return NOT_HERE if any(math.isnan(b) for b in _bounds(m)) else None


def _one_clip(m: Match) -> str:
    bounds = [m.const(np.array(b), like="x") if math.isfinite(b) else "" for b in _bounds(m)]
    return m.op("Clip", m["x"], *(bounds if bounds[1] else bounds[:1]))


_RELU, _CLIP = P("Relu", "x"), P("Clip", "x", rest=True)
_LEAST, _MOST = P("Max", "x", C("a")), P("Min", "x", C("a"))

RULES: tuple[Rule, ...] = (
    _gelu("gelu_erf", _ERF_GATE, "none", "0.5 * x * (1 + Erf(x / sqrt(2))) --> Gelu(x)"),
    _gelu(
        "gelu_tanh",
        _TANH_GATE,
        "tanh",
        "0.5 * x * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3))) --> Gelu(x, approximate=tanh)",
    ),
    Rule(
        "softplus",
        "Log(1 + Exp(x)) --> Softplus(x)",
        P("Log", _one_plus(P("Exp", "x"))),
        lambda m: m.op("Softplus", m["x"]),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "mish",
        "x * Tanh(Softplus(x)) --> Mish(x)",
        P("Mul", "x", P("Tanh", P("Softplus", "x"))),
        lambda m: m.op("Mish", m["x"]),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "hard_sigmoid",
        "Clip(x + 3, 0, 6) / 6 --> HardSigmoid(x, 1/6, 0.5)",
        Either(P("Div", _RAMP, _SIX), P("Mul", _RAMP, _SIXTH)),
        lambda m: m.op("HardSigmoid", m["x"], alpha=float(np.float32(1 / 6)), beta=0.5),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "hard_swish_of_ramp",
        "x * Clip(x + 3, 0, 6) / 6 --> HardSwish(x)",
        Either(P("Div", P("Mul", "x", _RAMP), _SIX), P("Mul", P("Mul", "x", _RAMP), _SIXTH)),
        lambda m: m.op("HardSwish", m["x"]),
        _shape_kept,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "leaky_relu",
        "Max(x, c*x) --> LeakyRelu(x, c), 0 < c < 1; also Where(x > 0, x, c*x)",
        Either(
            P("Max", "x", _SLOPED), P("Where", P(("Greater", "GreaterOrEqual"), "x", C("bound", 0.0)), "x", _SLOPED)
        ),
        lambda m: m.op("LeakyRelu", m["x"], alpha=float(m.array("slope").reshape(-1)[0])),
        _slope,
        Exactness.REASSOCIATING,
        exclusive=True,
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

CLIPS: tuple[Rule, ...] = (
    Rule(
        "one_clip",
        "Clip(Relu(x), a, b), Relu(Clip(x)), Clip(Clip(x)), Min(Max(x, a), b), Max(Min(x, b), a) --> Clip(x)",
        Either(
            P("Clip", Either(_RELU, _CLIP, _LEAST, _MOST), rest=True),
            P("Relu", Either(_CLIP, _LEAST, _MOST)),
            P("Min", Either(_RELU, _CLIP, _LEAST), C("b")),
            P("Max", Either(_CLIP, _MOST), C("b")),
        ),
        _one_clip,
        _clips,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)


def _is_sixth(m: Match) -> bool:
    alpha, beta = m.node("gate").attr("alpha", 0.2), m.node("gate").attr("beta", 0.5)
    return isinstance(alpha, int | float) and abs(alpha - 1 / 6) < 1e-6 and beta == 0.5
