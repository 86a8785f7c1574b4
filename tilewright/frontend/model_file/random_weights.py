"""Random weights for networks that ship without: the ``light_*`` models of the onnx package keep only weight shapes.

Such a model makes each weight with ``ConstantOfShape``, all elements equal. Here each becomes an initializer with
seeded normal values, scaled so that activations keep their size (He et al., Delving Deep into Rectifiers, 2015). What a
BatchNormalization or a fully connected layer divides by is near an estimate of what comes in; otherwise residual sums
would double layer by layer until the last softmax is 0 or 1 everywhere, and a comparison of outputs would mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

Use = tuple[str, int, str]
"""Where a weight goes: operator, position, and the operator's first input."""

_POSITIVE = {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 0), ("Mul", 1)}
_VARIANCE = ("BatchNormalization", 4)
_CALM = 100.0
"""By how much the mean square of scores is made smaller, so that their softmax is not 0 or 1."""
_FORWARDING = ("Unsqueeze", "Reshape")


def with_random_weights(path: str | Path, seed: int = 0) -> onnx.ModelProto:
    """The model with every constant weight replaced by seeded random values."""
    model = onnx.load(str(path))
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    uses: dict[str, Use] = {}
    forward = {n.input[0]: n.output[0] for n in graph.node if n.op_type in _FORWARDING}
    for node in graph.node:
        for k, name in enumerate(node.input):
            uses.setdefault(name, (node.op_type, k, node.input[0]))
    squares = _mean_squares(graph)
    scores = {n.input[0] for n in graph.node if n.op_type == "Softmax"}
    for node in graph.node:
        if node.op_type == "Gemm" and node.output[0] in scores:
            squares[node.input[0]] *= _CALM
    rng = np.random.default_rng(seed)
    kept, weights, dropped = [], [], set()
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(d) for d in shapes[node.input[0]])
            values = _weight(rng, shape, _use(node.output[0], uses, forward), squares)
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


def _mean_squares(graph: onnx.GraphProto) -> dict[str, float]:
    """A rough estimate of the mean square of every activation, 1 for the inputs, with the weights made here."""
    weights = {n.output[0] for n in graph.node if n.op_type == "ConstantOfShape"} | {i.name for i in graph.initializer}
    centred = {n.output[0] for n in graph.node if n.op_type in ("Conv", "Gemm", "BatchNormalization")}
    out: dict[str, float] = {}
    for node in graph.node:
        known = [out.get(i, 1.0) for i in node.input if i not in weights]
        first = known[0] if known else 1.0
        if node.op_type == "Conv":
            value = 2 * first
        elif node.op_type == "Gemm":
            value = 2.0  # its weights are divided by what comes in
        elif node.op_type == "Relu":  # a sum of such values has few negative ones left
            value = first / 2 if node.input[0] in centred else first
        elif node.op_type in ("Sum", "Add"):
            value = sum(known)
        elif node.op_type == "Concat":
            value = max(known)
        elif node.op_type == "MaxPool":
            value = 2.5 * first  # about so for windows of 3 x 3
        else:
            value = 1.0 if node.op_type == "BatchNormalization" else first
        out.update(dict.fromkeys(node.output, value))
    return out


def _use(name: str, uses: Mapping[str, Use], forward: Mapping[str, str]) -> Use:
    while name in forward:
        name = forward[name]
    return uses.get(name, ("", 0, ""))


def _weight(rng: np.random.Generator, shape: tuple[int, ...], use: Use, squares: Mapping[str, float]) -> np.ndarray:
    if len(shape) >= 2:
        fan_in = float(np.prod(shape[1:])) * (squares.get(use[2], 1.0) if use[0] == "Gemm" else 1.0)
        return np.asarray(rng.standard_normal(shape) * np.sqrt(2.0 / fan_in), np.float32)
    values = rng.standard_normal(shape) * 0.1
    if use[:2] in _POSITIVE:
        values = 1.0 + np.clip(values, -0.5, 0.5)
    if use[:2] == _VARIANCE:
        values *= squares.get(use[2], 1.0)
    return values.astype(np.float32)
