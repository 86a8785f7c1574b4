"""Names of one graph or function body, and the order of its nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import onnx

from tilewright.core.errors import ModelError


class Scope:
    """ONNX name -> unique name, with the scopes around it. Functions have none around them."""

    __slots__ = ("label", "names", "parent")

    def __init__(self, parent: Scope | None, label: str) -> None:
        self.parent = parent
        self.label = label
        self.names: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        """The unique name that ``name`` means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def define(self, name: str, unique: str) -> None:
        """Raises ModelError if this scope has the name already."""
        if name in self.names:
            raise ModelError(f"{self.label}: value {name!r} is defined twice")
        self.names[name] = unique


def proto_reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, including what its subgraphs read from outside."""
    yield from (i for i in node.input if i)
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield from _captured(a.g)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    for n in graph.node:
        defined.update(n.output)
    for n in graph.node:
        yield from (r for r in proto_reads(n) if r not in defined)
    yield from (o.name for o in graph.output if o.name not in defined)


def in_order(nodes: Sequence[onnx.NodeProto], label: str) -> Sequence[onnx.NodeProto]:
    """The nodes in topological order: as they stand where that is one. Raises ModelError for a cycle."""
    producer: dict[str, int] = {}
    for k, n in enumerate(nodes):
        for o in n.output:
            if o:
                producer.setdefault(o, k)
    needs = [{producer[r] for r in proto_reads(n) if r in producer} for n in nodes]
    if all(not need or max(need) < k for k, need in enumerate(needs)):
        return nodes
    users: dict[int, list[int]] = {}
    waiting = [len(need) for need in needs]
    for k, need in enumerate(needs):
        for p in need:
            users.setdefault(p, []).append(k)
    ready = [k for k, w in enumerate(waiting) if w == 0]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for user in users.get(k, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        done = set(order)
        stuck = [n.name or n.op_type for k, n in enumerate(nodes) if k not in done]
        raise ModelError(f"{label}: nodes form a cycle: {', '.join(stuck[:5])}{', ...' if len(stuck) > 5 else ''}")
    return [nodes[k] for k in order]
