"""Dimension symbols in a graph: which of them a value mentions, and what they turn out to be.

Inference gives a size that it cannot tell a symbol of its own. A rewrite may tell it later: the node that the symbol
came from goes, or its operands become constants. Then the symbol becomes what is known of it wherever it occurs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tilewright.core.arith.expr import IntExpr
from tilewright.core.assumptions import Assumption, Ones
from tilewright.graph_ir.ir import Graph, OptionalType, SequenceType, TensorType, Type, UnknownType, Value, walk_graphs

Known = Mapping[str, IntExpr]


def type_symbols(t: Type | None) -> set[str]:
    """Symbols in the sizes of a type."""
    return {s for d in type_sizes(t) if d.terms for s in d.free_vars()}


def type_sizes(t: Type | None) -> tuple[IntExpr, ...]:
    """The sizes of a tensor, or of those in a sequence or an optional."""
    if isinstance(t, TensorType):
        return t.shape or ()
    return type_sizes(t.element) if isinstance(t, (SequenceType, OptionalType)) else ()


def value_symbols(v: Value) -> set[str]:
    """Symbols in the sizes and known elements of a value."""
    return {s for d in value_sizes(v) if d.terms for s in d.free_vars()}


def value_sizes(v: Value) -> tuple[IntExpr, ...]:
    """The sizes and known elements of a value."""
    return (*type_sizes(v.type), *(v.data or ()))


def symbols_in(values: Mapping[str, Value]) -> set[str]:
    """Every symbol that the types and elements of ``values`` mention."""
    return {s for v in values.values() for s in value_symbols(v)}


def symbols_in_all(graph: Graph) -> set[str]:
    """Every symbol that the graph and its subgraphs mention."""
    return {s for g in walk_graphs(graph) for v in g.values.values() for s in value_symbols(v)}


def value_with(v: Value, known: Known) -> Value:
    """The value with the symbols of ``known`` replaced; the same object if it has none of them."""
    if not known or value_symbols(v).isdisjoint(known):
        return v
    return map_sizes(v, lambda d: d.substitute(known))


def map_sizes(v: Value, f: Callable[[IntExpr], IntExpr]) -> Value:
    """The value with ``f`` of its sizes and known elements."""
    return dataclasses.replace(v, type=_map_type(v.type, f), data=None if v.data is None else tuple(map(f, v.data)))


def graph_with(graph: Graph, known: Known) -> Graph:
    """The graph with the symbols of ``known`` replaced in it and its subgraphs; the same object if there are none."""
    values = {name: value_with(v, known) for name, v in graph.values.items()}
    nodes = []
    for n in graph.nodes:
        bodies = {k: graph_with(g, known) for k, g in n.subgraphs()}
        nodes.append(n.with_attrs(**bodies) if any(bodies[k] is not g for k, g in n.subgraphs()) else n)
    assumptions = assumptions_with(graph.assumptions, known)
    if (
        assumptions == graph.assumptions
        and all(values[name] is v for name, v in graph.values.items())
        and all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    ):
        return graph
    return graph.replace(values=values, nodes=tuple(nodes), assumptions=assumptions)


def assumptions_with(assumptions: tuple[Assumption, ...], known: Known) -> tuple[Assumption, ...]:
    """The assumptions with the symbols of ``known`` replaced, without those that hold by now."""
    replaced = (
        dataclasses.replace(a, left=a.left.substitute(known), right=a.right.substitute(known)) for a in assumptions
    )
    return tuple(dict.fromkeys(a for a in replaced if not _holds(a)))


def _holds(a: Assumption) -> bool:
    return (a.left - a.right).value() not in (None, 0) if a.ones is Ones.APART else a.left == a.right


def _map_type(t: Type, f: Callable[[IntExpr], IntExpr]) -> Type:
    if isinstance(t, TensorType):
        return TensorType(t.dtype, None if t.shape is None else tuple(map(f, t.shape)))
    if isinstance(t, UnknownType):
        return t
    return dataclasses.replace(t, element=None if t.element is None else _map_type(t.element, f))
