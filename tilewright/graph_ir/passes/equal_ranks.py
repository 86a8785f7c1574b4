"""``If`` whose branches give one value in two ranks: the smaller gets leading dims of 1 where nobody can tell.

Exporters write a number as a scalar in one branch and as a list of one element in the other. The rank of the result is
then known to a call only, and no kernel can read it. A value that only elementwise operators read, each beside an
operand of at least the larger rank, may as well have that rank: broadcasting adds the same dims.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value
from tilewright.graph_ir.ops.arithmetic import OPS as BROADCASTING
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor

_BRANCHES = ("then_branch", "else_branch")


def equal_ranks(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with such branches of one rank."""
    if not any(n.op == "If" for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    for k in list(ed.nodes):
        node = ed.nodes[k]
        if node.op == "If":
            _raise_ranks(ed, node, ctx)
        elif not ed.sharpened.isdisjoint(node.inputs) and not any(True for _ in node.subgraphs()):
            ed.infer_again(node)
    return ed.finish()


def _raise_ranks(ed: GraphEditor, node: Node, ctx: PassContext) -> None:
    branches = {key: g for key in _BRANCHES if isinstance(g := node.attr(key), Graph)}
    for at, name in enumerate(node.outputs):
        ranks = {key: _rank(g.values.get(g.outputs[at])) for key, g in branches.items()}
        known = [r for r in ranks.values() if r is not None]
        if not name or len(known) < len(_BRANCHES) or len(set(known)) == 1:
            continue
        rank = max(known)
        if not _is_broadcast(ed, name, rank):
            ctx.log.refuse("equal_ranks", node.name, f"the rank of {name} is {' or '.join(map(str, known))}")
            continue
        for key, r in zip(_BRANCHES, known, strict=True):
            if r < rank:
                branches[key] = _with_leading_dims(branches[key], at, range(rank - r), ctx)
        ctx.log.fire("equal_ranks", node.name)
    if any(branches[key] is not node.attr(key) for key in branches):
        ed.replace_node(node, node.with_attrs(**branches))


def _rank(v: Value | None) -> int | None:
    return len(v.type.shape) if v is not None and isinstance(v.type, TensorType) and v.type.shape is not None else None


def _is_broadcast(ed: GraphEditor, name: str, rank: int) -> bool:
    """True if all that read the value broadcast it to ``rank`` or more dims."""
    if ed.is_output(name):
        return False
    return all(
        node.op in BROADCASTING
        and any((r := _rank(ed.value(i))) is not None and r >= rank for i in node.inputs if i and i != name)
        for node in ed.users(name)
    )


def _with_leading_dims(branch: Graph, at: int, axes: Sequence[int], ctx: PassContext) -> Graph:
    """The branch with dims of 1 before those of its output ``at``."""
    old = branch.outputs[at]
    new, places = ctx.names.fresh(f"{old}.raised"), ctx.names.fresh(f"{old}.axes")
    node = Node("Unsqueeze", (old, places), (new,), (), ctx.names.fresh(f"{new}.node"))
    constant = Constant(np.array(axes, np.int64))
    values = {**branch.values, places: constant_value(places, constant)}
    constants = {**branch.constants, places: constant}
    (value,) = infer_node(node, values, constants, ctx.names.symbols)
    return branch.replace(
        nodes=(*branch.nodes, node), outputs=(*branch.outputs[:at], new, *branch.outputs[at + 1 :]),
        values={**values, new: value}, constants=constants,
    )  # fmt: skip


EQUAL_RANKS = Pass("equal_ranks", Level.BASIC, Exactness.BIT_EXACT, equal_ranks)
