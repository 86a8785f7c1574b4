"""Scaled dot-product attention spelled out: two products around a Softmax become one operator."""

from __future__ import annotations

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, int_attr

_SCORES = P("MatMul", "q", "kt", at="scores")
_SCALED = (
    ("plain", _SCORES),
    ("mul", P("Mul", _SCORES, C("s"))),
    ("div", P("Div", _SCORES, C("s"))),
)


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
    if "s" in m.names and m.constant("s").size != 1:
        return "the scale is not one number"
    if scores.shape != m.editor.value(m.node("scores").outputs[0]).shape:
        return "the mask makes the scores larger"
    return None


def _fuse(m: Match) -> str:
    scale = 1.0
    if "s" in m.names:
        s = float(m.array("s").reshape(-1)[0])
        scale = 1.0 / s if any(n.op == "Div" for n in m.inner) else s
    rank = len(m.shape("kt") or ())
    k = m.op("Transpose", m["kt"], perm=(*range(rank - 2), rank - 1, rank - 2))
    mask = (m["mask"],) if "mask" in m.names else ()
    guarded = {"nan_rows_to_zero": 1} if "weights" in m.names else {}
    return m.op("FusedAttention", m["q"], k, m["v"], *mask, scale=scale, causal=0, **guarded)


def _softmax(scaled: P, masked: bool) -> P:
    return P("Softmax", P("Add", scaled, "mask") if masked else scaled, at="softmax")


def _guarded(softmax: P) -> P:
    """Weights with 0 for NaN, as exporters write it for rows that are masked everywhere."""
    return P("Where", P("IsNaN", softmax), C("zero", 0.0), "weights", at="guard")


RULES: tuple[Rule, ...] = tuple(
    Rule(
        f"attention_{name}{'_mask' if masked else ''}{'_guarded' if guarded else ''}",
        "MatMul(Softmax(MatMul(q, kt) * s + mask), v) --> FusedAttention(q, Transpose(kt), v, mask)"
        + (", also with weights w as Where(IsNaN(w), 0, w)" if guarded else ""),
        P("MatMul", _guarded(_softmax(scaled, masked)) if guarded else _softmax(scaled, masked), "v"),
        _fuse,
        _is_attention,
        Exactness.REASSOCIATING,
        exclusive=True,
    )
    for name, scaled in _SCALED
    for masked in (True, False)
    for guarded in (False, True)
)
