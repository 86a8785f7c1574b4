"""The account of implementations: for each node with several what each is estimated to cost, which one was chosen and
by whom, and why others do not apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.graph_ir.ir import Graph, Value
from tilewright.lowering.choose_implementation import Alternatives, Wanted, alternatives_of
from tilewright.lowering.implementations.base import chosen
from tilewright.machine.target import Target


def explain_implementations(graph: Graph, target: Target, wanted: Wanted, replaced: Mapping[str, str]) -> str:
    """Plain text; nodes of which the same is said stand together. ``graph``: as it was lowered. ``replaced``: what
    nodes with another implementation by a record would have without it."""
    nodes: dict[str, list[str]] = {}
    for c in _everywhere(graph, target, wanted, {}):
        name = c.node.name
        by_record = f"record (without it {replaced[name]})" if name in replaced else "estimate"
        nodes.setdefault(_account(c, "user" if name in wanted.names else by_record), []).append(name)
    title = "implementations (in millions of multiply-adds; the error as a share of a channel's root mean square):"
    return "\n".join([title, *(f"  {', '.join(names)} {text}" for text, names in nodes.items())])


def chosen_implementations(graph: Graph, target: Target, wanted: Wanted) -> dict[str, str]:
    """By node, in the graph and its bodies, what computes it, of nodes that can be computed in several ways."""
    return {c.node.name: chosen(c.ways, c.facts).name for c in _everywhere(graph, target, wanted, {})}


def _everywhere(graph: Graph, target: Target, wanted: Wanted, outer: Mapping[str, Value]) -> Iterator[Alternatives]:
    yield from alternatives_of(graph, target, wanted.table, outer)
    for node in graph.nodes:
        for _, body in node.subgraphs():
            yield from _everywhere(body, target, wanted, {**outer, **graph.values})


def _account(c: Alternatives, who: str) -> str:
    can, cannot = [], []
    for i in c.ways:
        refusal = i.refusal(c.facts)
        if refusal is not None:
            cannot.append(f"{i.name} ({refusal})")
            continue
        notes = []
        if i.error is not None:
            error = c.error(i)
            notes.append(f"error {error:.1e}" + ("" if error <= c.limit else f", limit {c.limit:.0e}"))
        if i.spreads:
            notes.append("spreads infinities and NaN")
        if i.measured:
            notes.append("only by a record or a user")
        cost = i.cost(c.facts)
        can.append((cost, f"{i.name} {cost / 1e6:.3g}" + (f" ({'; '.join(notes)})" if notes else "")))
    lines = [f"({c.node.op}): {chosen(c.ways, c.facts).name}, by {who}", ", ".join(text for _, text in sorted(can))]
    if cannot:
        lines.append(f"not {', '.join(cannot)}")
    return "\n    ".join(lines)
