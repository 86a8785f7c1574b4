"""Partition: which nodes run at all, which of them native code takes, and why the others run on the host.

The reason stands on the node, as its attribute ``host``; every later pass, listing and plan reads it there. Nodes that
only compute shapes which are known as expressions over the dim symbols need not run: their readers take ``Value.data``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.graph_ir.data_dependent_shapes import new_symbols
from tilewright.graph_ir.fused.shape_program import RUNS, is_sized
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, node_reads, walk_graphs
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext, visible_values
from tilewright.graph_ir.symbols import symbols_in, value_symbols

HOST = "host"
"""Attribute of a node that runs on the host (ours): why."""

UNTYPED = "string, sequence or complex values, or an unknown rank"


def partition(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with the attribute ``host`` on each node that no native code takes, and ``runs: never`` on those that
    nothing reads. Raises UnsupportedError where the host may not stand in."""
    whole = graph.replace(values=visible_values(graph, ctx))
    reasons: dict[str, str | None] = {}

    def reason(node: Node) -> str | None:
        if node.name not in reasons:
            reasons[node.name] = _host_reason(whole, node, ctx)
        return reasons[node.name]

    never = shape_only_nodes(whole, lambda n: reason(n) is not None)
    nodes = []
    for node in graph.nodes:
        if node.attr(RUNS) is not None:
            pass
        elif node.name in never:
            node = node.with_attrs(**{RUNS: "never"})
            ctx.log.fire("never runs", node.name)
        elif (why := reason(node)) is not None:
            node = node.with_attrs(**{HOST: why})
            ctx.log.refuse("native code", node.name, why)
        nodes.append(node)
    return graph.replace(nodes=tuple(nodes))


def pattern_kind(node: Node) -> PatternKind:
    """The kind of a node of a partitioned graph: HOST where it runs there."""
    return op_def(node).kind if node.attr(HOST) is None else PatternKind.HOST


def _host_reason(graph: Graph, node: Node, ctx: PassContext) -> str | None:
    op = op_def(node)
    if op.kind is PatternKind.CONTROL:
        return None
    if op.kind is PatternKind.HOST:
        return op.host or UNTYPED
    refusal = None if ctx.backend is None else ctx.backend.host_reason(graph, node)
    if refusal is not None:
        return op.host or refusal
    untyped = any(_is_untyped(graph.values.get(name)) for name in (*node.inputs, *node.outputs) if name)
    return op.host or UNTYPED if untyped else None


def _is_untyped(v: Value | None) -> bool:
    if v is None:
        return False
    return not isinstance(v.type, TensorType) or v.type.shape is None or v.type.dtype.kind in "sc"


def shape_only_nodes(graph: Graph, is_on_host: Callable[[Node], bool]) -> frozenset[str]:
    """Names of nodes that nothing reads: all their readers are kernels that take known elements (of operands in
    ``OpDef.shape_operands``), or nodes that run once and take shapes.

    A node whose sizes only running it tells is needed where those sizes are.
    """
    needed: set[str] = set(graph.outputs)
    sizes: set[str] = set()
    skipped: set[str] = set()
    for n in reversed(graph.nodes):
        if not any(o in needed for o in n.outputs) and sizes.isdisjoint(_symbols_made(n, graph.values)):
            skipped.add(n.name)
            continue
        for name in (*n.inputs, *n.outputs):
            if name in graph.values:
                sizes |= value_symbols(graph.values[name])
        if op_def(n).queries_shape and n.attr(RUNS) == "once":
            continue
        by_value = () if is_sized(n, graph.values) else op_def(n).shape_operands
        if by_value and is_on_host(n):
            by_value = ()
        for k, i in enumerate(n.inputs):
            v = graph.values.get(i)
            if i and not (k in by_value and v is not None and v.data is not None):
                needed.add(i)
        for _, g in n.subgraphs():
            needed.update(node_reads_of(g))
            sizes |= {s for inner in walk_graphs(g) for s in symbols_in(inner.values)}
    return frozenset(skipped)


def _symbols_made(node: Node, values: Mapping[str, Value]) -> set[str]:
    if not any(o in values and value_symbols(values[o]) for o in node.outputs):
        return set()
    return new_symbols(node, values)


def node_reads_of(graph: Graph) -> set[str]:
    """Every name that a subgraph's nodes and outputs mention."""
    return {i for n in graph.nodes for i in node_reads(n)} | set(graph.outputs)


PARTITION = Pass("partition", Level.NONE, Exactness.BIT_EXACT, partition, required=True)
