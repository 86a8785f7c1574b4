"""Random weights for networks that ship without: the ``light_*`` models of the onnx package keep only weight shapes.

Such a model makes each weight with ``ConstantOfShape``, all elements equal. Here each becomes an initializer with seeded
normal values, scaled so that activations keep their size (He et al., Delving Deep into Rectifiers, 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_POSITIVE = {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 0), ("Mul", 1)}
_FORWARDING = ("Unsqueeze", "Reshape")


def with_random_weights(path: str | Path, seed: int = 0) -> onnx.ModelProto:
    """The model with every constant weight replaced by seeded random values."""
    model = onnx.load(str(path))
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    uses: dict[str, tuple[str, int]] = {}
    forward = {n.input[0]: n.output[0] for n in graph.node if n.op_type in _FORWARDING}
    for node in graph.node:
        for k, name in enumerate(node.input):
            uses.setdefault(name, (node.op_type, k))
    rng = np.random.default_rng(seed)
    kept, weights, dropped = [], [], set()
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(d) for d in shapes[node.input[0]])
            values = _weight(rng, shape, _use(node.output[0], uses, forward))
            weights.append(numpy_helper.from_array(values, node.output[0]))
            dropped.add(node.input[0])
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    still_read = {i for n in kept for i in n.input}
    remaining = [i for i in graph.initializer if i.name not in dropped or i.name in still_read]
    inputs = [i for i in graph.input if i.name not in shapes]
    del graph.initializer[:]
    graph.initializer.extend([*remaining, *weights])
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    return model


def _use(name: str, uses: Mapping[str, tuple[str, int]], forward: Mapping[str, str]) -> tuple[str, int]:
    while name in forward:
        name = forward[name]
    return uses.get(name, ("", 0))


def _weight(rng: np.random.Generator, shape: tuple[int, ...], use: tuple[str, int]) -> np.ndarray:
    if len(shape) >= 2:
        fan_in = int(np.prod(shape[1:]))
        return (rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
    values = rng.standard_normal(shape) * 0.1
    if use in _POSITIVE:
        values = 1.0 + np.clip(values, -0.5, 0.5)
    return values.astype(np.float32)
