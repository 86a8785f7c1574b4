"""An output that is an input with some elements replaced becomes a copy and an update of the copy where it lies.

The copy is a kernel of its own (with the padding in front of it, if there is any), so that it can be left out where the
caller gives the same memory for both: then only what is new is written. That is allowed where every other reader of the
input has run before the update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graph_ir.fused.shape_program import SIZES
from tilewright.graph_ir.ir import Graph, Group, Node, Value, make_attrs, node_reads
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext, with_inputs

IN_PLACE = "in_place"
"""The attribute of a node whose result takes the memory of the operand that it updates; 1."""


def updated_operand(node: Node) -> str | None:
    """The operand that ``node`` gives with some elements replaced; None if it is no such node."""
    at = op_def(node).updates
    return None if at is None or node.attr("reduction", "none") != "none" else node.inputs[at]


def copies_in_place(graph: Graph) -> dict[str, tuple[str, str]]:
    """Copy -> (the output that it becomes, the input that it is a copy of), for each update in place."""
    makers = graph.producers()
    updates = (n for n in graph.nodes if n.attr(IN_PLACE))
    return {c: (n.outputs[0], makers[c].inputs[0]) for n in updates if (c := updated_operand(n)) is not None}


def update_in_place(graph: Graph, ctx: PassContext) -> Graph:
    """The fused graph with copies apart from the updates of them. A body's outputs have memory that takes turns."""
    if ctx.outer_values:
        return graph
    groups = list(graph.groups or ())
    values, before = dict(graph.values), dict[str, Node]()
    for group in graph.groups or ():
        node = group.nodes[-1]
        copied = updated_operand(node) if group.runs_as is RunsAs.KERNEL else None
        if copied is None or node.outputs[0] not in graph.outputs or node.attr(SIZES) is not None:
            continue
        pad = _padding(copied, groups, values)
        source = copied if pad is None else pad.inputs[0]
        if source not in graph.inputs:
            continue
        at = groups.index(group)
        reason = _why_not(groups, at, source, pad)
        if reason is not None:
            ctx.log.refuse("update_in_place", node.name, reason)
            continue
        if pad is None:
            copied = ctx.names.fresh(f"{source}.copy")
            values[copied] = Value(copied, values[source].type)
            pad = Node("Identity", (source,), (copied,), make_attrs({}), ctx.names.fresh(f"copy_{source}"))
            before[node.name] = pad
        groups[at : at + 1] = _apart(group, pad)
        ctx.log.fire("update_in_place", node.name)
    if groups == list(graph.groups or ()):
        return graph
    nodes = [x for n in graph.nodes for x in ((before[n.name], n) if n.name in before else (n,))]
    return graph.with_groups(groups, nodes=tuple(nodes), values=values)


def _padding(copied: str, groups: Sequence[Group], values: dict[str, Value]) -> Node | None:
    """The Pad that makes ``copied``, which is its operand wherever both have the same sizes."""
    pad = next((n for g in groups for n in g.nodes if copied in n.outputs), None)
    if pad is None or pad.op != "Pad" or len(pad.inputs) > 3:
        return None
    pads = values[pad.inputs[1]].data if pad.inputs[1] in values else None
    return pad if pads and all(d.value() == 0 for d in pads[: len(pads) // 2]) else None


def _why_not(groups: Sequence[Group], at: int, source: str, pad: Node | None) -> str | None:
    """Why the update that ends the group at ``at`` may not happen where ``source`` lies; None if it may."""
    node = groups[at].nodes[-1]
    own, reads = {node.name}, node.inputs.count(source)
    if pad is not None:
        home = next(g for g in groups if pad in g.nodes)
        if home is not groups[at] and len(home.nodes) > 1:
            return f"{pad.name} shares a kernel with others"
        own.add(pad.name)
        reads += _count(groups, pad.outputs[0])
    if reads != 1:
        return "what it updates has other readers"
    seen = {source}
    for k, g in enumerate(groups):
        readers = [n for n in g.nodes if n.name not in own and not seen.isdisjoint(node_reads(n))]
        if not readers:
            continue
        if g.runs_as is RunsAs.VIEW:
            seen.update(g.outputs)
        elif g.runs_as is not RunsAs.KERNEL:
            return f"{readers[0].name} may keep '{source}'"
        elif k >= at:
            return f"{readers[0].name} reads '{source}' after it"
    return None


def _count(groups: Sequence[Group], name: str) -> int:
    return sum(i == name for g in groups for n in g.nodes for i in node_reads(n))


def _apart(group: Group, copy: Node) -> list[Group]:
    """The group of the copy, unless it stands alone already, and that of the update."""
    *others, node = group.nodes
    (copied,) = copy.outputs
    update = with_inputs(node, tuple(copied if i == copy.inputs[0] else i for i in node.inputs))
    nodes = (*(n for n in others if n is not copy), update.with_attrs(**{IN_PLACE: 1}))
    made = {o for n in nodes for o in n.outputs}
    reads = {i for n in nodes for i in node_reads(n)} - made
    inputs = tuple(i for i in dict.fromkeys((copied, *group.inputs)) if i in reads)
    rest = dataclasses.replace(group, nodes=nodes, inputs=inputs)
    if copied in group.inputs:
        return [rest]
    own = tuple(i for i in dict.fromkeys((copy.inputs[0], *group.inputs)) if i in copy.inputs)
    return [Group(copy.name, (copy,), own, (copied,), RunsAs.KERNEL), rest]


UPDATE_IN_PLACE = Pass("update_in_place", Level.NONE, Exactness.BIT_EXACT, update_in_place)
