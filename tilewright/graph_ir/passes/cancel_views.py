"""Reshapes around elementwise operators that turn back what they turned: both go.

Exporters flatten ``[B, S, E]`` to rows for each matrix product, and back for what is between two of them::

    Gemm -> Reshape -> Mul, Tanh, Add, ... -> Reshape -> Gemm        Gemm -> Mul, Tanh, Add, ... -> Gemm

The region between is all that can be reached from a Reshape through operators that compute element by element, with
numbers, rows or values of the same view as other operands. It is computed in the shape before the Reshape if that needs
fewer of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.graph_ir.ir import Graph, Node, Shape
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import tensor_shape


def cancel_views(graph: Graph, ctx: PassContext) -> Graph:
    """The graph without Reshapes that others undo behind elementwise operators."""
    if not any(n.op == "Reshape" for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    for k in list(ed.nodes):
        node = ed.nodes.get(k)
        if node is not None and node.op == "Reshape" and not node.domain:
            region = _region(ed, node)
            if region is not None and region.gain(ed) > 0:
                _compute_before(ed, region)
                ctx.log.fire("cancel_views", node.name)
    return ed.finish()


@dataclass(slots=True)
class _Region:
    """``source``, ``target``: the shapes before and behind the Reshape ``first``. ``entries``: values of the target's
    shape, and those of the source's that they are views of. ``nodes``: by their results, each behind those it reads.
    ``back``: Reshapes of the region's values to the source's shape. ``inside``: the names of all these nodes."""

    first: Node
    source: Shape
    target: Shape
    entries: dict[str, str]
    nodes: dict[str, Node] = field(default_factory=dict)
    back: list[Node] = field(default_factory=list)
    inside: set[str] = field(default_factory=set)

    def is_open(self, ed: GraphEditor, value: str) -> bool:
        """True if others read the value in the target's shape."""
        return ed.is_output(value) or any(u.name not in self.inside for u in ed.users(value))

    def gain(self, ed: GraphEditor) -> int:
        """How many Reshapes fewer there are."""
        gone = sum(not self.is_open(ed, e) for e in self.entries)
        return gone + len(self.back) - sum(self.is_open(ed, o) for o in self.nodes) if self.nodes else 0


def _region(ed: GraphEditor, first: Node) -> _Region | None:
    source, target = (tensor_shape(ed.value(v)) for v in (first.inputs[0], first.outputs[0]))
    if source is None or target is None or source == target:
        return None
    region = _Region(first, source, target, {first.outputs[0]: first.inputs[0]})
    todo = [first.outputs[0]]
    while todo:
        value = todo.pop()
        for user in ed.users(value):
            if user.name in region.inside:
                continue
            if value in region.nodes and _is_back(ed, user, value, source):
                region.back.append(user)
            elif (more := _entries(ed, user, region)) is not None:
                region.entries |= more
                region.nodes[user.outputs[0]] = user
                todo.append(user.outputs[0])
            else:
                continue
            region.inside.add(user.name)
    return region


def _is_back(ed: GraphEditor, node: Node, value: str, source: Shape) -> bool:
    return node.op == "Reshape" and node.inputs[0] == value and tensor_shape(ed.value(node.outputs[0])) == source


def _entries(ed: GraphEditor, node: Node, region: _Region) -> dict[str, str] | None:
    """The views that ``node`` reads besides those of the region, if it can run before the Reshape; else None."""
    if not op_def(node).is_elementwise or len(node.outputs) != 1 or any(True for _ in node.subgraphs()):
        return None
    if tensor_shape(ed.value(node.outputs[0])) != region.target:
        return None
    more: dict[str, str] = {}
    for i in node.inputs:
        if not i or i in region.entries or i in region.nodes or _is_row(tensor_shape(ed.value(i)), region):
            continue
        maker = ed.producer(i)
        if maker is None or maker.op != "Reshape" or tensor_shape(ed.value(i)) != region.target:
            return None
        if tensor_shape(ed.value(maker.inputs[0])) != region.source:
            return None
        more[i] = maker.inputs[0]
    return more


def _is_row(shape: Shape | None, region: _Region) -> bool:
    """True for an operand that means the same in both shapes: one number, or a row of a last dim that both have."""
    if shape is None or len(shape) > min(len(region.source), len(region.target)):
        return False
    if any(d.value() != 1 for d in shape[:-1]):
        return False
    last = region.source[-1:] == region.target[-1:]
    return not shape or shape[-1].value() == 1 or (last and shape[-1] == region.source[-1])


def _compute_before(ed: GraphEditor, region: _Region) -> None:
    new = dict(region.entries)
    kept = [o for o in region.nodes if region.is_open(ed, o)]
    for old, node in region.nodes.items():
        ed.set_anchor(ed.node_id(node))
        (new[old],) = ed.add(node.op, [new.get(i, i) for i in node.inputs], dict(node.attrs), old, stands_for=node)
    for node in region.back:
        ed.replace_uses(node.outputs[0], new[node.inputs[0]])
    for old in kept:
        shape, attrs = region.first.inputs[1], dict(region.first.attrs)
        (view,) = ed.add("Reshape", [new[old], shape], attrs, old, stands_for=region.first)
        ed.replace_uses(old, view)
    ed.drop_if_dead(*(n.outputs[0] for n in region.back), *reversed(region.nodes))


CANCEL_VIEWS = Pass("cancel_views", Level.EXTENDED, Exactness.BIT_EXACT, cancel_views)
