"""Scaled dot-product attention spelled out: two products around a Softmax become one operator."""

from __future__ import annotations

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, P, Past, Rule, int_attr

_SCORES = P("MatMul", "q", "kt", at="scores")
_SCALED = Either(_SCORES, P("Mul", _SCORES, C("s")), P("Div", _SCORES, C("s"), at="divided"))
_SOFTMAX = P("Softmax", Past(("Cast",), Either(P("Add", _SCALED, "mask"), _SCALED)), at="softmax")
_GUARDED = P("Where", P("IsNaN", _SOFTMAX), C("zero", 0.0), "weights", at="guard")
"""Weights with 0 for NaN, as exporters write it for rows that are masked everywhere."""


def _is_attention(m: Match) -> str | None:
    q, v, scores = m.shape("q"), m.shape("v"), m.editor.value(m.node("softmax").inputs[0])
    if q is None or v is None or m.shape("kt") is None or len(q) < 3 or len(m.shape("kt") or ()) != len(q):
        return NOT_HERE
    if (rows := q[-2].value()) is not None and rows <= m.editor.ctx.costs.unpacked_rows:
        return f"{rows} queries are too few for a tile"
    if "weights" in m.names:
        guarded = m.editor.value(m.node("guard").outputs[0])
        if m["weights"] != m.node("softmax").outputs[0] or guarded.shape != scores.shape:
            return NOT_HERE
    if int_attr(m.node("softmax"), "axis", -1) % len(scores.shape) != len(scores.shape) - 1:
        return "the Softmax is not over the last axis"
    if (reason := _narrowed(m)) is not None:
        return reason
    if "s" in m.names and m.constant("s").size != 1:
        return "the scale is not one number"
    if scores.shape != m.editor.value(m.node("scores").outputs[0]).shape:
        return "the mask makes the scores larger"
    return None


def _narrowed(m: Match) -> str | None:
    """Why the Casts around the Softmax count, which the fused operator leaves out: it computes in float32 or wider."""
    for n in m.inner:
        if n.op == "Cast":
            to = m.editor.value(n.outputs[0]).dtype
            if not to.is_float or to.bits < m.dtype("q").bits:
                return f"the weights are computed as {to}, the queries are {m.dtype('q')}"
    return None


def _fuse(m: Match) -> str:
    scale = 1.0
    if "s" in m.names:
        s = float(m.array("s").reshape(-1)[0])
        scale = 1.0 / s if "divided" in m.nodes else s
    rank = len(m.shape("kt") or ())
    k = m.op("Transpose", m["kt"], perm=(*range(rank - 2), rank - 1, rank - 2))
    mask = (m["mask"],) if "mask" in m.names else ()
    guarded = {"nan_rows_to_zero": 1} if "weights" in m.names else {}
    return m.op("FusedAttention", m["q"], k, m["v"], *mask, scale=scale, causal=0, **guarded)


RULES: tuple[Rule, ...] = (
    Rule(
        "attention",
        "MatMul(Softmax(MatMul(q, kt) * s + mask), v) --> FusedAttention(q, Transpose(kt), v, mask); without s or mask,"
        " and with weights w as Where(IsNaN(w), 0, w)",
        P("MatMul", Past(("Cast",), Either(_SOFTMAX, _GUARDED)), "v"),
        _fuse,
        _is_attention,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
