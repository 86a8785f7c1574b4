"""Random edits of graphs: those that keep what a graph computes, and any others.

``python -m tilewright.tests.edit.random_edits --count 2000 --seed 0`` runs many seeds, with what each checks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from tilewright.edit.loading import load_graph, merge_graphs
from tilewright.edit.model_graph import ModelGraph
from tilewright.graph_ir.inference import infer_graph
from tilewright.rules import P, Rule
from tilewright.tests.edit.by_numbers import fed, require_sound
from tilewright.tests.edit.random_graphs import random_graph

Edit = Callable[[ModelGraph, np.random.Generator], ModelGraph | None]
"""Edits the graph it is given, or gives another one."""


def _result(g: ModelGraph, rng: np.random.Generator) -> str:
    """A value that a node gives."""
    node = g.nodes[int(rng.integers(len(g.nodes)))]
    return node.output.name


def insert_identity(g: ModelGraph, rng: np.random.Generator) -> None:
    g.insert_after(_result(g, rng), "Identity")


def insert_two_negations(g: ModelGraph, rng: np.random.Generator) -> None:
    g.insert_after(_result(g, rng), lambda v: g.add("Neg", g.add("Neg", v)))


def insert_before_a_node(g: ModelGraph, rng: np.random.Generator) -> None:
    node = g.nodes[int(rng.integers(len(g.nodes)))]
    g.insert_before(node, "Identity", index=int(rng.integers(len(node.inputs))))


def rename(g: ModelGraph, rng: np.random.Generator) -> None:
    names = g.values.names
    old = [names[k] for k in rng.choice(len(names), 3, replace=False)]
    old = [n for n in old if n not in g.inputs.names and n not in g.outputs.names]
    g.rename(dict(zip(old, [*old[1:], *old[:1]], strict=True)))
    node = g.nodes[int(rng.integers(len(g.nodes)))]
    g.rename_nodes({node.name: g.names().fresh("renamed")})


def replace_relu(g: ModelGraph, rng: np.random.Generator) -> None:
    for node in g.find("Relu")[:1]:
        g.replace(node, lambda x: g.add("Max", x, 0.0))


def replace_by_rule(g: ModelGraph, rng: np.random.Generator) -> None:
    g.apply_rules([Rule("square", "Mul(x, x) --> x^2", P("Mul", "x", "x"), lambda m: m.op("Mul", m["x"], m["x"]),
                        lambda m: "is one already")])  # fmt: skip


def wrap(g: ModelGraph, rng: np.random.Generator) -> None:
    g.add("Relu", _result(g, rng))
    g.cleanup()


def whole(g: ModelGraph, rng: np.random.Generator) -> None:
    [g.sort, g.share, g.fold, g.cleanup][int(rng.integers(4))]()


def through_a_file(g: ModelGraph, rng: np.random.Generator) -> ModelGraph:
    return load_graph(g.to_onnx())


def cut_and_join(g: ModelGraph, rng: np.random.Generator) -> ModelGraph | None:
    """A value is computed by a part of its own, in front of the rest, which has it as an input."""
    middle = _result(g, rng)
    if middle in g.outputs.names:
        return None
    first = g.extract(None, [middle])
    second = g.extract([*g.inputs.names, middle], list(g.outputs.names))
    inputs = {i: i for i in second.inputs.names if i in g.inputs.names}
    joined = second.copy()
    joined.prepend(first, {middle: middle}, prefix="again_")
    joined.cleanup()
    shared = {f"again_{i}": i for i in inputs if f"again_{i}" in joined.inputs.names}
    with joined.batch():
        for new, old in shared.items():
            joined.redirect(new, old)
    joined.cleanup(unused_inputs=True)
    return joined


def side_by_side(g: ModelGraph, rng: np.random.Generator) -> ModelGraph:
    both = merge_graphs(g, g, {}, prefix="twin_")
    both.set_outputs(*both.outputs.names[: len(g.outputs)])
    both.cleanup(unused_inputs=True)
    return both


KEEPING: Mapping[str, Edit] = {
    "identity": insert_identity,
    "negations": insert_two_negations,
    "before": insert_before_a_node,
    "rename": rename,
    "replace": replace_relu,
    "rule": replace_by_rule,
    "wrap": wrap,
    "whole": whole,
    "file": through_a_file,
    "cut and join": cut_and_join,
    "side by side": side_by_side,
}
"""Edits after which a graph computes, bit by bit, what it did."""


def remove(g: ModelGraph, rng: np.random.Generator) -> None:
    node = g.nodes[int(rng.integers(len(g.nodes)))]
    values = [k for k, v in enumerate(node.inputs) if v is not None and str(v.type) == str(node.output.type)]
    if values:
        g.remove(node, through=int(rng.choice(values)))


def move_operand(g: ModelGraph, rng: np.random.Generator) -> None:
    node = g.nodes[int(rng.integers(len(g.nodes)))]
    like = [v.name for v in g.inputs if str(v.type) == str(node.inputs[0].type if node.inputs[0] else "")]
    if like:
        g.set_input(node, 0, like[0])


def another_output(g: ModelGraph, rng: np.random.Generator) -> None:
    name = _result(g, rng)
    if name not in g.outputs.names:
        g.add_output(name)


def another_type(g: ModelGraph, rng: np.random.Generator) -> None:
    if all(v.dtype.name == "float32" for v in g.values):
        g.convert("float64")


CHANGING: Mapping[str, Edit] = {
    "remove": remove,
    "operand": move_operand,
    "output": another_output,
    "type": another_type,
}
"""Edits after which a graph is another one, and still holds."""


def check_seed(seed: int, edits: int = 8, count: int = 20) -> dict[str, int]:
    """Random edits of a random graph; how many of each kind. Raises AssertionError where the graph does not hold, its
    types are not those that inference gives from nothing, or numbers change that must not."""
    rng = np.random.default_rng(seed)
    g = load_graph(random_graph(rng, count))
    done: dict[str, int] = {}
    for _ in range(edits):
        table = KEEPING if rng.random() < 0.75 else CHANGING
        kind = str(rng.choice(sorted(table)))
        feed = fed(g, int(rng.integers(1, 4)), seed)
        want = g.run(feed) if table is KEEPING else {}
        before, text = g.graph, str(g)
        edited = g.copy()
        edited = table[kind](edited, rng) or edited
        assert g.graph is before
        assert str(g) == text
        got = edited.run({i: feed[i] for i in edited.inputs.names})
        for x, y in zip(want.values(), got.values(), strict=True) if want else ():  # names may have got a prefix
            np.testing.assert_array_equal(y, x, err_msg=f"seed {seed}, {kind}")
        again = infer_graph(edited.graph.replace(values={i: edited.graph.values[i] for i in edited.graph.inputs}))
        assert {k: str(v.type) for k, v in again.values.items()} == {
            k: str(v.type) for k, v in edited.graph.values.items()
        }, f"seed {seed}, {kind}"
        require_sound(edited)
        done[kind] = done.get(kind, 0) + 1
        g = edited
    return done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    done: dict[str, int] = {}
    for seed in range(args.seed, args.seed + args.count):
        for kind, n in check_seed(seed).items():
            done[kind] = done.get(kind, 0) + n
    print(f"{args.count} seeds: {', '.join(f'{k} {n}' for k, n in sorted(done.items()))}")


if __name__ == "__main__":
    main()
