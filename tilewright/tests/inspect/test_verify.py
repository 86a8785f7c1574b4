"""verify_layers: agreement, and whom it accuses when something is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import fuse_graph
from tilewright.inspect.verify import Verification, difference, verify_layers
from tilewright.lowering.backend import NativeBackend
from tilewright.lowering.implementations.conv.winograd_matrices import WINOGRAD
from tilewright.lowering.plan import lower_graph_to_plan
from tilewright.tests.api.models import convolution

FEED = {"x": np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)}


def _graphs() -> tuple[Graph, Graph]:
    proto = convolution(12)
    optimized = tilewright.compile(proto, stop_after="passes", opt_level="none")
    return tilewright.compile(proto, stop_after="import"), optimized


def _verified(imported: Graph, optimized: Graph) -> Verification:
    target = parse_target(None)
    fused, _ = fuse_graph(optimized, NativeBackend(target))
    return verify_layers(convolution(12), imported, lower_graph_to_plan(fused, target), target, FEED)


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


# -- faults in what only the plan of production has ------------------------------------------------------------------
def _image_network() -> tuple[Graph, dict[str, np.ndarray]]:
    """Padded convolutions over a Concat, one of them large enough for Winograd's algorithm."""
    rng = np.random.default_rng(2)
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 40, 40, 16))

    def conv(x: str, channels: tuple[int, int], taps: int = 3) -> str:
        weight = rng.standard_normal((channels[1], channels[0], taps, taps)).astype(np.float32) / channels[0]
        return b.op("Conv", x, weight, pads=(taps // 2,) * 4, data_layout="NHWC")

    first, second = b.op("Relu", conv(x, (16, 16), 1)), b.op("Abs", conv(x, (16, 16), 1))
    y = b.op("Relu", conv(b.op("Concat", first, second, axis=3), (32, 24)))
    graph = b.build(conv(y, (24, 8), 5))
    return graph, {"x": rng.standard_normal((1, 40, 40, 16)).astype(np.float32)}


def _judged(graph: Graph, fused: Graph, feed: dict[str, np.ndarray]) -> Verification:
    target = parse_target(None)
    lowered = lower_graph_to_plan(fused, target)
    return verify_layers(onnx.ModelProto(), graph, lowered, target, feed, ("lowered", "imported"), 1e-3)


def _fused(graph: Graph) -> Graph:
    return tilewright.compile(graph, stop_after="fuse")


def test_the_plan_of_production_is_what_is_looked_at() -> None:
    graph, feed = _image_network()
    fused = _fused(graph)
    found = _judged(graph, fused, feed)
    assert found.first_bad is None
    placed = {n for n, v in fused.values.items() if v.place is not None and not n.startswith("Concat")}
    assert len(placed) == 3
    assert placed <= {x.value for x in found.layers}
    assert any(x.value.endswith(".padded") and x.made_by == "Pad" for x in found.layers), "borders are looked at too"


def test_a_fault_in_placement_is_found() -> None:
    graph, feed = _image_network()
    fused = _fused(graph)
    inside = sorted((v.place.offsets[-1], n) for n, v in fused.values.items() if v.place and v.type.shape[-1] == 16)
    values = dict(fused.values)
    for (_, name), (other, _) in zip(inside, reversed(inside), strict=True):  # the two halves change places
        place = values[name].place
        values[name] = dataclasses.replace(
            values[name], place=dataclasses.replace(place, offsets=(*place.offsets[:-1], other))
        )
    found = _judged(graph, fused.replace(values=values), feed)
    assert found.first_bad is not None
    assert found.suspect.startswith("placement")


def test_a_fault_in_a_border_is_found() -> None:
    graph, feed = _image_network()
    fused = _fused(graph)
    name, v = next((n, v) for n, v in fused.values.items() if v.place and v.place.offsets[1] == 2)
    moved = dataclasses.replace(v, place=dataclasses.replace(v.place, offsets=(0, 1, 3, 0)))
    found = _judged(graph, fused.replace(values={**fused.values, name: moved}), feed)
    assert found.first_bad is not None
    assert found.first_bad.made_by == "Pad"
    assert found.suspect.startswith("placement")


def test_a_fault_in_an_implementation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, feed = _image_network()
    fused = _fused(graph)
    name = next(str(n.attr("implementation")) for n in fused.nodes if str(n.attr("implementation")).startswith("wino"))
    known = WINOGRAD[name]
    wrong = dataclasses.replace(known, after=lambda m: [*known.after(m)[1:], known.after(m)[0]])
    monkeypatch.setitem(WINOGRAD, name, wrong)
    found = _judged(graph, fused, feed)
    assert found.first_bad is not None
    assert found.suspect.startswith("placement, an implementation")


def test_an_update_in_place_and_its_copy_are_layers() -> None:
    b = GraphBuilder("g")
    past, row = b.input("past", "float32", (5, 3)), b.input("row", "float32", (1, 3))
    graph = b.build(b.op("ScatterND", past, np.array([[2]]), row))
    fused, _ = fuse_graph(graph, NativeBackend(parse_target(None)))
    found = _judged(graph, fused, {"past": np.ones((5, 3), np.float32), "row": np.zeros((1, 3), np.float32)})
    assert [x.made_by for x in found.layers] == ["Identity", "ScatterND"]
    assert found.first_bad is None


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
