"""Reshapes that only join or split leading axes move below operators that work on rows, and cancel there.

Exporters flatten ``[B, S, E]`` to ``[B*S, E]`` around each matrix product; a product with a matrix does not need that.
"""

from __future__ import annotations

from tilewright.graph_ir.ops import OPS, op_def
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, tensor_shape
from tilewright.graph_ir.rules.views import reshape, reshape_target

_ROWWISE = tuple(n for n, d in OPS.items() if d.rowwise)
_ELEMENTWISE = tuple(n for n, d in OPS.items() if d.is_elementwise)


def _row_view(m: Match) -> str | None:
    """Guard: ``x`` and its Reshape have the same last dim, and a Reshape of the result can be written."""
    x, y = m.shape("x"), tensor_shape(m.editor.value(m.node("view").outputs[0]))
    if x is None or y is None or len(x) < 2 or len(y) < 2 or x[-1] != y[-1]:
        return NOT_HERE
    if x == y:
        return NOT_HERE
    return None


def _matmul(m: Match) -> str | None:
    reason = _row_view(m)
    x, w, out = m.shape("x"), m.shape("w"), m.out_shape
    if reason is not None or x is None or w is None or out is None or len(w) != 2:
        return NOT_HERE
    if m.root.inputs[0] != m.node("view").outputs[0]:
        return NOT_HERE
    return None if reshape_target((*x[:-1], w[-1]), out) is not None else "more than one unknown dim in the result"


def _build_matmul(m: Match) -> str:
    product = m.op("MatMul", m["x"], m["w"])
    return reshape(m, product, m.editor.value(product).shape, m.out_shape or ())


def _others_are_rows(m: Match) -> str | None:
    """Guard for elementwise operators: every other operand is one number or one row."""
    if _row_view(m) is not None or len(m.root.outputs) != 1:
        return NOT_HERE
    x, out = m.shape("x") or (), m.out_shape
    view = m.node("view").outputs[0]
    if out is None or out != tensor_shape(m.editor.value(view)) or reshape_target(x, out) is None:
        return NOT_HERE
    for i in m.root.inputs:
        s = tensor_shape(m.editor.value(i)) if i and i != view else ()
        if s is None or any(d.value() != 1 for d in s[:-1]) or (s and s[-1] != x[-1] and s[-1].value() != 1):
            return NOT_HERE
        if len(s) > len(x):
            return NOT_HERE
    return None


def _rowwise(m: Match) -> str | None:
    if _row_view(m) is not None or any(m.editor.use_count(o) for o in m.root.outputs[1:] if o):
        return NOT_HERE
    x, out = m.shape("x") or (), m.out_shape
    if out is None or m.root.inputs[0] != m.node("view").outputs[0] or reshape_target(x, out) is None:
        return NOT_HERE
    axis = int_attr(m.root, "axis", -1)
    return None if axis in (-1, len(out) - 1) else NOT_HERE


def _below(m: Match) -> str:
    view, root = m.node("view").outputs[0], m.root
    inputs = [m["x"] if i == view else i for i in root.inputs]
    attrs = dict(root.attrs)
    if op_def(root).rowwise:
        attrs["axis"] = -1
    new = m.op(root.op, *inputs, **attrs)
    return reshape(m, new, m.shape("x") or (), m.out_shape or ())


def _sandwich(m: Match) -> str | None:
    """Guard: the outer Reshape keeps the last dim, and the inner one can make the outer's leading dims at once."""
    x, w, out = m.shape("x"), m.shape("w"), m.out_shape
    flat = tensor_shape(m.editor.value(m.node("view").outputs[0]))
    if x is None or w is None or out is None or flat is None or len(w) != 2 or len(out) < 2 or len(flat) != 2:
        return NOT_HERE
    if out[-1] != w[-1] or ("row" in m.names and not _is_row(m)):
        return NOT_HERE
    return None if reshape_target(x, (*out[:-1], flat[-1])) is not None else "more than one unknown dim in the result"


def _is_row(m: Match) -> bool:
    s = m.shape("row")
    return s is not None and all(d.value() == 1 for d in s[:-1]) and len(s) <= 2


def _unwrapped(m: Match) -> str:
    out = m.out_shape or ()
    depth = (m.shape("w") or ())[0]
    product = m.op("MatMul", reshape(m, m["x"], m.shape("x") or (), (*out[:-1], depth)), m["w"])
    return m.op("Add", product, m["row"]) if "row" in m.names else product


_VIEW = P("Reshape", "x", rest=True, at="view")

RULES: tuple[Rule, ...] = (
    Rule(
        "matmul_of_rows",
        "MatMul(Reshape(x), w) --> Reshape(MatMul(x, w)), w a matrix, the last dim kept",
        P("MatMul", _VIEW, "w"),
        _build_matmul,
        _matmul,
    ),
    Rule(
        "matmul_between_views",
        "Reshape(MatMul(Reshape(x), w)) --> MatMul(Reshape(x), w), w a matrix",
        P("Reshape", P("MatMul", _VIEW, "w"), rest=True),
        _unwrapped,
        _sandwich,
        exclusive=True,
    ),
    Rule(
        "matmul_add_between_views",
        "Reshape(Add(MatMul(Reshape(x), w), row)) --> Add(MatMul(Reshape(x), w), row), w a matrix",
        P("Reshape", P("Add", P("MatMul", _VIEW, "w"), "row"), rest=True),
        _unwrapped,
        _sandwich,
        exclusive=True,
    ),
    Rule(
        "elementwise_of_rows",
        "f(Reshape(x), row) --> Reshape(f(x, row)), the last dim kept",
        P(_ELEMENTWISE, _VIEW, rest=True),
        _below,
        _others_are_rows,
    ),
    Rule(
        "elementwise_of_rows_right",
        "f(row, Reshape(x)) --> Reshape(f(row, x)), the last dim kept",
        P(_ELEMENTWISE, "row", _VIEW, rest=True),
        _below,
        _others_are_rows,
    ),
    Rule(
        "norm_of_rows",
        "f(Reshape(x)) --> Reshape(f(x)) for Softmax and norms over the last axis",
        P(_ROWWISE, _VIEW, rest=True),
        _below,
        _rowwise,
    ),
)
