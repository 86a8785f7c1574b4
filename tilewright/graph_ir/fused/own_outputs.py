"""Each output of the graph has memory of its own: what is an input, a constant, captured or given twice is copied."""

from __future__ import annotations

import dataclasses

from tilewright.graph_ir.fused.partition import HOST, UNTYPED
from tilewright.graph_ir.fused.shape_program import SIZES
from tilewright.graph_ir.ir import Graph, Group, Node, TensorType, Value, captured, make_attrs
from tilewright.graph_ir.kinds import PatternKind, RunsAs
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext, visible_values


def own_outputs(graph: Graph, ctx: PassContext) -> Graph:
    """The fused graph with copies in the place of outputs that have no memory of their own."""
    scope, outputs, values = visible_values(graph, ctx), [], dict(graph.values)
    not_owned = {*graph.inputs, *graph.constants, *captured(graph)}
    kinds = {o: (op_def(n).kind, n) for n in graph.nodes for o in n.outputs}
    taken: set[str] = set()
    copies: list[Group] = []
    for i, name in enumerate(graph.outputs):
        root, sized_late = name, False
        while root in kinds and kinds[root][0] is PatternKind.VIEW:
            # a size known only after the operand is there: the operand cannot own the output
            sized_late |= kinds[root][1].attr(SIZES) is not None
            root = kinds[root][1].inputs[0]
        on_host = root in kinds and kinds[root][0] in (PatternKind.HOST, PatternKind.CONTROL)
        if sized_late or root in not_owned or root in taken or name in taken or (on_host and root != name):
            copy = ctx.names.fresh(f"{name}__out{i}")
            values[copy] = dataclasses.replace(scope[name], name=copy, data=None)
            copies.append(_copy(name, values[copy], ctx.names.fresh(f"copy_{copy}")))
            outputs.append(copy)
            ctx.log.fire("own_outputs", copies[-1].name)
        else:
            outputs.append(name)
        taken |= {root, name}
    if not copies:
        return graph
    for name in captured(graph):  # one that was an output had a value here
        values.pop(name, None)
    nodes = (*graph.nodes, *(n for g in copies for n in g.nodes))
    return graph.with_groups((*(graph.groups or ()), *copies), nodes=nodes, outputs=tuple(outputs), values=values)


def _copy(name: str, result: Value, node_name: str) -> Group:
    """Native where there is a native form of the type, else on the host."""
    node = Node("Identity", (name,), (result.name,), make_attrs({}), node_name)
    t = result.type
    if isinstance(t, TensorType) and t.shape is not None and t.dtype.kind not in "sc":
        return Group(node.name, (node,), (name,), (result.name,), RunsAs.KERNEL)
    node = node.with_attrs(**{HOST: UNTYPED})
    return Group(node.name, (node,), (name,), (result.name,), RunsAs.HOST)


OWN_OUTPUTS = Pass("own_outputs", Level.NONE, Exactness.BIT_EXACT, own_outputs, required=True)
