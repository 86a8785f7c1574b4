"""Constants on their way into the weights of matrix products: scales behind and in front, shifts, chosen rows."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.graph_ir.ir import Constant, Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.passes.fold_constants import GROWTH_BYTES
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, int_attr, tensor_shape
from tilewright.graph_ir.rules.views import VIEWS

_VIEWS = (*VIEWS, "Transpose")
_BLOCK = 1 << 22
_DEPTH = 12
_SPARE_BITS = 6
"""Weights stay as far above the smallest normal number as this many halvings."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """What is ``weights`` times the factor; ``products``: how many of them are operands of a MatMul."""

    weights: tuple[str, ...]
    products: int


def _only_use(ed: GraphEditor, name: str) -> bool:
    return ed.use_count(name) == 1 and not ed.is_output(name)


def _scalable(ed: GraphEditor, name: str, columns: int, depth: int = _DEPTH) -> _Scaled | str:
    """The constants that a factor of ``name`` goes into, or why it does not. ``columns``: numbers of the factor, which
    differ along the last axis only, or 1."""
    if ed.constant(name) is not None:
        return _Scaled((name,), 0)
    node = ed.producer(name)
    if node is None or node.domain or not depth:
        return NOT_HERE
    if node.op == "MatMul":
        at = 1 if ed.constant(node.inputs[1]) is not None else 0
        weight = ed.constant(node.inputs[at])
        if weight is None:
            return NOT_HERE
        if columns > 1 and (at == 0 or len(weight.shape) < 2 or weight.shape[-1] != columns):
            return "the factor is not one number a column of the product"
        return _Scaled((node.inputs[at],), 1) if _only_use(ed, name) else f"'{name}' is also used elsewhere"
    if not _only_use(ed, name):
        return NOT_HERE
    if node.op in _VIEWS and columns == 1:
        return _scalable(ed, node.inputs[0], columns, depth - 1)
    if node.op not in ("Add", "Sub"):
        return NOT_HERE
    parts = [_scalable(ed, i, columns, depth - 1) for i in node.inputs]
    good = [p for p in parts if isinstance(p, _Scaled)]
    reasons = [p for p in parts if isinstance(p, str)]
    return reasons[0] if reasons else _Scaled(tuple(w for p in good for w in p.weights), sum(p.products for p in good))


def _factor(m: Match) -> np.ndarray | None:
    """The root's constant as one number, or one a column; None if it varies otherwise."""
    c, out = m.constant("c"), m.out_shape
    if out is None or m.shape("y") != out or c.size == 0:
        return None
    columns = out[-1].value() if out else 1
    if c.size != 1 and (c.size != columns or c.shape[-1] != columns):
        return None
    flat = m.array("c").astype(np.float64).reshape(-1)
    with np.errstate(divide="ignore"):
        return 1.0 / flat if m.root.op == "Div" else flat


def _kept_in_range(ed: GraphEditor, weight: Constant, factor: np.ndarray) -> bool:
    """True if the weight's largest number times each factor is a normal one."""
    info = ml_dtypes.finfo(weight.dtype)  # type: ignore[no-untyped-call]
    sizes = np.abs(factor[factor != 0])
    if weight.size == 0 or sizes.size == 0:
        return bool(np.isfinite(factor).all())
    array = weight.array
    most = max(float(array.max()), -float(array.min()))
    least = float(info.smallest_normal) * 2.0**_SPARE_BITS
    return most == 0 or (most * sizes.max() <= float(info.max) and most * sizes.min() >= least)


def _shared_weight(ed: GraphEditor, names: tuple[str, ...]) -> str | None:
    """Why constants would be in memory twice."""
    for name in names:
        c = ed.constant(name)
        if c is not None and c.nbytes > GROWTH_BYTES and ed.use_count(name) > 1:
            return f"the weight '{name}' is also used elsewhere"
    return None


def _into_weights(m: Match) -> str | None:
    if not m.dtype("y").is_float or m.editor.constant(m["y"]) is not None:
        return NOT_HERE
    if m.root.op == "Div" and m.root.inputs[0] != m["y"]:
        return NOT_HERE
    factor = _factor(m)
    if factor is None:
        return NOT_HERE
    found = _scalable(m.editor, m["y"], factor.size)
    if isinstance(found, str):
        return found
    if not found.products:
        return NOT_HERE
    shared = _shared_weight(m.editor, found.weights)
    if shared is not None:
        return shared
    for w in found.weights:
        c = m.editor.constant(w)
        if c is not None and not _kept_in_range(m.editor, c, factor):
            return f"'{w}' times the factor leaves the range of normal numbers"
    return None


def _scale(m: Match) -> str:
    factor = _factor(m)
    return m.output if factor is None else _rebuilt(m, m["y"], factor, _DEPTH)


def _rebuilt(m: Match, name: str, factor: np.ndarray, depth: int) -> str:
    constant, node = m.editor.constant(name), m.editor.producer(name)
    if constant is not None:
        return m.editor.add_constant(_times(constant.array, factor), f"{name}.scaled")
    if node is None:
        return name
    if node.op == "MatMul":
        at = 1 if m.editor.constant(node.inputs[1]) is not None else 0
        inputs = [_rebuilt(m, i, factor, depth - 1) if k == at else i for k, i in enumerate(node.inputs)]
    elif node.op in _VIEWS:
        inputs = [_rebuilt(m, node.inputs[0], factor, depth - 1), *node.inputs[1:]]
    else:
        inputs = [_rebuilt(m, i, factor, depth - 1) for i in node.inputs]
    return m.editor.add(node.op, inputs, dict(node.attrs), hint=name, stands_for=node)[0]


def _times(array: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """``array * factor`` rounded once; a factor of several numbers is along the last axis."""
    wide = np.float32 if array.dtype.itemsize < 4 else np.float64
    f = factor.reshape(()) if factor.size == 1 else factor
    if array.nbytes <= _BLOCK:
        return np.asarray(array.astype(wide) * f).astype(array.dtype)
    out = np.empty(array.shape, array.dtype)
    rows = out.reshape(-1, out.shape[-1])
    flat, step = array.reshape(rows.shape), max(1, _BLOCK // max(1, rows[0].nbytes))
    for k in range(0, len(rows), step):
        rows[k : k + step] = flat[k : k + step].astype(wide) * f
    return out


# -- in front of a product ------------------------------------------------------------------------------------------
def _readers_fold(ed: GraphEditor, name: str) -> bool:
    """True if all that read ``name`` are products of it with a constant, so that its node goes."""
    return not ed.is_output(name) and all(
        u.op == "MatMul" and not u.domain and u.inputs[0] == name and ed.constant(u.inputs[1]) is not None
        for u in ed.users(name)
    )


def _in_front(m: Match) -> str | None:
    """Guard: a constant meets ``x``, whose shape it leaves, in front of a product with a constant matrix."""
    x, weight, inner = m.shape("x"), m.constant("w"), m.node("in")
    if x is None or not m.dtype("x").is_float or len(weight.shape) != 2 or not x:
        return NOT_HERE
    if inner.op in ("Sub", "Div") and inner.inputs[0] != m["x"]:
        return NOT_HERE
    if x != m.editor.value(inner.outputs[0]).shape or m.constant("c").size == 0:
        return NOT_HERE
    return None


def _shift(m: Match) -> str | None:
    if (reason := _in_front(m)) is not None:
        return reason
    inner, c, w = m.node("in").outputs[0], m.constant("c"), m.constant("w")
    if not _readers_fold(m.editor, inner):
        return f"'{inner}' is also used elsewhere"
    depth, columns = w.shape
    rows = c.size // (c.shape[-1] if c.shape else 1)
    if (rows * columns - rows * depth) * w.dtype.itemsize > GROWTH_BYTES:
        return f"the product of the constants has {rows} x {columns} numbers"
    limit = float(ml_dtypes.finfo(w.dtype).max)  # type: ignore[no-untyped-call]
    return None if float(np.abs(_shifted(m)).max(initial=0)) <= limit else f"the shift leaves the range of {w.dtype}"


def _shifted(m: Match) -> np.ndarray:
    c, w = m.array("c"), m.array("w")
    rows = np.broadcast_to(c, (*c.shape[:-1], w.shape[0])) if c.ndim else np.broadcast_to(c, (w.shape[0],))
    return (-1.0 if m.node("in").op == "Sub" else 1.0) * _product(rows, w)


def _shift_behind(m: Match) -> str:
    return m.op("Add", m.op("MatMul", m["x"], m["w"]), m.const(_shifted(m), like="w"))


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` in float64, for a part of the rows of ``b`` at a time."""
    step = max(1, _BLOCK // max(1, b.shape[1] * b.itemsize))
    out = np.zeros((*a.shape[:-1], b.shape[1]))
    for k in range(0, b.shape[0], step):
        out += a[..., k : k + step].astype(np.float64) @ b[k : k + step].astype(np.float64)
    return out


def _depth_factor(m: Match) -> np.ndarray | None:
    """The constant in front as one number for each row of the weight; None if it varies otherwise."""
    c, depth = m.array("c"), m.constant("w").shape[0]
    if c.size != 1 and (c.size != depth or c.shape[-1] != depth):
        return None
    flat = c.astype(np.float64).reshape(-1)
    with np.errstate(divide="ignore"):
        return np.broadcast_to(1.0 / flat if m.node("in").op == "Div" else flat, (depth,))


def _scale_in_front(m: Match) -> str | None:
    if (reason := _in_front(m)) is not None:
        return reason
    inner, factor = m.node("in").outputs[0], _depth_factor(m)
    if factor is None:
        return "the factor is not one number a row of the weight"
    if not _readers_fold(m.editor, inner):
        return f"'{inner}' is also used elsewhere"
    if not _kept_in_range(m.editor, m.constant("w"), factor):
        return "the weight times the factor leaves the range of normal numbers"
    return _shared_weight(m.editor, (m["w"],))


def _scale_rows(m: Match) -> str:
    factor = _depth_factor(m)
    if factor is None:
        return m.output
    return m.op("MatMul", m["x"], m.editor.add_constant(_times(m.array("w").T, factor).T, f"{m['w']}.scaled"))


# -- rows of a constant ---------------------------------------------------------------------------------------------
def _chooses_rows(node: Node, table: Constant, ed: GraphEditor) -> bool:
    """True if a Slice or Gather of the table leaves its last axis alone."""
    rank = len(table.shape)
    if node.op == "Gather":
        return rank == 2 and int_attr(node, "axis", 0) % rank == 0
    if len(node.inputs) < 4 or not node.inputs[3]:
        count = tensor_shape(ed.value(node.inputs[1]))
        return count is not None and len(count) == 1 and (n := count[0].value()) is not None and n < rank
    axes = ed.array(node.inputs[3])
    return axes is not None and all(int(a) % rank != rank - 1 for a in axes.reshape(-1))


def _rows_of_table(m: Match) -> str | None:
    table, w, rows = m.constant("table"), m.constant("w"), m.node("rows")
    if table.dtype != w.dtype or not m.dtype("table").is_float or len(w.shape) != 2 or len(table.shape) < 2:
        return NOT_HERE
    if not _chooses_rows(rows, table, m.editor):
        return NOT_HERE
    if not _readers_fold(m.editor, rows.outputs[0]):
        return f"'{rows.outputs[0]}' is also used elsewhere"
    growth = (table.size // table.shape[-1]) * w.shape[1] * w.dtype.itemsize
    growth -= table.nbytes if m.editor.use_count(m["table"]) == 1 else 0
    growth -= w.nbytes if m.editor.use_count(m["w"]) == 1 else 0
    return None if growth <= GROWTH_BYTES else f"the product with the whole table is {growth} bytes larger than both"


def _multiply_table(m: Match) -> str:
    table, w, rows = m.array("table"), m.array("w"), m.node("rows")
    whole = m.const(_product(table.reshape(-1, table.shape[-1]), w).reshape(*table.shape[:-1], -1), like="table")
    return m.op(rows.op, whole, *rows.inputs[1:], **dict(rows.attrs))


RULES: tuple[Rule, ...] = (
    Rule(
        "scale_into_matmul",
        "Mul(Add(MatMul(x, w), b), c) --> Add(MatMul(x, w*c), b*c), c one number a column; for one number also sums of"
        " several products, views of them, and Div",
        P(("Mul", "Div"), "y", C("c")),
        _scale,
        _into_weights,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "shift_before_matmul",
        "MatMul(Add(x, c), w) --> Add(MatMul(x, w), c @ w), and Sub",
        P("MatMul", P(("Add", "Sub"), "x", C("c"), at="in"), C("w")),
        _shift_behind,
        _shift,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "scale_before_matmul",
        "MatMul(Mul(x, c), w) --> MatMul(x, c*w), c one number a row of w; also Div",
        P("MatMul", P(("Mul", "Div"), "x", C("c"), at="in"), C("w")),
        _scale_rows,
        _scale_in_front,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "matmul_of_constant_rows",
        "MatMul(Slice(table), w) --> Slice(table @ w), also Gather of rows",
        P("MatMul", P(("Slice", "Gather"), C("table"), rest=True, at="rows"), C("w")),
        _multiply_table,
        _rows_of_table,
        Exactness.REASSOCIATING,
    ),
)
