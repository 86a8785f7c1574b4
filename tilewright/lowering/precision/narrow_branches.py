"""Of two products that are added up one is stored until the other adds it: in bfloat16, as what other kernels store.

The blocks of a residual network that change the size of an image have such a pair, and it is large there: half of the
bytes are written and read. The first of them in the graph takes the Add into its kernel
(:mod:`tilewright.graph_ir.fused.fuse`), and adds in float32; the other one is stored.
"""

from __future__ import annotations

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.precision.casts import read_through_cast, rounded


def narrow_branches(ed: GraphEditor, ctx: PassContext, reduced: frozenset[str]) -> None:
    """Store the last of two products that an Add reads rounded, if both are among those named in ``reduced`` and
    nothing else reads them."""
    order = {n.name: k for k, n in enumerate(ed.nodes.values())}
    for adds in [n for n in ed.nodes.values() if n.op == "Add" and not n.domain]:
        producers = [ed.producer(x) for x in adds.inputs]
        found = {p.name: p for p in producers if p is not None and p.name in reduced and _is_for(ed, p, adds)}
        if len(found) < len(adds.inputs):
            continue
        stored = found[max(found, key=order.__getitem__)]
        (name,) = stored.outputs
        ed.set_anchor(ed.node_id(adds))
        read_through_cast(ed, adds, name, rounded(ed, name), f"{name}.wide")
        ctx.log.fire("bfloat16", stored.name)


def _is_for(ed: GraphEditor, product: Node, adds: Node) -> bool:
    """True if nothing but ``adds`` reads the product."""
    (name,) = product.outputs
    return not ed.is_output(name) and [r.outputs for r in ed.users(name)] == [adds.outputs]
