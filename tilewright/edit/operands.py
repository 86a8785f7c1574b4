"""What may stand for an operand of a new node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard

import numpy as np

from tilewright.edit.operations.lookup import require_value
from tilewright.edit.reading import value_name
from tilewright.edit.views import NodeView, ValueView
from tilewright.frontend.schemas import NEWEST_OPSET, signature
from tilewright.graph_ir.ir import Graph, TensorType

Operand: TypeAlias = "ValueView | NodeView | str | np.ndarray | float | Sequence[float] | None"
"""A value, one result of a node, elements of a constant, or None for an absent operand."""


def is_value(x: object) -> TypeGuard[ValueView | NodeView | str]:
    """True for what names a value."""
    return isinstance(x, ValueView | NodeView | str)


def dtype_of_number(graph: Graph, op: str, domain: str, operands: Sequence[Operand], k: int) -> np.dtype | None:
    """The element type that a single number has as operand ``k``: that of a value which must have the same, by the
    standard; None if there is none."""
    sig = signature(op, "", NEWEST_OPSET) if domain in ("", "ai.onnx") else None
    if sig is None or not sig.inputs:
        return None
    kinds = [sig.inputs[min(i, len(sig.inputs) - 1)] for i in range(len(operands))]
    for i, x in enumerate(operands):
        if i != k and kinds[i] == kinds[k] and is_value(x):
            t = graph.values[require_value(graph, value_name(x), f"add {op}")].type
            if isinstance(t, TensorType):
                return t.dtype.numpy
    return None
