"""Where operators that only move numbers move bfloat16, where they do not, and that results are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.precision import choose_precision

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
RNG = np.random.default_rng(5)
IMAGE = (1, 32, 12, 12)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def conv(g: GraphBuilder, x: str, channels: int) -> str:
    return g.op("Conv", x, weight(32, channels, 1, 1))


def start(g: GraphBuilder, name: str = "x") -> str:
    """A convolution of an input, behind an activation."""
    return g.op("Relu", conv(g, g.input(name, "float32", IMAGE), 32))


def joined() -> Graph:
    g = GraphBuilder("joined")
    return g.build(conv(g, g.op("Concat", start(g), start(g, "y"), axis=1), 64))


def joined_with_a_constant() -> Graph:
    g = GraphBuilder("joined_with_a_constant")
    return g.build(conv(g, g.op("Concat", start(g), weight(1, 32, 12, 12), axis=1), 64))


def one_after_the_other() -> Graph:
    """Both parts of the first are read again by the second, and nothing else reads them."""
    g = GraphBuilder("one_after_the_other")
    x = g.op("Concat", start(g), start(g, "y"), axis=1)
    return g.build(conv(g, g.op("Concat", x, start(g, "z"), axis=1), 96))


def read_by_two_products() -> Graph:
    """One product reads a part itself, and the other what is joined: there is one rounded copy."""
    g = GraphBuilder("read_by_two_products")
    x = start(g)
    both = g.op("Concat", x, start(g, "y"), axis=1)
    return g.build(conv(g, both, 64), conv(g, x, 32))


def padded() -> Graph:
    g = GraphBuilder("padded")
    return g.build(conv(g, g.op("Pad", start(g), np.array([0, 0, 1, 0, 0, 0, 1, 2], np.int64), mode="edge"), 32))


def pooled() -> Graph:
    g = GraphBuilder("pooled")
    return g.build(conv(g, g.op("MaxPool", start(g), kernel_shape=(3, 3), pads=(1, 1, 1, 1)), 32))


def resized(mode: str) -> Graph:
    g = GraphBuilder("resized")
    scales = np.array([1, 1, 2, 2], np.float32)
    return g.build(conv(g, g.op("Resize", start(g), None, scales, mode=mode), 32))


def nearest() -> Graph:
    return resized("nearest")


def linear() -> Graph:
    return resized("linear")


def read_as_float32() -> Graph:
    """A part is added to the result, too."""
    g = GraphBuilder("read_as_float32")
    x = start(g)
    return g.build(g.op("Add", conv(g, g.op("Concat", x, start(g, "y"), axis=1), 64), x))


def given_back() -> Graph:
    g = GraphBuilder("given_back")
    x = g.op("Concat", *(g.op("MatMul", g.input(n, "float32", IMAGE), weight(12, 32)) for n in "xy"), axis=1)
    return g.build(g.op("MatMul", x, weight(32, 32)), x)


def part_given_back() -> Graph:
    g = GraphBuilder("part_given_back")
    x = start(g)
    return g.build(conv(g, g.op("Concat", x, start(g, "y"), axis=1), 64), x)


def of_an_input() -> Graph:
    g = GraphBuilder("of_an_input")
    return g.build(conv(g, g.op("MaxPool", g.input("x", "float32", IMAGE), kernel_shape=(2, 2)), 32))


def padded_with_a_number() -> Graph:
    """The number would have to be rounded, too."""
    g = GraphBuilder("padded_with_a_number")
    pads, number = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), np.array(0.3, np.float32)
    return g.build(conv(g, g.op("Pad", start(g), pads, number), 32))


MOVED: dict[Callable[[], Graph], str] = {
    joined: "Concat",
    joined_with_a_constant: "Concat",
    one_after_the_other: "Concat",
    read_by_two_products: "Concat",
    padded: "Pad",
    pooled: "MaxPool",
    nearest: "Resize",
}
LEFT: dict[Callable[[], Graph], str] = {
    linear: "Resize",
    read_as_float32: "Concat",
    given_back: "Concat",
    part_given_back: "Concat",
    of_an_input: "MaxPool",
    padded_with_a_number: "Pad",
}


def after_passes(graph: Graph) -> Graph:
    found: Graph = tilewright.compile(graph, target=AVX512, precision="bf16", stop_after="passes", progress=False)
    return found


def types_of(graph: Graph, op: str) -> list[object]:
    return [graph.values[n.outputs[0]].dtype for n in graph.nodes if n.op == op]


@pytest.mark.parametrize("build", MOVED)
def test_what_only_moves_numbers_moves_rounded_ones(build: Callable[[], Graph]) -> None:
    found = types_of(after_passes(build()), MOVED[build])
    assert found
    assert set(found) == {dtypes.bfloat16}


@pytest.mark.parametrize("build", LEFT)
def test_what_others_read_or_what_computes_is_left(build: Callable[[], Graph]) -> None:
    graph = after_passes(build())
    found = types_of(graph, LEFT[build])
    assert found
    assert set(found) == {dtypes.float32}
    assert any(v.dtype == dtypes.bfloat16 for v in graph.values.values())  # the product behind it is reduced


def test_there_is_one_rounded_copy() -> None:
    graph = after_passes(read_by_two_products())
    rounded = [n.inputs[0] for n in graph.nodes if n.op == "Cast" and n.attr("to") == dtypes.bfloat16]
    assert len(rounded) == len(set(rounded)) == 4  # the inputs and both parts


@pytest.mark.parametrize("build", [*MOVED, *LEFT])
def test_results_do_not_change(build: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build()
    rng = np.random.default_rng(1)
    feed = {n: rng.standard_normal(IMAGE).astype(np.float32) for n in graph.inputs}
    moved = after_passes(graph)
    monkeypatch.setattr(choose_precision, "narrow_moves", lambda *_: None)
    for got, want in zip(interpret(moved, feed).values(), interpret(after_passes(graph), feed).values(), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("build", MOVED)
def test_the_kernels_compute_the_graph(build: Callable[[], Graph]) -> None:
    graph = build()
    rng = np.random.default_rng(1)
    feed = {n: rng.standard_normal(IMAGE).astype(np.float32) for n in graph.inputs}
    reduced = tilewright.compile(graph, precision="bf16", stop_after="passes", progress=False)
    model = tilewright.compile(graph, precision="bf16", progress=False)
    for got, want in zip(model.run(None, feed), interpret(reduced, feed).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
