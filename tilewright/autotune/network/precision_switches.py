"""A network whose products are float32 or bfloat16 by a switch each, to find out what each does to the results.

Both products of a node are there, and a choice between their results, an input of the network; a second kind of switch
says whether the other readers of an operand read the rounded one, as they do where a product of it is reduced. So one
build gives the results of any set of reduced nodes, up to the order of float32 sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import InternalError
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.precision.choose_precision import rounded_operand


@dataclass(frozen=True, slots=True)
class Switched:
    """``graph``: with the switches as its last inputs. ``nodes``: switch of each node. ``operands``: the nodes that
    round an operand, by the switch of its other readers."""

    graph: Graph
    nodes: Mapping[str, str]
    operands: Mapping[str, frozenset[str]]

    def settings(self, reduced: Collection[str]) -> dict[str, np.ndarray]:
        """The inputs that reduce these nodes and no others."""
        on = set(reduced)
        found = {switch: node in on for node, switch in self.nodes.items()}
        found |= {switch: bool(readers & on) for switch, readers in self.operands.items()}
        return {switch: np.asarray(value) for switch, value in found.items()}


def with_switches(graph: Graph, names: Collection[str]) -> Switched:
    """``graph``, before implementations are chosen, with switches for the products of these names among its nodes."""
    ctx = PassContext.for_graph(graph)
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.name in names:
            readers.setdefault(node.inputs[0], []).append(node)
    of_node = {n.name: ctx.names.fresh(f"{n.name}.switch") for nodes in readers.values() for n in nodes}
    of_operand = {x: ctx.names.fresh(f"{x}.switch") for x in readers}
    switches = (*of_node.values(), *of_operand.values())
    values = {s: Value(s, TensorType(dtypes.bool_, ())) for s in switches}
    ed = GraphEditor(graph.replace(inputs=(*graph.inputs, *switches), values={**graph.values, **values}), ctx)
    for x, nodes in readers.items():
        ed.set_anchor(ed.node_id(nodes[0]))
        others = ed.users(x)
        narrow = ed.add("Cast", (x,), {"to": dtypes.bfloat16, "flush": 1}, hint=f"{x}.bf16")[0]
        if ed.producer(x) is not None and not ed.is_output(x):
            wide = ed.add("Cast", (narrow,), {"to": dtypes.float32}, hint=f"{x}.wide")[0]
            read = ed.add("Where", (of_operand[x], wide, x), hint=f"{x}.read")[0]
            for reader in others:
                if not any(True for _ in reader.subgraphs()):
                    inputs = tuple(read if i == x else i for i in reader.inputs)
                    ed.replace_node(reader, dataclasses.replace(reader, inputs=inputs))
        for node in nodes:
            _switch(ed, node, narrow, of_node[node.name])
    operands = {of_operand[x]: frozenset(n.name for n in nodes) for x, nodes in readers.items()}
    return Switched(ed.finish(), of_node, operands)


def _switch(ed: GraphEditor, node: Node, narrow: str, switch: str) -> None:
    """A choice between ``node`` and the same on operands of bfloat16, the first of which is ``narrow``."""
    wide = ed.producer(node.outputs[0])
    if wide is None or ed.constant(node.inputs[1]) is None:
        raise InternalError(f"with_switches: expected a product with a constant weight, got '{node.name}'")
    ed.set_anchor(ed.node_id(wide))
    rounded = rounded_operand(ed, node)
    attrs = dict(node.attrs)
    reduced = ed.add(
        node.op, (narrow, rounded, *wide.inputs[2:]), {**attrs, "output_dtype": dtypes.float32}, f"{node.name}.reduced"
    )
    own = ed.add(node.op, wide.inputs, attrs, f"{node.name}.own")
    ed.replace_node(wide, Node("Where", (switch, *reduced, *own), node.outputs, (), node.name))
