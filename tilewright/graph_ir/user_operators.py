"""Operators that users bring along: in a graph that is built their nodes are ours, under the name ``domain::operator``
and with their definition; in a graph that is read to be written they are foreign."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.ops.base import OpDef

_SEPARATOR = "::"

Operators = Mapping[str, OpDef]
"""Definitions by :func:`qualified` name."""

NO_OPERATORS: Operators = MappingProxyType({})


def qualified(domain: str, op: str) -> str:
    """What a user's operator is called among ours: ``com.example::Cube``."""
    return f"{domain}{_SEPARATOR}{op}"


def is_qualified(op: str) -> bool:
    """True for what :func:`qualified` gives."""
    return _SEPARATOR in op


def with_operators(graph: Graph, operators: Operators) -> Graph:
    """The graph with those of its foreign nodes known that have a definition here. Types are to be inferred anew."""

    def known(node: Node) -> Node:
        name = qualified(node.domain, node.op)
        if not node.domain or name not in operators:
            return node
        return dataclasses.replace(node, op=name, domain="", definition=operators[name])

    return _each(graph, known)


def without_operators(graph: Graph) -> Graph:
    """The graph with the nodes of users' operators foreign again, as a file has them."""

    def foreign(node: Node) -> Node:
        if node.definition is None:
            return node
        domain, _, op = node.op.rpartition(_SEPARATOR)
        return dataclasses.replace(node, op=op, domain=domain, definition=None)

    return _each(graph, foreign)


def _each(graph: Graph, form: Callable[[Node], Node]) -> Graph:
    """The graph with each node in another form, those of subgraphs too; the same object if nothing changed."""
    nodes = []
    for node in graph.nodes:
        bodies = {key: (body, _each(body, form)) for key, body in node.subgraphs()}
        changed = {key: new for key, (old, new) in bodies.items() if new is not old}
        nodes.append(form(node.with_attrs(**changed) if changed else node))
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.replace(nodes=tuple(nodes))
