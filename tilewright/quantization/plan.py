"""Which tensors are quantized, who reads them as integers, and which of them share a scale.

Going backwards from the operands of the layers: what makes such a tensor is computed on integers too, if it only moves
numbers, joins, adds, multiplies, averages what comes from convolutions or is a function of it, and then its operands
are quantized as well. All else stays in float32, so that no value is rounded which no product of integers needs. A Relu
or Clip is part of the layer before it: the tensor between the two is not quantized. Nor is ``f(x)`` of a product ``x
f(x)``, which is one function of ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx

from tilewright.quantization.layers import Layer
from tilewright.quantization.onnx_editor import OnnxEditor, key_of
from tilewright.quantization.operators import ACTIVATIONS, AVERAGES, FUNCTIONS, JOINS, MOVES


@dataclass(slots=True)
class Plan:
    """``reads``: positions of the operands that a node reads quantized, by the node's first result. ``tensors``: what
    is quantized, in the order in which the model makes it. ``like``: the tensor whose scale another one takes.
    """

    layers: tuple[Layer, ...]
    reads: dict[str, set[int]] = field(default_factory=dict)
    tensors: tuple[str, ...] = ()
    like: dict[str, str] = field(default_factory=dict)

    def scale_source(self, tensor: str) -> str:
        """The tensor whose range gives the scale."""
        while tensor in self.like:
            tensor = self.like[tensor]
        return tensor

    def _share(self, tensor: str, source: str) -> None:
        if self.scale_source(tensor) != self.scale_source(source):
            self.like[self.scale_source(tensor)] = self.scale_source(source)


def make_plan(editor: OnnxEditor, layers: Sequence[Layer]) -> Plan:
    """The plan for these layers."""
    plan = Plan(tuple(layers))
    wanted: set[str] = set()
    heads = {x.y for x in layers if x.op == "Conv"}

    def read(node: onnx.NodeProto, *positions: int) -> None:
        plan.reads.setdefault(key_of(node), set()).update(positions)
        wanted.update(node.input[k] for k in positions)

    def is_integer(tensor: str) -> bool:
        """Whether a tensor is quantized for another reader already, or can be where it is made."""
        node = _head(editor, tensor)
        return tensor in wanted or (node is not None and key_of(node) in heads)

    for x in layers:
        read(editor.producers[x.y], 0)
    for node in editor.nodes:
        operands = _operands(editor, node)
        if operands and all(is_integer(node.input[k]) for k in operands):
            heads.add(key_of(node))
    for node in reversed(editor.nodes):
        result = _behind(editor, node)
        operands = _operands(editor, node)
        if result not in wanted or key_of(node) not in heads or not operands:
            continue
        read(node, *operands)
        if (gate := _gate(editor, node)) is not None:
            read(gate, 0)
        if node.op_type in MOVES:
            plan._share(result, node.input[0])
        elif node.op_type == "Concat":
            for name in node.input:
                if len(editor.readers[name]) == 1 and name not in editor.kept:
                    plan._share(name, result)
    made = [*(i.name for i in editor.model.graph.input), *(o for n in editor.nodes for o in n.output)]
    plan.tensors = tuple(t for t in made if t in wanted)
    return plan


def _behind(editor: OnnxEditor, node: onnx.NodeProto) -> str:
    """The result of a node, or of the activation function that alone reads it."""
    y = key_of(node)
    reader = None if node.op_type in MOVES else editor.only_reader(y)
    return key_of(reader) if reader is not None and _is_activation(editor, reader) else y


def _head(editor: OnnxEditor, tensor: str) -> onnx.NodeProto | None:
    """The node whose result a tensor is, activation functions passed over."""
    node = editor.producers.get(tensor)
    if node is not None and _is_activation(editor, node) and editor.only_reader(node.input[0]) is not None:
        before = editor.producers.get(node.input[0])
        return node if before is None or before.op_type in MOVES else before
    return node


def _is_activation(editor: OnnxEditor, node: onnx.NodeProto) -> bool:
    return node.op_type in ACTIVATIONS and not node.domain and all(i in editor.constants for i in node.input[1:] if i)


def _operands(editor: OnnxEditor, node: onnx.NodeProto) -> tuple[int, ...]:
    """Positions of the operands that a node, other than a layer, can take as integers; none if it cannot."""
    if node.domain or sum(map(bool, node.output)) != 1:
        return ()
    if (gate := _gate(editor, node)) is not None:
        return ([*node.input].index(gate.input[0]),)
    if node.op_type in (*MOVES, *AVERAGES, *FUNCTIONS):
        return () if node.input[0] in editor.constants else (0,)
    if node.op_type in JOINS:
        return () if any(i in editor.constants for i in node.input) else tuple(range(len(node.input)))
    return ()


def _gate(editor: OnnxEditor, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The node of ``f(x)`` in the product ``x f(x)``, which alone reads it; None for all else."""
    if node.op_type != "Mul" or node.domain:
        return None
    for x, y in (node.input, reversed(node.input)):
        made = editor.producers.get(y)
        if made is not None and made.op_type in FUNCTIONS and made.input[0] == x and editor.only_reader(y) is not None:
            return made
    return None
