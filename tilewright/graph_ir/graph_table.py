"""A graph as a table, which notebooks show by themselves; :mod:`tilewright.graph_ir.text` is its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.core.dtypes import DType
from tilewright.core.html.pieces import Html, details, fragment, table, title

if TYPE_CHECKING:
    from tilewright.graph_ir.ir import Graph, Node

_LONGEST = 60
"""Characters of a cell."""


def graph_html(graph: Graph) -> str:
    """Inputs, outputs and nodes with their types; of a fused graph which nodes are one kernel. Not the elements of
    constants."""
    counts = f"{len(graph.nodes)} nodes, {len(graph.constants)} constants"
    if graph.groups is not None:
        counts += f", {len(graph.groups)} groups"
    sides = [(side, x, _type(graph, x)) for side in ("input", "output") for x in getattr(graph, f"{side}s")]
    return fragment(
        title(f"graph {graph.name}", counts),
        table(("", "name", "type"), sides),
        details("nodes", _nodes(graph)),
    )


def _nodes(graph: Graph) -> Html:
    group_of = {n.name: g.name for g in graph.groups or () for n in g.nodes}
    head = ("node", "operator", "inputs", "results", "attributes", *(("group",) if group_of else ()))
    rows = []
    for n in graph.nodes:
        results = ", ".join(f"{o}: {_type(graph, o)}" for o in n.outputs if o)
        row = (n.name, f"{n.domain}::{n.op}" if n.domain else n.op, ", ".join(n.inputs), results, _attributes(n))
        rows.append([_short(cell) for cell in (*row, group_of.get(n.name, ""))][: len(head)])
    return table(head, rows)


def _type(graph: Graph, name: str) -> str:
    value = graph.values.get(name)
    return "unknown" if value is None else str(value.type)


def _attributes(node: Node) -> str:
    return ", ".join(f"{k}={_value(v)}" for k, v in node.attrs)


def _value(value: Any) -> str:
    """Short ones as they are; of arrays and graphs what they are."""
    if isinstance(value, int | float | str | tuple | DType | None):
        return str(value)
    nodes = getattr(value, "nodes", None)
    return f"{value.dtype}{list(value.shape)}" if nodes is None else f"a graph of {len(nodes)} nodes"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"
