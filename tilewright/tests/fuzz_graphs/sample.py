"""A finished random graph with the values of all its tensors: what is compiled, cut down, and printed as a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected
from tilewright.tests.fuzz_graphs.families import FAMILIES, pick_generator
from tilewright.tests.fuzz_graphs.node import NodeRun
from tilewright.tests.fuzz_graphs.protos import model_of, reads, value_info

OPSETS = (9, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24)
VARIANTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """``values``: every tensor's arrays, one per variant. ``inputs``: name -> declared dims."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: Mapping[str, tuple[int | str, ...]]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, tuple[object, ...]]
    opset: int
    variants: tuple[int, ...]
    """The variants that are run."""
    wild: str = ""
    """As the draft's."""

    def model(self) -> onnx.ModelProto:
        """The model; only what its nodes and outputs read is in it."""
        used = {n for node in self.nodes for n in reads(node)} | set(self.outputs)
        graph = helper.make_graph(
            list(self.nodes), "fuzzed",
            [value_info(n, self.values[n][0], dims) for n, dims in self.inputs.items() if n in used],
            [helper.make_empty_tensor_value_info(o) for o in self.outputs],
            [numpy_helper.from_array(_array(self.values[n][0]), n) for n in self.constants if n in used],
        )  # fmt: skip
        return model_of(graph, self.opset)

    def feed(self, variant: int) -> dict[str, object]:
        used = {n for node in self.nodes for n in reads(node)} | set(self.outputs)
        return {n: self.values[n][variant] for n in self.inputs if n in used}

    def replace(self, **changes: object) -> Sample:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def _array(x: object) -> np.ndarray:
    if not isinstance(x, np.ndarray):
        raise TypeError("a constant is an array")
    return x


def generate(seed: int, operators: tuple[str, ...] = (), alone: bool = False) -> tuple[Sample | None, list[NodeRun]]:
    """The graph of a seed (None if nothing came out) and its nodes' runs. ``operators``: mostly these.

    ``alone``: nodes are not compared with onnxruntime.
    """
    rng = np.random.default_rng(seed)
    opset = int(rng.choice(OPSETS))
    symbolic = bool(rng.random() < 0.5)
    wild = str(rng.choice(["", "odd", "huge"], p=[0.8, 0.12, 0.08]))
    d = Draft(rng, opset, VARIANTS if symbolic else 1, wild, alone=alone)
    wanted = int(rng.integers(1, 6)) if rng.random() < 0.5 else int(rng.integers(5, 25))
    extend(d, wanted, operators)
    if not d.nodes:
        return None, d.runs
    return finish(d), d.runs


def extend(d: Draft, wanted: int, operators: tuple[str, ...] = ()) -> None:
    """Add ``wanted`` nodes, or as many as come in a bounded number of tries."""
    tries = 0
    goal = len(d.nodes) + wanted
    while len(d.nodes) < goal and tries < 4 * wanted + 8:
        tries += 1
        before = len(d.vals)
        try:
            if operators and d.chance(0.7):
                FAMILIES[d.one_of(operators)](d)
            else:
                pick_generator(d.rng)(d)
        except Rejected:
            used = {n for node in d.nodes for n in reads(node)}
            for v in d.vals[before:]:
                if v.kind != "node" and v.name not in used and d.outer is None:
                    d.forget(v)
        if any(r.finding for r in d.root.runs):
            return


def finish(d: Draft) -> Sample:
    """Outputs: what nothing reads, some inner values, seldom an input or a constant."""
    read = {n for node in d.nodes for n in reads(node)}
    made = [v for v in d.vals if v.kind == "node"]
    outputs = [v.name for v in made if v.name not in read or (d.chance(0.12) and v.name not in d.inner)]
    if d.chance(0.04):
        outputs.extend(v.name for v in d.vals if v.kind != "node" and v.name in read and d.chance(0.3))
    return Sample(
        tuple(d.nodes), dict(d.input_dims), tuple(v.name for v in d.vals if v.kind == "const"),
        tuple(outputs), {v.name: v.arrays for v in d.vals}, d.opset, tuple(range(d.variants)), d.wild,
    )  # fmt: skip
