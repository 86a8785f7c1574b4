"""verify_layers: agreement, and whom it accuses when something is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.ir import Graph
from tilewright.inspect.verify import Verification, difference, verify_layers
from tilewright.tests.api.models import convolution

FEED = {"x": np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)}


def _graphs() -> tuple[Graph, Graph]:
    proto = convolution(12)
    optimized = tilewright.compile(proto, stop_after="passes", opt_level="none")
    return tilewright.compile(proto, stop_after="import"), optimized


def _verified(imported: Graph, optimized: Graph) -> Verification:
    return verify_layers(convolution(12), imported, optimized, parse_target(None), FEED)


def _with_another_op(graph: Graph) -> Graph:
    """The first Relu becomes a Neg: what a wrong pass does."""
    nodes = [dataclasses.replace(n, op="Neg") if n.op == "Relu" else n for n in graph.nodes]
    return graph.replace(nodes=tuple(nodes))


def test_a_right_model() -> None:
    found = _verified(*_graphs())
    assert found.first_bad is None
    assert found.suspect == "nothing"
    assert found.worst is not None
    assert found.worst.worst < 1e-5
    assert {"r1", "p", "y"} <= {x.value for x in found.layers}


def test_a_wrong_pass_is_accused() -> None:
    imported, optimized = _graphs()
    found = _verified(imported, _with_another_op(optimized))
    assert found.first_bad is not None
    assert found.first_bad.value == "r1"
    assert found.suspect.startswith("a graph pass")


def test_a_wrong_importer_is_accused() -> None:
    pytest.importorskip("onnxruntime")
    imported, optimized = _graphs()
    found = _verified(_with_another_op(imported), _with_another_op(optimized))
    assert found.first_bad is not None
    assert found.first_bad.value == "r1"
    assert found.suspect.startswith("the importer")


def test_difference() -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    assert difference(x, x) == 0
    assert difference(x, x + 1) == pytest.approx(1 / x.std(), rel=1e-6)
    assert difference(x, x.astype(np.float64)) == float("inf")
    assert difference(x, x[:2]) == float("inf")
    assert difference(x, np.array([1, 2, np.nan], np.float32)) == float("inf")
    assert difference(np.array([np.inf, 1]), np.array([np.inf, 1])) == 0
    assert difference(np.array([np.inf, 1]), np.array([-np.inf, 1])) == float("inf")
    assert difference(np.array([3, 5]), np.array([3, 7])) == 2
    assert difference(np.array(["a"], object), np.array(["b"], object)) == float("inf")
    assert difference([1], [1]) == 0
