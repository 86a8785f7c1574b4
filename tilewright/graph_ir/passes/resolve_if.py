"""``If`` with a constant condition: the chosen branch's nodes take its place."""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext


def resolve_if(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with every decided ``If`` inlined."""
    if not any(n.op == "If" for n in graph.nodes):
        return graph
    nodes: list[Node] = []
    values = dict(graph.values)
    constants = dict(graph.constants)
    assumptions = dict.fromkeys(graph.assumptions)
    changed = False
    for n in graph.nodes:
        condition = ctx.constant(graph, n.inputs[0]) if n.op == "If" else None
        if n.op != "If" or condition is None:
            if n.op == "If":
                ctx.log.refuse("resolve_if", n.name, "the condition is not constant")
            nodes.append(n)
            continue
        branch = n.attr("then_branch" if bool(condition.array.reshape(-1)[0]) else "else_branch")
        if not isinstance(branch, Graph):
            nodes.append(n)
            continue
        nodes.extend(branch.nodes)
        constants.update(branch.constants)
        values.update(branch.values)
        assumptions.update(dict.fromkeys(branch.assumptions))
        for outer, inner in zip(n.outputs, branch.outputs, strict=True):
            if outer:
                nodes.append(Node("Identity", (inner,), (outer,), (), ctx.names.fresh(f"{n.name}.{inner}")))
        ctx.log.fire("resolve_if", n.name)
        changed = True
    if not changed:
        return graph
    return graph.replace(nodes=tuple(nodes), values=values, constants=constants, assumptions=tuple(assumptions))


RESOLVE_IF = Pass("resolve_if", Level.BASIC, Exactness.BIT_EXACT, resolve_if)
