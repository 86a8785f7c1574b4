"""Layer normalization spelled out with means, as exporters before opset 17 write it."""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, int_attr


def _centred(mean: str) -> P:
    return P("Sub", "x", P("ReduceMean", "x", C(f"{mean}_axes"), at=mean))


def _core(square: P, spelling: str) -> P:
    spread = P("Sqrt", P("Add", P("ReduceMean", square, C("var_axes"), at="var"), C("eps")))
    if spelling == "div":
        return P("Div", _centred("mean"), spread)
    return P("Mul", _centred("mean"), P("Reciprocal", spread))


_SQUARES = (
    ("pow", P("Pow", _centred("mean2"), C("two", 2.0))),
    ("mul", P("Mul", _centred("mean2"), _centred("mean3"))),
)


def _last_axis(m: Match) -> str | None:
    shape = m.shape("x")
    if shape is None or not m.dtype("x").is_float:
        return NOT_HERE
    rank = len(shape)
    if shape[-1].value() is None:
        return f"the last dim {shape[-1]} is not a number"
    for key in ("mean", "mean2", "mean3", "var"):
        if key not in m.nodes:
            continue
        axes = [int(a) % rank for a in m.array(f"{key}_axes").reshape(-1)]
        if axes != [rank - 1]:
            return f"the mean runs over axes {axes}, not the last one only"
        if int_attr(m.node(key), "keepdims", 1) != 1:
            return "a mean does not keep its axis"
    if m.constant("eps").size != 1:
        return "epsilon is not one number"
    return None


def _normalize(m: Match) -> str:
    width = (m.shape("x") or ())[-1].const
    ones = m.const(np.ones(width), like="x")
    return m.op("LayerNormalization", m["x"], ones, axis=-1, epsilon=float(m.array("eps").reshape(-1)[0]))


def _row(m: Match) -> str | None:
    """Guard: ``c`` is one number per element of the normalized axis."""
    shape, ln = m.shape("x"), m.node("ln")
    if shape is None or int_attr(ln, "axis", -1) % len(shape) != len(shape) - 1:
        return NOT_HERE
    c = m.constant("c")
    if c.size != shape[-1].value() or c.shape[-1:] != (c.size,) or m.shape("x") != m.out_shape:
        return NOT_HERE
    return None


def _attrs(m: Match) -> dict[str, object]:
    return dict(m.node("ln").attrs)


def _with_scale(m: Match) -> str:
    scale = m.const(m.array("c").reshape(-1) * m.array("s"), like="s")
    return m.op("LayerNormalization", m["x"], scale, **_attrs(m))  # type: ignore[arg-type]


def _with_bias(m: Match) -> str:
    bias = m.const(m.array("c").reshape(-1), like="s")
    return m.op("LayerNormalization", m["x"], m["s"], bias, **_attrs(m))  # type: ignore[arg-type]


RULES: tuple[Rule, ...] = (
    *(
        Rule(
            f"layer_norm_{spelling}_{square}",
            "(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) --> LayerNormalization(x, ones)",
            _core(pattern, spelling),
            _normalize,
            _last_axis,
            Exactness.REASSOCIATING,
            exclusive=True,
        )
        for spelling in ("div", "mul")
        for square, pattern in _SQUARES
    ),
    Rule(
        "layer_norm_scale",
        "Mul(LayerNormalization(x, s), c) --> LayerNormalization(x, s*c)",
        P("Mul", P("LayerNormalization", "x", C("s", 1.0), at="ln"), C("c")),
        _with_scale,
        _row,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "layer_norm_bias",
        "Add(LayerNormalization(x, s), c) --> LayerNormalization(x, s, c)",
        P("Add", P("LayerNormalization", "x", C("s"), at="ln"), C("c")),
        _with_bias,
        _row,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
