"""Random implementations of nodes that have several, pinned as a user would."""

from __future__ import annotations

import numpy as np
import onnx

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.lowering.choose_implementation import alternatives_of


def random_implementations(model: onnx.ModelProto, threads: int, seed: int, wild: bool) -> dict[str, str]:
    """By node, one of those that apply and round as the definition does, whatever it is estimated to cost.

    ``wild``: not those that spread what is not finite."""
    rng = np.random.default_rng(seed)
    graph = tilewright.compile(model, threads=threads, progress=False, stop_after="passes")
    out = {}
    for c in alternatives_of(graph, parse_target(None).with_threads(threads)):
        exact = [i for i in c.ways if i.error is None and not (wild and i.spreads)]
        names = [i.name for i in exact if i.refusal(c.facts) is None]
        out[c.node.name] = names[rng.integers(len(names))]
    return out
