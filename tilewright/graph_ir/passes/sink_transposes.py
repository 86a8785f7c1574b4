"""Transposes move down through operators that do not care, meet others, and cancel.

Equation, for an operator ``f`` without a fixed place for an axis: ``f(Transpose(a, q)) == Transpose(f'(a), q')``.
"""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.passes.layout_moves import Mover, Perm, inverse, move


def sink_transposes(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with Transposes as far down as that costs no further Transpose."""
    if not any(n.op == "Transpose" for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    mover = Mover(ed, eager=False)
    for k in list(ed.nodes):
        node = ed.nodes.get(k)
        if node is not None:
            sink_one(mover, node, k, "sink_transposes")
    return ed.finish()


def sink_one(mover: Mover, node: Node, k: int, what: str) -> None:
    """Moves the Transposes in front of ``node`` behind it, or records why not."""
    ed = mover.ed
    if node.domain or not any(mover.alternative(i) for i in node.inputs if i):
        return
    ed.set_anchor(k)
    moved = move(mover, node)
    if isinstance(moved, str):
        if moved:
            ed.ctx.log.refuse(what, node.name, moved)
        return
    ed.ctx.log.fire(what, node.name)
    install(mover, node, moved)


def install(mover: Mover, node: Node, moved: list[tuple[str, Perm]]) -> None:
    """Readers of the node's outputs read Transposes of the moved values instead."""
    ed = mover.ed
    for old, (new, perm) in zip(node.outputs, moved, strict=False):
        if not old or not new:
            continue
        ed.refine(new, old, perm)
        back = inverse(perm)
        ed.replace_uses(old, new if back == tuple(range(len(back))) else mover.transpose(new, back))
    ed.drop_if_dead(next(o for o in node.outputs if o))


SINK_TRANSPOSES = Pass("sink_transposes", Level.EXTENDED, Exactness.BIT_EXACT, sink_transposes)
