"""Operands that say what their absence says: they go, and what computes them with them."""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.ir import Constant, Node
from tilewright.graph_ir.passes.base import with_inputs
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule

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
    return [
        k for k in _STATES if k < len(m.root.inputs) and m.root.inputs[k] and is_all_zero(m.editor, m.root.inputs[k])
    ]


def _has_zero_state(m: Match) -> str | None:
    return None if _zero_states(m) else NOT_HERE


def _without_states(m: Match) -> Node:
    gone = _zero_states(m)
    inputs = ["" if k in gone else i for k, i in enumerate(m.root.inputs)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return with_inputs(m.root, tuple(inputs))


RULES: tuple[Rule, ...] = (
    Rule(
        "zero_state",
        "LSTM(x, w, r, b, lengths, zeros, zeros) --> LSTM(x, w, r, b, lengths), also GRU and RNN",
        P(("LSTM", "GRU", "RNN"), "x", "w", "r", rest=True),
        _without_states,
        _has_zero_state,
    ),
)
