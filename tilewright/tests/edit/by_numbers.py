"""What a graph computes, before and after an edit, and that what was edited holds and can be written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from tilewright.core.errors import TilewrightError
from tilewright.edit.loading import load_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.frontend.schemas import NEWEST_OPSET
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.api.models import perceptron

Arrays = Mapping[str, np.ndarray]


def small() -> ModelGraph:
    """y = relu(x @ w + b) @ v for x[batch, 32]; nodes hidden, bias, relu, readout; values h, hb, r, y."""
    return load_graph(perceptron())


def fed(graph: ModelGraph, size: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs, every open size ``size``."""
    rng = np.random.default_rng(seed)
    out = {}
    for v in graph.inputs:
        shape = [d.value() or size for d in v.shape or ()]
        out[v.name] = rng.standard_normal(shape).astype(v.dtype.numpy)
    return out


def numbers(graph: ModelGraph, feed: Arrays | None = None) -> dict[str, np.ndarray]:
    """Outputs for ``feed`` (default: :func:`fed`); the graph is verified, written and read again first, and must give
    the same then."""
    feed = fed(graph) if feed is None else feed
    require_sound(graph)
    return graph.run(feed)


def require_sound(graph: ModelGraph) -> None:
    """The verifier and onnx's checker agree with the graph; what is written has its interface, and in the newest terms
    its nodes."""
    verify_graph(graph.graph, foreign=True)
    ends = interface(graph.graph)
    for opset in (None, *([] if graph.model.shell.functions else [NEWEST_OPSET])):  # functions keep their opset
        message = graph.to_onnx(opset)
        onnx.checker.check_model(message, full_check=not any(n.domain for n in message.graph.node))
        again = load_graph(message).graph
        assert {k: str(again.values[k].type) for k in ends} == {k: str(graph.graph.values[k].type) for k in ends}
        if opset is not None:
            assert nodes_of(again) == nodes_of(graph.graph)


def nodes_of(graph: Graph) -> list[tuple[object, ...]]:
    return [(n.op, n.inputs, n.outputs) for n in graph.nodes]


def interface(graph: Graph) -> set[str]:
    return {*graph.inputs, *graph.outputs}


class refused:
    """An edit that raises an error with these words, and leaves the graph as it was."""

    def __init__(self, graph: ModelGraph, words: str) -> None:
        self._graph, self._before = graph, graph.model
        self._raises = pytest.raises(TilewrightError, match=words)

    def __enter__(self) -> None:
        self._raises.__enter__()

    def __exit__(self, *error: object) -> bool:
        done = self._raises.__exit__(*error)  # type: ignore[arg-type]
        assert self._graph.model is self._before
        return bool(done)
