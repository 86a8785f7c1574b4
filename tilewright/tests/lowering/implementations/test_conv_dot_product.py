"""Convolutions of bytes four channels at a time: exact for all kinds of operands, zero points and geometries."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target, why_foreign
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.lowering.geometry.conv_shape import conv_shape
from tilewright.lowering.geometry.words import BYTES, SHORTS, in_fewer_words
from tilewright.machine.target import Target
from tilewright.schedule.default import explained_default
from tilewright.schedule.rules.parallelism import BALANCED, busy_share
from tilewright.tensor_ir.analysis.scopes import blocks_in
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tests.lowering.lowered import require_twin

WAYS = ("dot_product", "dot_product_rows", "shorts", "shorts_rows", "loops")
AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.choice([info.min, info.max, *rng.integers(info.min, info.max, 6)], shape).astype(dtype)


def random_case(rng: np.random.Generator) -> tuple[Graph, dict[str, np.ndarray]]:
    """A convolution of any geometry, its weight and zero points constant; channels first or last."""
    left, right = (str(x) for x in rng.choice(["uint8", "int8"], 2))
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, filters = int(rng.choice([1, 3, 4, 8, 5])) * groups, int(rng.choice([1, 4, 18, 33])) * groups
    kernel = tuple(int(x) for x in rng.choice([1, 2, 3], 2))
    image = (2, channels, *(int(x) for x in rng.integers(7, 12, 2)))
    zeros = [
        None if rng.random() < 0.3 else numbers(rng, left, ()),
        None if rng.random() < 0.3 else numbers(rng, right, () if rng.random() < 0.5 else (filters,)),
    ]
    g = GraphBuilder("conv")
    operands = [g.input("x", left, image), g.constant(numbers(rng, right, (filters, channels // groups, *kernel)), "w")]
    operands += [None if z is None else g.constant(z, f"z{n}") for n, z in enumerate(zeros)]
    while operands[-1] is None:
        operands.pop()
    attrs = {
        "group": groups, "pads": tuple(int(x) for x in rng.integers(0, 3, 4)),
        "strides": tuple(int(x) for x in rng.choice([1, 2], 2)),
        "dilations": tuple(int(x) for x in rng.choice([1, 2], 2)),
    }  # fmt: skip
    return g.build(g.op("ConvInteger", *operands, **attrs)), {"x": numbers(rng, left, image)}


def pointwise(shape: tuple[int, ...], filters: int, dtype: str = "uint8") -> Graph:
    g = GraphBuilder("pointwise")
    x = g.op("Transpose", g.input("x", dtype, shape), perm=(0, 3, 1, 2))
    w = np.ones((filters, shape[-1], 1, 1), np.int8)
    return g.build(g.op("Transpose", g.op("ConvInteger", x, g.constant(w, "w")), perm=(0, 2, 3, 1)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_results_are_exact(seed: int, target: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    graph, feed = random_case(np.random.default_rng(seed))
    (want,) = interpret(graph, feed).values()
    for way in WAYS if target == "llvm" else ("dot_product", "shorts"):
        choice = {graph.nodes[0].name: way}
        model = tilewright.compile(graph, target=target, implementations=choice, progress=False)
        np.testing.assert_array_equal(model.run(None, feed)[0], want)


@pytest.mark.parametrize("way", WAYS)
def test_the_interpreter_says_the_same(way: str) -> None:
    rng = np.random.default_rng(3)
    g = GraphBuilder("conv")
    w = g.constant(numbers(rng, "uint8", (5, 3, 2, 2)), "w")
    zeros = g.constant(np.array(7, np.int8), "zx"), g.constant(numbers(rng, "uint8", (5,)), "zw")
    graph = g.build(g.op("ConvInteger", g.input("x", "int8", (1, 3, "h", 5)), w, *zeros, pads=(1, 1, 1, 1)))
    feed = {"x": numbers(rng, "int8", (1, 3, 4, 5))}
    require_twin(with_implementations(graph, {graph.nodes[0].name: way}), feed, {"h": 4})


def test_the_zero_point_may_come_at_run_time() -> None:
    rng = np.random.default_rng(4)
    g = GraphBuilder("conv")
    x, z = g.input("x", "uint8", (1, 8, 6, 6)), g.input("z", "uint8", ())
    w = g.constant(numbers(rng, "int8", (4, 8, 3, 3)), "w")
    graph = g.build(g.op("ConvInteger", x, w, z, pads=(1, 1, 1, 1)))
    feed = {"x": numbers(rng, "uint8", (1, 8, 6, 6)), "z": np.array(200, np.uint8)}
    (want,) = interpret(graph, feed).values()
    np.testing.assert_array_equal(tilewright.compile(graph, progress=False).run(None, feed)[0], want)


def test_unsigned_images_are_read_in_place() -> None:
    target: Target = parse_target(AVX512)
    for dtype, stages in (("uint8", 0), ("int8", 1)):
        lowered = tilewright.compile(
            pointwise((1, 12, 12, 64), 64, dtype), target=target, stop_after="lower", progress=False
        )
        (func,) = lowered.funcs.values()
        assert [b.name for b in blocks_in(func.body)].count("words") == stages
        trace, rules = explained_default(func, target)
        assert "register_tiles" in rules.values()
        text = emit_kernel(prepare(trace.apply(func), target), target, "kernel")
        assert assembly_text(text, target).count("vpdpbusd") >= target.tile_rows(2)


def few_channels(channels: int, kernel: tuple[int, int], dtype: str = "uint8", zero: int = 0) -> Graph:
    """A first layer, channels last; ``zero``: that of its weight."""
    rng = np.random.default_rng(channels)
    g = GraphBuilder("first")
    w = g.constant(numbers(rng, "int8", (16, channels, *kernel)), "w")
    zeros = g.constant(numbers(rng, dtype, ()), "zx"), g.constant(np.array(zero, np.int8), "zw")
    attrs: dict[str, Attribute] = {"strides": (2, 2), "pads": (1, 2, 1, 0), "data_layout": "NHWC"}
    return g.build(g.op("ConvInteger", g.input("x", dtype, (2, 9, 11, channels)), w, *zeros, **attrs))


FOLDED = {"dot_product": {1: 1, 3: 3, 6: 5, 7: 6}, "shorts": {1: 2, 3: 5, 7: 11}}
"""Words of a row of three taps by channels, where the taps count as channels."""


@pytest.mark.parametrize("way", WAYS[:4])
@pytest.mark.parametrize("channels", [1, 3, 4, 6, 7])
def test_taps_of_a_row_are_channels_where_these_are_no_whole_words(channels: int, way: str) -> None:
    words = FOLDED[way.removesuffix("_rows")].get(channels)
    for dtype, zero in (("uint8", 0), ("int8", 9))[: 1 if channels > 3 else 2]:
        graph = few_channels(channels, (2, 3), dtype, zero)
        chosen = with_implementations(graph, {graph.nodes[0].name: way})
        (func,) = tilewright.compile(chosen, stop_after="lower", progress=False).funcs.values()
        blocks = {b.name: b for b in blocks_in(func.body)}
        assert ("rows" in blocks) == (words is not None)
        assert ("words" in blocks) == (words is None)
        steps = [a.extent.value() for a in blocks["acc"].axes if a.kind == "reduce"]
        assert words is None or steps[-1] == words
        feed = {"x": numbers(np.random.default_rng(1), dtype, (2, 9, 11, channels))}
        (want,) = interpret(graph, feed).values()
        got = tilewright.compile(chosen, progress=False).run(None, feed)[0]
        np.testing.assert_array_equal(got, want)


def test_taps_stay_apart_where_that_takes_fewer_words() -> None:
    for kernel, word, apart in (((3, 1), BYTES, True), ((1, 3), BYTES, False), ((3, 1), SHORTS, True)):
        (found,) = alternatives_of(few_channels(3, kernel), parse_target(AVX512))
        shape = in_fewer_words(word, conv_shape(found.facts))
        assert (shape.of_pixel is None) == apart


def test_what_is_chosen() -> None:
    for cpu, wanted in (("haswell", "shorts"), ("alderlake", "dot_product"), ("znver4", "dot_product")):
        target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
        (found,) = alternatives_of(pointwise((1, 12, 12, 64), 64), target)
        assert found.standard().name.startswith(wanted)
    g = GraphBuilder("variable")
    x, w = g.input("x", "uint8", (1, 4, 8, 8)), g.input("w", "int8", (4, 4, 3, 3))
    (found,) = alternatives_of(g.build(g.op("ConvInteger", x, w)), target)
    assert found.standard().name == "loops"
    assert found.named("dot_product").refusal(found.facts) == "the weight is not constant"


@pytest.mark.parametrize("batch", [1, 3])
def test_threads_share_a_padded_convolution(batch: int) -> None:
    target = parse_target(AVX512).with_threads(2)
    g = GraphBuilder("padded")
    w = g.constant(np.ones((64, 64, 3, 3), np.int8), "w")
    x = g.input("x", "uint8", (batch, 28, 28, 64))
    graph = g.build(g.op("ConvInteger", x, w, pads=(1, 1, 1, 1), data_layout="NHWC"))
    lowered = tilewright.compile(graph, target=target, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    after = explained_default(func, target)[0].apply(func)
    shared = [x.extent.value() for x in walk(after.body) if isinstance(x, Loop) and x.kind == "parallel"]
    assert shared
    assert all(n is not None and busy_share(n, target) >= BALANCED for n in shared)
