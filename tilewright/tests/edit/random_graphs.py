"""Random graphs, and changes of them whose difference is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Constant, Graph, Node

WIDTH = 8


def random_graph(rng: np.random.Generator, count: int = 40) -> Graph:
    """About ``count`` nodes on two inputs of [n, 8]: products with weights, sums, branches that join, activations."""
    b = GraphBuilder("random")
    values = [b.input("x", "float32", ("n", WIDTH)), b.input("y", "float32", ("n", WIDTH))]
    read: set[str] = set()

    def pick() -> str:
        late = values[-int(rng.integers(1, min(len(values), 6) + 1))]
        read.add(late)
        return late

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for _ in range(count):
        kind = rng.integers(6)
        if kind == 0:
            out = b.op("MatMul", pick(), weight(WIDTH, WIDTH))
        elif kind == 1:
            out = b.op("Add", pick(), weight(WIDTH))
        elif kind == 2:
            out = b.op(str(rng.choice(["Add", "Mul", "Sub"])), pick(), pick())
        elif kind == 3:
            out = b.op("LeakyRelu", pick(), alpha=float(rng.integers(1, 9)) / 16)
        elif kind == 4:
            out = b.op(str(rng.choice(["Relu", "Tanh", "Sigmoid"])), pick())
        else:
            out = b.op("MatMul", b.op("Concat", pick(), pick(), axis=1), weight(2 * WIDTH, WIDTH))
        values.append(out)
    return b.build(*[v for v in values[2:] if v not in read])


@dataclass(frozen=True)
class Mutation:
    """A changed graph, and its only difference: the group it is in, the node or constant (by its name in ``graph``),
    and words of its text."""

    graph: Graph
    group: str
    name: str
    words: str = ""


def change_attribute(g: Graph, rng: np.random.Generator) -> Mutation:
    n = _pick(g, rng, lambda n: n.op == "LeakyRelu")
    return Mutation(_with(g, n, n.with_attrs(alpha=0.75)), "changed", n.name, f"alpha {n.attr('alpha')} -> 0.75")


def change_weight(g: Graph, rng: np.random.Generator) -> Mutation:
    name = str(rng.choice(sorted(g.constants)))
    array = g.constants[name].array.copy()
    places = rng.choice(array.size, int(rng.integers(1, 4)), replace=False)
    array.reshape(-1)[places] += 0.5
    changed = infer_graph(g.replace(constants={**g.constants, name: Constant(array)}))
    words = f"{len(places)} of {array.size} elements differ, largest difference 0.5"
    return Mutation(changed, "constants", name, words)


def insert_node(g: Graph, rng: np.random.Generator) -> Mutation:
    n = _pick(g, rng, lambda n: True)
    place = int(rng.integers(len(n.inputs)))
    while n.inputs[place] in g.constants:
        place = int(rng.integers(len(n.inputs)))
    new = Node("Neg", (n.inputs[place],), ("inserted",), (), "n_inserted")
    reader = dataclasses.replace(n, inputs=(*n.inputs[:place], "inserted", *n.inputs[place + 1 :]))
    return Mutation(_with(g, n, new, reader), "inserted", "n_inserted")


def remove_node(g: Graph, rng: np.random.Generator) -> Mutation:
    n = _pick(g, rng, lambda n: len(n.inputs) == 1 and n.outputs[0] not in g.outputs)
    bypassed = [
        dataclasses.replace(m, inputs=tuple(n.inputs[0] if x == n.outputs[0] else x for x in m.inputs))
        for m in g.nodes
        if m is not n
    ]
    return Mutation(_inferred(g, bypassed), "removed", n.name)


def replace_operator(g: Graph, rng: np.random.Generator) -> Mutation:
    n = _pick(g, rng, lambda n: len(n.inputs) == 1)
    new = dataclasses.replace(n, op="Neg", attrs=())
    return Mutation(_with(g, n, new), "changed", n.name, f"{n.op} -> Neg")


def move_operand(g: Graph, rng: np.random.Generator) -> Mutation:
    """A node of two operands reads the graph's first input instead of the first of them."""
    n = _pick(g, rng, lambda n: len(n.inputs) == 2 and n.inputs[0] not in g.inputs and n.inputs[1] not in g.constants)
    moved = dataclasses.replace(n, inputs=("x", *n.inputs[1:]))
    return Mutation(_with(g, n, moved), "changed", n.name, "operand 0: ")


MUTATIONS: Mapping[str, Callable[[Graph, np.random.Generator], Mutation]] = {
    "attribute": change_attribute,
    "weight": change_weight,
    "insert": insert_node,
    "remove": remove_node,
    "operator": replace_operator,
    "operand": move_operand,
}


def _pick(g: Graph, rng: np.random.Generator, fits: Callable[[Node], bool]) -> Node:
    found = [n for n in g.nodes if fits(n)]
    return found[rng.integers(len(found))]


def _with(g: Graph, node: Node, *new: Node) -> Graph:
    return _inferred(g, [m for n in g.nodes for m in (new if n is node else (n,))])


def _inferred(g: Graph, nodes: list[Node]) -> Graph:
    return infer_graph(g.replace(nodes=tuple(nodes), values={x: g.values[x] for x in g.inputs}))
