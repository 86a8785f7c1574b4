"""Operators that do nothing: removed, in every spelling, when types prove that nothing changes."""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.ir import Attribute, TensorType
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, fixed_shape, int_attr, ints_attr


def can_pass_through(m: Match, key: str = "x") -> str | None:
    """Guard: the root's output may become the value itself.

    Not when a graph output would be left with no node of its own to carry its name.
    """
    ed = m.editor
    if not ed.is_output(m.output) or m[key] in ed.constants:
        return None
    return NOT_HERE if ed.producer(m[key]) is None or ed.is_output(m[key]) else None


def _same_type(m: Match) -> str | None:
    """Guard: output and ``x`` have one type, dim by dim."""
    x, y = m.value("x").type, m.editor.value(m.output).type
    if not isinstance(x, TensorType) or not isinstance(y, TensorType) or x.shape is None or x != y:
        return NOT_HERE
    return can_pass_through(m)


def _unused(m: Match, first: int) -> bool:
    """True if the root's outputs from number ``first`` on are not read."""
    return all(not o or m.editor.use_count(o) == 0 for o in m.root.outputs[first:])


def _dropout(m: Match) -> str | None:
    mode = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    if mode:
        array = m.editor.array(mode)
        if array is None or bool(array):
            return "training_mode is not known to be false"
    if not _unused(m, 1):
        return "the mask output is read"
    return can_pass_through(m)


def _slice(m: Match) -> str | None:
    steps = m.root.inputs[4] if len(m.root.inputs) > 4 else ""
    known = m.ints(steps) if steps else (1,)
    if known is None or any(s != 1 for s in known):
        return NOT_HERE
    return _same_type(m)


def _perm(m: Match) -> str | None:
    shape = m.shape("x")
    if shape is None:
        return NOT_HERE
    perm = ints_attr(m.root, "perm") or tuple(reversed(range(len(shape))))
    return can_pass_through(m) if perm == tuple(range(len(shape))) else NOT_HERE


def _pad(m: Match) -> str | None:
    pads = m.ints(m.root.inputs[1]) if len(m.root.inputs) > 1 else None
    return can_pass_through(m) if pads is not None and not any(pads) else NOT_HERE


def _tile(m: Match) -> str | None:
    repeats = m.ints(m.root.inputs[1])
    return can_pass_through(m) if repeats is not None and all(r == 1 for r in repeats) else NOT_HERE


def _single(m: Match) -> str | None:
    return can_pass_through(m) if len(m.root.inputs) == 1 else NOT_HERE


def _single_output(m: Match) -> str | None:
    return can_pass_through(m) if len(m.root.outputs) == 1 else NOT_HERE


def _cast_like(m: Match) -> str | None:
    return NOT_HERE if not isinstance(m.value("like").type, TensorType) else None


def _zero(m: Match) -> str | None:
    """Adding +0.0 turns -0.0 into 0.0, so only integers and -0.0 are exact."""
    zero = m.array("zero")
    if m.dtype("x").is_float and not bool(np.all(np.signbit(zero.astype(np.float64)))):
        return NOT_HERE
    return _same_type(m)


def _empty_piece(m: Match) -> str | None:
    return None if len(_pieces(m)) not in (0, len(m.root.inputs)) else NOT_HERE


def _pieces(m: Match) -> list[str]:
    """Inputs of a Concat that are not known to be empty along the axis."""
    out = []
    for i in m.root.inputs:
        t = m.editor.value(i).type
        shape = t.shape if isinstance(t, TensorType) else None
        if shape is None:
            return list(m.root.inputs)
        axis = int_attr(m.root, "axis", 0) % len(shape)
        if shape[axis].value() != 0:
            out.append(i)
    return out


def _where(m: Match) -> str | None:
    c = m.array("c")
    if c.size == 0 or not (bool(c.all()) or not bool(c.any())):
        return NOT_HERE
    key = "x" if bool(c.all()) else "y"
    if m.editor.value(m.output).type != m.value(key).type or fixed_shape(m.shape(key)) is None:
        return NOT_HERE
    return can_pass_through(m, key)


def _saturation(m: Match) -> dict[str, Attribute]:
    """The attributes of a CastLike that its Cast keeps."""
    return {k: v for k in ("saturate", "round_mode") if (v := m.root.attr(k)) is not None}


def _x(m: Match) -> str:
    return m["x"]


RULES: tuple[Rule, ...] = (
    Rule("identity", "Identity(x) --> x", P("Identity", "x"), _x, can_pass_through),
    Rule("dropout", "Dropout(x) in inference --> x", P("Dropout", "x", rest=True), _x, _dropout),
    Rule("cast_to_same", "Cast(x, to=type of x) --> x", P("Cast", "x"), _x, _same_type),
    Rule(
        "cast_like",
        "CastLike(x, t) --> Cast(x, to=type of t)",
        P("CastLike", "x", "like"),
        lambda m: m.op("Cast", m["x"], to=m.dtype("like"), **_saturation(m)),
        _cast_like,
    ),
    Rule(
        "view_to_same",
        "Reshape(x, shape of x) --> x, and Flatten, Squeeze, Unsqueeze, Expand that keep the shape",
        P(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"), "x", rest=True),
        _x,
        _same_type,
    ),
    Rule("transpose_identity", "Transpose(x, perm=0..n) --> x", P("Transpose", "x"), _x, _perm),
    Rule("slice_all", "Slice(x) of the whole x with steps 1 --> x", P("Slice", "x", rest=True), _x, _slice),
    Rule("pad_nothing", "Pad(x, zeros) --> x", P("Pad", "x", rest=True), _x, _pad),
    Rule("tile_once", "Tile(x, ones) --> x", P("Tile", "x", "repeats"), _x, _tile),
    Rule("clip_unbounded", "Clip(x, none, none) --> x", P("Clip", "x", None, None), _x, can_pass_through),
    Rule(
        "variadic_single",
        "Concat(x) --> x, and Sum, Min, Max, Mean of one input",
        P(("Concat", "Sum", "Min", "Max", "Mean"), "x", rest=True),
        _x,
        _single,
    ),
    Rule("split_single", "Split(x) into one --> x", P("Split", "x", rest=True), _x, _single_output),
    Rule(
        "concat_empty",
        "Concat(a, empty, b) --> Concat(a, b)",
        P("Concat", "x", rest=True),
        lambda m: m.op("Concat", *_pieces(m), axis=m.root.attr("axis")),
        _empty_piece,
    ),
    Rule("mul_one", "Mul(x, 1) --> x", P("Mul", "x", C("one", 1.0)), _x, _same_type),
    Rule("div_one", "Div(x, 1) --> x", P("Div", "x", C("one", 1.0)), _x, _same_type),
    Rule("pow_one", "Pow(x, 1) --> x", P("Pow", "x", C("one", 1.0)), _x, _same_type),
    Rule("sub_zero", "Sub(x, 0) --> x", P("Sub", "x", C("zero", 0.0)), _x, _same_type),
    Rule("add_zero", "Add(x, 0) --> x for integers, Add(x, -0.0) --> x", P("Add", "x", C("zero", 0.0)), _x, _zero),
    Rule(
        "add_zero_float",
        "Add(x, 0.0) --> x; a result of -0.0 keeps its sign",
        P("Add", "x", C("zero", 0.0)),
        _x,
        _same_type,
        Exactness.REASSOCIATING,
    ),
    Rule("and_true", "And(x, true) --> x", P("And", "x", C("t", 1.0)), _x, _same_type),
    Rule("or_false", "Or(x, false) --> x", P("Or", "x", C("f", 0.0)), _x, _same_type),
    Rule(
        "where_constant",
        "Where(true, x, y) --> x, Where(false, x, y) --> y",
        P("Where", C("c"), "x", "y"),
        lambda m: m["x"] if bool(m.array("c").all()) else m["y"],
        _where,
    ),
    Rule(
        "relu_relu",
        "Relu(Relu(x)) --> Relu(x)",
        P("Relu", P("Relu", "y", at="in")),
        lambda m: m.node("in").outputs[0],
    ),
    Rule("not_not", "Not(Not(x)) --> x", P("Not", P("Not", "x")), _x, can_pass_through),
    Rule("neg_neg", "Neg(Neg(x)) --> x", P("Neg", P("Neg", "x")), _x, can_pass_through),
)
