"""Multiply-adds of nodes by their operators' definitions, as formulas of dimensions.

This is about models, before any choice of how they run: what kernels do is counted from their loops, in the room
``lowering``. Padding counts as if it were data, as is usual. Operators without products count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.core.arith.expr import ZERO, IntExpr, const, product
from tilewright.graph_ir.ir import Graph, Node, Shape, TensorType
from tilewright.graph_ir.ops.layers.linear import parse_equation


class _Unknown(Exception):
    """A shape that a formula needs is not known, or is not what the operator takes."""


class _Shapes:
    """Shapes of a node's operands and first result."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self.node = graph, node

    def operand(self, i: int, rank: int = 0) -> Shape:
        """Of operand ``i``, which has at least ``rank`` dims."""
        return self._shape(self.node.inputs[i] if i < len(self.node.inputs) else "", rank)

    def result(self) -> Shape:
        return self._shape(self.node.outputs[0], 0)

    def has(self, i: int) -> bool:
        return i < len(self.node.inputs) and bool(self.node.inputs[i])

    def _shape(self, name: str, rank: int) -> Shape:
        value = self._graph.values.get(name)
        if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            raise _Unknown
        if len(value.type.shape) < rank:
            raise _Unknown
        return value.type.shape


def _matmul(s: _Shapes) -> IntExpr:
    return product(s.result()) * s.operand(0, 1)[-1]


def _gemm(s: _Shapes) -> IntExpr:
    return product(s.result()) * s.operand(0, 2)[0 if s.node.attr("transA") else 1]


def _einsum(s: _Shapes) -> IntExpr:
    shapes = [s.operand(i) for i in range(len(s.node.inputs))]
    try:
        operands, _ = parse_equation(str(s.node.attr("equation", "")), [len(x) for x in shapes])
    except ValueError as e:
        raise _Unknown from e
    sizes: dict[str, IntExpr] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            if sizes.get(label) in (None, const(1)):
                sizes[label] = size
    return product(sizes.values()) * max(len(shapes) - 1, 0)


def _conv(weight: int) -> Callable[[_Shapes], IntExpr]:
    return lambda s: product(s.result()) * product(s.operand(weight, 3)[1:])


def _conv_transpose(s: _Shapes) -> IntExpr:
    return product(s.operand(0, 3)) * product(s.operand(1, 3)[1:])


def _recurrent(s: _Shapes) -> IntExpr:
    x, w, r = s.operand(0, 3), s.operand(1, 3), s.operand(2, 3)
    return product(x[:2]) * (product(w) + product(r))


def _attention(s: _Shapes) -> IntExpr:
    """Heads have a dim of their own, or are side by side in the last one: the formula is the same."""
    y = s.result()
    keys = s.operand(1, 3)[-2] + (s.operand(4, 4)[-2] if s.has(4) else ZERO)
    return product(y[:-1]) * keys * (s.operand(0, 3)[-1] + y[-1])


_COUNTS: Mapping[str, Callable[[_Shapes], IntExpr]] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulDequantized": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv(1),
    "ConvInteger": _conv(1),
    "QLinearConv": _conv(3),
    "DeformConv": _conv(1),
    "ConvTranspose": _conv_transpose,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Attention": _attention,
    "FusedAttention": _attention,
}
_UNCOUNTED = {"CausalConvWithState", "DFT", "Det", "LinearAttention", "STFT"}
"""Operators with products that have no formula here."""


def multiply_adds(graph: Graph, node: Node) -> IntExpr | None:
    """Multiply-adds of a node of ``graph``, not those in its subgraphs. None where a shape that says it is not known,
    and for operators that have no formula: those of other domains, and some with products that are rare."""
    if node.domain or node.op in _UNCOUNTED:
        return None
    try:
        return _COUNTS[node.op](_Shapes(graph, node)) if node.op in _COUNTS else ZERO
    except _Unknown:
        return None
