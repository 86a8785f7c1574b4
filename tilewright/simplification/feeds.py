"""Random inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.core.random_arrays import random_array
from tilewright.graph_ir.ir import Graph, SequenceType, TensorType, Type

_LENGTH = 2


def random_inputs(graph: Graph, env: Mapping[str, int], seed: int) -> dict[str, object]:
    """Seeded values of all inputs, with sizes by symbol. Raises UnsupportedError for types that tell too little."""
    rng = np.random.default_rng(seed)
    return {name: _random(rng, name, graph.values[name].type, env) for name in graph.inputs}


def _random(rng: np.random.Generator, name: str, t: Type | None, env: Mapping[str, int]) -> object:
    if isinstance(t, TensorType) and t.shape is not None:
        return random_array(rng, t.dtype, tuple(d.evaluate(env) for d in t.shape))
    if isinstance(t, SequenceType):
        return [_random(rng, name, t.element, env) for _ in range(_LENGTH)]
    raise UnsupportedError(f"input {name!r}: no random value for the type {t}")
