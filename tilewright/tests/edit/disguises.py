"""The same graph under other names and in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tilewright.core.arith.expr import var
from tilewright.graph_ir.ir import Graph, Node, captured, node_reads, walk_graphs
from tilewright.graph_ir.symbols import graph_with, symbols_in


def disguised(graph: Graph, rng: np.random.Generator) -> tuple[Graph, dict[str, str]]:
    """``graph`` with every node, value, constant and dimension renamed and its nodes in another order, and the new
    names of its values and nodes."""
    values = sorted({v for g in walk_graphs(graph) for v in _values(g)})
    nodes = sorted({n.name for g in walk_graphs(graph) for n in g.nodes})
    numbers = rng.permutation(len(values) + len(nodes))
    names = {old: f"z{k}" for old, k in zip(values, numbers, strict=False)}
    labels = {old: f"m{k}" for old, k in zip(nodes, numbers[len(values) :], strict=True)}
    dims = {s: var(f"d{i}") for i, s in enumerate(sorted(symbols_in(graph.values)))}
    return graph_with(_renamed(graph, names, labels, rng), dims), names | labels


def _values(g: Graph) -> set[str]:
    return {*g.inputs, *g.constants, *captured(g), *(o for n in g.nodes for o in n.outputs if o)}


def _renamed(g: Graph, names: Mapping[str, str], labels: Mapping[str, str], rng: np.random.Generator) -> Graph:
    def node(n: Node) -> Node:
        bodies = {k: _renamed(body, names, labels, rng) for k, body in n.subgraphs()}
        inputs, outputs = (tuple(names[x] if x else "" for x in side) for side in (n.inputs, n.outputs))
        return dataclasses.replace(n.with_attrs(**bodies), inputs=inputs, outputs=outputs, name=labels[n.name])

    constants = list(g.constants)
    rng.shuffle(constants)
    return g.replace(
        name="disguised",
        inputs=tuple(names[x] for x in g.inputs),
        outputs=tuple(names[x] for x in g.outputs),
        nodes=tuple(map(node, shuffled(g, rng))),
        values={names[k]: dataclasses.replace(v, name=names[k]) for k, v in g.values.items() if k in names},
        constants={names[k]: g.constants[k] for k in constants},
    )


def shuffled(g: Graph, rng: np.random.Generator) -> list[Node]:
    """The nodes in another topological order."""
    left, made = list(g.nodes), {o for n in g.nodes for o in n.outputs}
    out: list[Node] = []
    while left:
        ready = [n for n in left if all(x not in made for x in node_reads(n))]
        out.append(ready[rng.integers(len(ready))])
        left.remove(out[-1])
        made -= set(out[-1].outputs)
    return out
