"""Each reader of a quantized value dequantizes it.

A DequantizeLinear of several readers fuses with what makes its operand, and the value would be stored in float32: four
times the bytes of the quantized one. With one of its own, each reader takes the bytes, and multiplies where it reads.
"""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.precision.casts import read_instead

_FUSING = (PatternKind.BROADCAST, PatternKind.REDUCTION)
"""What reads each element once and computes with it."""


def _dequantize(graph: Graph, ctx: PassContext) -> Graph:
    if not any(n.op == "DequantizeLinear" for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    for k in list(ed.nodes):
        node = ed.nodes[k]
        if node.op != "DequantizeLinear" or ed.constant(node.inputs[0]) is not None:
            continue
        (name,) = node.outputs
        readers = ed.users(name)
        if len(readers) < 2:
            continue
        if (reason := _refusal(ed, name, readers)) is not None:
            ctx.log.refuse(PASS.name, node.name, reason)
            continue
        for reader in readers[1:]:
            _read_own(ed, reader, node)
        ctx.log.fire(PASS.name, node.name)
    return ed.finish()


def _refusal(ed: GraphEditor, name: str, readers: list[Node]) -> str | None:
    if ed.is_output(name):
        return f"'{name}' is an output of the graph"
    for reader in readers:
        if op_def(reader).kind not in _FUSING:
            return f"{reader.op} does not dequantize what it reads"
    return None


def _read_own(ed: GraphEditor, reader: Node, node: Node) -> None:
    ed.set_anchor(ed.node_id(reader))
    (name,) = node.outputs
    (own,) = ed.add(node.op, node.inputs, dict(node.attrs), name, stands_for=node)
    read_instead(ed, reader, name, own)


PASS = Pass("dequantize_for_readers", Level.EXTENDED, Exactness.BIT_EXACT, _dequantize)
"""Runs when element types are chosen: before, equal nodes become one."""
