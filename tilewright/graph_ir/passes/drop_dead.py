"""Dead code: nodes and constants that no output depends on."""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, node_reads
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext


def drop_dead(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with only what its outputs need."""
    needed = set(graph.outputs)
    kept = []
    for n in reversed(graph.nodes):
        if not any(o in needed for o in n.outputs):
            ctx.log.fire("drop_dead", n.name)
            continue
        kept.append(n)
        needed.update(node_reads(n))
    constants = {k: c for k, c in graph.constants.items() if k in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    nodes = tuple(reversed(kept))
    defined = {*graph.inputs, *graph.outputs, *constants, *(o for n in nodes for o in n.outputs if o)}
    values = {k: v for k, v in graph.values.items() if k in defined}
    return graph.replace(nodes=nodes, constants=constants, values=values)


DROP_DEAD = Pass("drop_dead", Level.BASIC, Exactness.BIT_EXACT, drop_dead)
