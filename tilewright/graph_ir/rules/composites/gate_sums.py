"""The argument of a gate as a sum of products with constant matrices and of constant rows.

A gate of a recurrent cell is ``activation(x @ W + h @ R + b)``. Exporters compute all gates in one product and split
its columns, or each by itself; they add biases inside a Gemm, behind it, or twice. All of them are one sum here: the
columns of matrices, by the value that is multiplied by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import int_attr, known_ints, tensor_shape


@dataclass(frozen=True, slots=True)
class Columns:
    """``factor`` times the columns from ``start`` to ``stop`` of a constant: a row, or a matrix by whose rows from
    ``first`` to ``last`` a value is multiplied. ``turned``: the constant has columns and rows the other way round."""

    constant: str
    start: int
    stop: int
    factor: float = 1.0
    turned: bool = False
    first: int = 0
    last: int = 0

    def matrix(self, ed: GraphEditor) -> np.ndarray:
        """One row for each column: ``[stop - start, last - first]``."""
        array = _array(ed, self.constant)
        array = array if self.turned else array.T
        return _scaled(array[self.start : self.stop, self.first : self.last], self.factor)

    def row(self, ed: GraphEditor) -> np.ndarray | None:
        """``[stop - start]``; None for a constant whose rows differ."""
        array = _array(ed, self.constant)
        rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
        if not rows.size or (rows != rows[0]).any():
            return None
        row = rows[0]
        row = np.repeat(row, self.stop - self.start) if row.size == 1 else row[self.start : self.stop]
        return _scaled(row, self.factor)


def _array(ed: GraphEditor, name: str) -> np.ndarray:
    found = ed.array(name)
    return np.zeros(0) if found is None else found


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    return array if factor == 1.0 else (array * factor).astype(array.dtype)


@dataclass(slots=True)
class GateSum:
    """``products``: by the value that is multiplied. ``rows``: what is added to each row. ``nodes``: what computes the
    sum, by name."""

    products: dict[str, list[Columns]] = field(default_factory=dict)
    rows: list[Columns] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)

    def matrix(self, ed: GraphEditor, source: str, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """``[units, width of the source]``: zeros for a value that the gate does not read."""
        total = np.zeros(shape, dtype)
        for c in self.products.get(source, ()):
            total = total + c.matrix(ed)
        return total.astype(dtype, copy=False)

    def bias(self, ed: GraphEditor, units: int, dtype: np.dtype) -> np.ndarray:
        total = np.zeros(units, dtype)
        for c in self.rows:
            row = c.row(ed)
            total = total if row is None else total + row
        return total.astype(dtype, copy=False)


def gate_sum(ed: GraphEditor, name: str) -> GateSum | str:
    """What ``name``, a matrix of rows, is the sum of; a reason if it is something else."""
    shape, ranks = tensor_shape(ed.value(name)), (1, 2) if ed.constant(name) is not None else (2,)
    width = None if shape is None or len(shape) not in ranks else shape[-1].value()
    if width is None:
        return f"'{name}' is no matrix with a known number of columns"
    total = GateSum()
    return _collect(ed, name, 0, width, 1.0, total) or total


def _collect(ed: GraphEditor, name: str, start: int, stop: int, factor: float, total: GateSum) -> str | None:
    """Adds columns of a value to ``total``; the reason if they are no such sum."""
    if ed.constant(name) is not None:
        row = Columns(name, start, stop, factor)
        total.rows.append(row)
        return None if row.row(ed) is not None else f"the rows of '{name}' differ"
    node, shape = ed.producer(name), tensor_shape(ed.value(name))
    if node is None or node.domain or shape is None or len(shape) != 2:
        return f"'{name}' is no product with constant weights"
    if node.op in ("Gemm", "MatMul"):
        reason = _collect_product(ed, node, start, stop, factor, total)
    elif node.op == "Add":
        reason = next(
            (r for i in node.inputs if (r := _collect_summand(ed, node, i, start, stop, factor, total))), None
        )
    elif node.op in ("Split", "Slice") and (offset := _offset(ed, node, name)) is not None:
        reason = _collect(ed, node.inputs[0], offset + start, offset + stop, factor, total)
    else:
        return f"'{name}' is no product with constant weights"
    total.nodes[node.name] = node
    return reason


def _collect_summand(
    ed: GraphEditor, node: Node, name: str, start: int, stop: int, factor: float, total: GateSum
) -> str | None:
    if ed.constant(name) is None and tensor_shape(ed.value(name)) != tensor_shape(ed.value(node.outputs[0])):
        return f"'{name}' is repeated by a sum"
    return _collect(ed, name, start, stop, factor, total)


def _collect_product(ed: GraphEditor, node: Node, start: int, stop: int, factor: float, total: GateSum) -> str | None:
    source, weights = node.inputs[:2]
    constant, x = ed.constant(weights), tensor_shape(ed.value(source))
    if constant is None or len(constant.shape) != 2 or x is None or len(x) != 2 or int_attr(node, "transA", 0):
        return f"'{node.outputs[0]}' is no product with constant weights"
    turned = bool(int_attr(node, "transB", 0))
    alpha, beta = (_number(node, key) for key in ("alpha", "beta"))
    at = 0
    depth = constant.shape[1 if turned else 0]
    for part, width in _joined(ed, source) or [(source, depth)]:
        columns = Columns(weights, start, stop, factor * alpha, turned, at, at + width)
        total.products.setdefault(part, []).append(columns)
        at += width
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if not bias or beta == 0.0:
        return None
    return _collect_summand(ed, node, bias, start, stop, factor * beta, total)


def _number(node: Node, key: str) -> float:
    v = node.attr(key, 1.0)
    return float(v) if isinstance(v, int | float) else 1.0


def _joined(ed: GraphEditor, name: str) -> list[tuple[str, int]] | None:
    """The values that a Concat puts beside each other, with their widths; None for another value."""
    node = ed.producer(name)
    if node is None or node.op != "Concat" or node.domain or int_attr(node, "axis", 0) not in (1, -1):
        return None
    widths = [shape[-1].value() if (shape := tensor_shape(ed.value(i))) else None for i in node.inputs]
    return None if None in widths else [(i, w) for i, w in zip(node.inputs, widths, strict=True) if w is not None]


def _offset(ed: GraphEditor, node: Node, name: str) -> int | None:
    """The column of its input that the first column of a part is; None if it takes other axes, or not each column."""
    if node.op == "Split":
        if int_attr(node, "axis", 0) not in (1, -1):
            return None
        widths = [shape[-1].value() if (shape := tensor_shape(ed.value(o))) else None for o in node.outputs]
        before = widths[: node.outputs.index(name)]
        return None if None in before else sum(w for w in before if w is not None)
    _, starts, _, axes, steps = (None if not i else known_ints(ed, i) for i in (*node.inputs, "", "")[:5])
    shape = tensor_shape(ed.value(node.inputs[0]))
    width = None if shape is None else shape[-1].value()
    if width is None or starts is None or axes not in ((1,), (-1,)) or steps not in (None, (1,)):
        return None
    if steps is None and len(node.inputs) > 4 and node.inputs[4]:
        return None
    return min(max(starts[0] + width if starts[0] < 0 else starts[0], 0), width)
