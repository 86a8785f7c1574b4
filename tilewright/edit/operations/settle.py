"""A graph after edits as one that holds: nodes in order, types inferred."""

from __future__ import annotations

import heapq

from tilewright.core.errors import InputError
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph, Node, node_reads


def settled(model: OnnxModel, since: Graph | None = None) -> OnnxModel:
    """The model with its nodes in topological order and its types inferred.

    ``since``: the settled graph that this one was made from. Raises InputError for a cycle, ModelError, naming the
    node, for what does not fit.
    """
    graph = model.graph.replace(nodes=in_order(model.graph), assumptions=())
    return model.with_graph(infer_graph(graph, since))


def in_order(graph: Graph) -> tuple[Node, ...]:
    """The nodes so that each stands behind those that it reads from; otherwise as they stand. Raises InputError."""
    producer = {o: k for k, n in enumerate(graph.nodes) for o in n.outputs if o}
    needs = [{producer[i] for i in node_reads(n) if i in producer} for n in graph.nodes]
    if all(not need or max(need) < k for k, need in enumerate(needs)):
        return graph.nodes
    waiting = [len(need) for need in needs]
    readers: dict[int, list[int]] = {}
    for k, need in enumerate(needs):
        for p in need:
            readers.setdefault(p, []).append(k)
    ready = [k for k, w in enumerate(waiting) if w == 0]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for k in readers.get(order[-1], ()):
            waiting[k] -= 1
            if waiting[k] == 0:
                heapq.heappush(ready, k)
    if len(order) < len(needs):
        cycle = " -> ".join(f"'{graph.nodes[k].name}'" for k in _cycle(needs, set(order)))
        raise InputError(f"graph '{graph.name}': expected nodes without a cycle, got {cycle}")
    return tuple(graph.nodes[k] for k in order)


def _cycle(needs: list[set[int]], done: set[int]) -> list[int]:
    """One cycle among the nodes that never became ready, in the direction of the data."""
    k = next(k for k in range(len(needs)) if k not in done)
    path: list[int] = []
    while k not in path:
        path.append(k)
        k = next(p for p in sorted(needs[k]) if p not in done)
    return [k, *reversed(path[path.index(k) :])]


def depth_first(graph: Graph) -> tuple[Node, ...]:
    """The nodes in the order in which the outputs ask for them: each as near as can be behind what it reads. Those
    that no output needs come last."""
    producer = {o: n for n in graph.nodes for o in n.outputs if o}
    placed: dict[str, Node] = {}
    for root in (*(producer[o] for o in graph.outputs if o in producer), *graph.nodes):
        todo = [root]
        while todo:
            node = todo[-1]
            missing = [p for i in node_reads(node) if (p := producer.get(i)) is not None and p.name not in placed]
            if missing and node.name not in placed:
                todo.extend(reversed(missing))
            else:
                placed.setdefault(node.name, todo.pop())
    return tuple(placed.values())
