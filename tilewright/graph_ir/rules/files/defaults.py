"""Operands in the form that takes fewest nodes in any opset: those that say what their absence says go, with what
computes them; scales that are joined are those of all axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.graph_ir.ir import Constant, Node, make_attrs
from tilewright.graph_ir.passes.base import with_inputs
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, ints_attr

_STATES = (5, 6)
"""Operands of recurrent layers that are their first state."""
_KEEP_ELEMENTS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Expand", "Tile", "Identity")
_LARGEST = 1 << 20


def is_all_zero(ed: GraphEditor, name: str) -> bool:
    """True for a value whose every element is zero whatever its size turns out to be."""
    while True:
        constant, maker = ed.constant(name), ed.producer(name)
        if constant is not None:
            return constant.dtype.kind == "f" and constant.size <= _LARGEST and not bool(np.any(constant.array))
        if maker is None or maker.domain:
            return False
        if maker.op == "ConstantOfShape":
            value = maker.attr("value")
            return not isinstance(value, Constant) or not bool(np.any(value.array))
        if maker.op not in _KEEP_ELEMENTS:
            return False
        name = maker.inputs[0]


def _zero_states(m: Match) -> list[int]:
    given = ((k, i) for k, i in enumerate(m.root.inputs) if k in _STATES)
    return [k for k, i in given if i and is_all_zero(m.editor, i)]


def _has_zero_state(m: Match) -> str | None:
    return None if _zero_states(m) else NOT_HERE


def _without_states(m: Match) -> Node:
    gone = _zero_states(m)
    inputs = ["" if k in gone else i for k, i in enumerate(m.root.inputs)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return with_inputs(m.root, tuple(inputs))


def _last_axes(m: Match) -> str | None:
    shape, axes = m.shape("x"), ints_attr(m.root, "axes")
    if shape is None or not axes or axes != tuple(range(len(shape) - len(axes), len(shape))) or len(axes) == len(shape):
        return NOT_HERE
    return NOT_HERE if m.root.attr("coordinate_transformation_mode") == "tf_crop_and_resize" else None


def _scale_all_axes(m: Match) -> Node:
    parts = m.node("parts").inputs
    ones = m.editor.value(parts[0]).dtype.numpy.type(1)
    others = len(m.shape("x") or ()) - len(ints_attr(m.root, "axes") or ())
    scales = m.op("Concat", m.const(np.full(others, ones)), *parts, axis=0)
    attrs = make_attrs({k: v for k, v in m.root.attrs if k != "axes"})
    return replace(m.root, inputs=(m["x"], "", scales), attrs=attrs)


def _row_axis(m: Match) -> int | None:
    """The axis of ``x`` that rows of its Flatten run along, if it is one only."""
    shape, axis = m.shape("x"), int_attr(m.node("flat"), "axis", 1)
    if shape is None or not shape:
        return None
    long = [k for k, d in enumerate(shape) if k >= axis % len(shape) and d.value() != 1]
    return long[0] if len(long) == 1 else len(shape) - 1 if not long else None


def _is_row_of_one_axis(m: Match) -> str | None:
    if int_attr(m.node("rows"), "axis", -1) not in (-1, 1) or m.shape("x") != m.out_shape:
        return NOT_HERE
    return None if _row_axis(m) is not None else NOT_HERE


RULES: tuple[Rule, ...] = (
    Rule(
        "zero_state",
        "LSTM(x, w, r, b, lengths, zeros, zeros) --> LSTM(x, w, r, b, lengths), also GRU and RNN",
        P(("LSTM", "GRU", "RNN"), "x", "w", "r", rest=True),
        _without_states,
        _has_zero_state,
    ),
    Rule(
        "softmax_of_rows",
        "Reshape(Softmax(Flatten(x)), shape of x) --> Softmax(x) where the rows are one axis of x, as until opset 12",
        P("Reshape", P(("Softmax", "LogSoftmax", "Hardmax"), P("Flatten", "x", at="flat"), at="rows"), rest=True),
        lambda m: m.op(m.node("rows").op, m["x"], axis=_row_axis(m)),
        _is_row_of_one_axis,
        exclusive=True,
    ),
    Rule(
        "scales_of_all_axes",
        "Resize(x, Concat(a, b), axes=the last) --> Resize(x, Concat(ones, a, b)), which opsets before 18 have",
        P("Resize", "x", None, P("Concat", "part", rest=True, at="parts")),
        _scale_all_axes,
        _last_axes,
        exclusive=True,
    ),
)
