"""Products of bytes whose sums of two have 16 bits: exact for all kinds of operands, and nothing ever saturates."""

from __future__ import annotations

import math

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
from tilewright.lowering.implementations.byte_pairing import Pairing, Words, pair_bytes
from tilewright.schedule.default import explained_default
from tilewright.schedule.rules.facts import all_blocks
from tilewright.tests.lowering.implementations.test_dot_product import KINDS, product, wanted
from tilewright.tests.lowering.lowered import require_twin

AVX2 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"
NAME = "paired_bytes"


def weight(kind: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """``extreme``: no two rows fit; ``wide``: panels of columns have orders of their own; ``narrow``: one order does
    for all; ``small``: rows fit as they are; ``other``: all values are about as likely."""
    rng = np.random.default_rng(seed)
    if kind == "extreme":
        return rng.choice([-128, 127], shape).astype(np.int8)
    if kind == "other":
        return rng.integers(-128, 128, shape).astype(np.int8)
    spread = {"wide": 42, "narrow": 30, "small": 12}[kind]
    return np.clip(rng.normal(0, spread, shape), -127, 127).round().astype(np.int8)


WEIGHTS = ("extreme", "other", "wide", "narrow", "small")


def undone(p: Pairing, w: Words, k: int) -> np.ndarray:
    """The weight that the words stand for."""
    panels, steps, width = p.shape
    assert w.words.shape == p.shape
    assert (w.at is not None) == p.moves
    bytes_ = w.words.view(np.int8).reshape(panels, steps, width, 4)
    at = np.broadcast_to(np.arange(steps), (panels, steps)) if w.at is None else w.at
    rows = np.arange(k)[None] if p.order is None else p.order + np.repeat(p.windows.starts(), 16)
    found = np.zeros((k + 16, panels * width), np.int64)  # what a short run has behind it meets zeros
    for panel in range(panels):
        order = rows[panel * p.groups // panels]
        for step in range(steps):
            for j in range(4):
                column = slice(panel * width, (panel + 1) * width)
                found[order[at[panel, step] * 4 + j], column] += bytes_[panel, step, :, j]
    assert not found[k:].any()
    return found[:k]


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(
    ("shape", "run"),
    [((16, 16), 16), ((32, 40), 32), ((96, 7), 96), ((160, 64), 160), ((48, 130), 48), ((40, 40), 40), ((168, 64), 24),
     ((36, 48), 12), ((108, 33), 36)],
)  # fmt: skip
def test_words_are_the_weight_and_no_two_neighbours_are_too_large(shape: tuple[int, int], run: int, kind: str) -> None:
    w = weight(kind, shape)
    found = pair_bytes(w, 16, run)
    words = found.apply(w)
    np.testing.assert_array_equal(undone(found, words, shape[0])[:, : shape[1]], w)
    two = words.words.view(np.int8).reshape(-1, 2).astype(np.int64)
    assert 255 * np.maximum(two, 0).sum(1).max() <= np.iinfo(np.int16).max
    assert 255 * np.minimum(two, 0).sum(1).min() >= np.iinfo(np.int16).min


def test_rows_are_put_in_order_only_where_it_takes_fewer_steps() -> None:
    small, narrow, wide = (pair_bytes(weight(k, (256, 128)), 16, 256) for k in ("small", "narrow", "wide"))
    plain = 256 // 4
    assert small.order is None
    assert small.steps == plain
    assert narrow.groups == 1
    assert narrow.order is not None
    assert wide.groups == wide.panels == 8
    assert plain <= wide.steps < 1.2 * plain


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("left", "right"), KINDS)
def test_results_are_exact(left: str, right: str, kind: str) -> None:
    if why_foreign(parse_target(AVX2)):
        pytest.skip("this machine cannot run it")
    rng = np.random.default_rng(3)
    info = np.iinfo(left)
    for n, (shape, columns) in enumerate([((9, 16), 5), ((64, 48), 40), ((2, 3, 5, 36), 33), ((37, 160), 96)]):
        a = rng.choice([info.min, info.max, *rng.integers(info.min, info.max, 3)], shape).astype(left)
        w = weight(kind, (shape[-1], columns), n)
        b, zb = (w, None) if right == "int8" else ((w.view(np.uint8) ^ 128), np.full((), 128, np.uint8))
        for za in (None, np.array(rng.integers(info.min, info.max), left)):
            dims = (*shape[:-2], "rows", shape[-1]) if n == 1 else shape
            graph = product(dims, b, left, za, zb, given=n == 2)
            model = tilewright.compile(
                graph, target=AVX2, implementations={graph.nodes[0].name: NAME}, progress=False, cache=False
            )
            feed = {"a": a, "za": za} if "za" in graph.inputs else {"a": a}
            np.testing.assert_array_equal(model.run(feed)[graph.outputs[0]], wanted(a, b, za, zb))


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Attribute]]] = {
    "pixels": ((1, 5, 6, 32), (1, 1), 16, {}),
    "every other pixel": ((2, 7, 9, 80), (1, 1), 50, {"strides": (2, 2)}),
    "with a border": ((1, 5, 6, 24), (1, 1), 16, {"pads": (1, 0, 2, 1)}),
    "first layer": ((1, 13, 12, 3), (7, 7), 40, {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    "few taps": ((2, 9, 8, 3), (3, 3), 32, {"strides": (2, 2), "pads": (0, 0, 1, 1)}),
    "taps": ((1, 7, 8, 20), (3, 3), 24, {"strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (2, 1)}),
    "a row": ((2, 19, 5), (4,), 17, {"pads": (1, 2)}),
    "a volume": ((1, 4, 5, 6, 6), (2, 3, 2), 16, {"pads": (0, 1, 0, 1, 1, 0)}),
}


def convolution(case: str, kind: str, left: str = "uint8") -> Graph:
    """Channels last."""
    image, kernel, columns, attrs = CONVOLUTIONS[case]
    g = GraphBuilder("convolution")
    w = weight(kind, (columns, image[-1] * math.prod(kernel))).reshape(columns, image[-1], *kernel)
    operands = [g.input("x", left, image), g.constant(w, "w"), g.constant(np.array(3, left), "z")]
    return g.build(g.op("ConvInteger", *operands, data_layout="NHWC", **attrs))


@pytest.mark.parametrize("kind", ["extreme", "wide", "narrow", "small"])
@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_exact(case: str, left: str, kind: str) -> None:
    if why_foreign(parse_target(AVX2)):
        pytest.skip("this machine cannot run it")
    graph, info = convolution(case, kind, left), np.iinfo(left)
    x = np.random.default_rng(1).choice([info.min, info.max, 5], CONVOLUTIONS[case][0]).astype(left)
    choice = {graph.nodes[0].name: NAME}
    (got,) = tilewright.compile(graph, target=AVX2, implementations=choice, progress=False).run(None, {"x": x})
    np.testing.assert_array_equal(got, interpret(graph, {"x": x})[graph.outputs[0]])


@pytest.mark.parametrize("case", ["first layer", "taps"])
def test_the_interpreter_says_the_same_of_convolutions(case: str) -> None:
    graph = convolution(case, "wide")
    x = np.random.default_rng(1).integers(0, 256, CONVOLUTIONS[case][0]).astype(np.uint8)
    require_twin(with_implementations(graph, {graph.nodes[0].name: NAME}), {"x": x})


@pytest.mark.parametrize("kind", ["wide", "narrow", "small"])
def test_the_interpreter_says_the_same(kind: str) -> None:
    a = np.random.default_rng(3).integers(-128, 128, (9, 32)).astype(np.int8)
    graph = product((9, 32), weight(kind, (32, 32)), "int8", np.array(-7, np.int8), None)
    require_twin(with_implementations(graph, {graph.nodes[0].name: NAME}), {"a": a})


@pytest.mark.parametrize("kind", ["wide", "narrow", "small"])
def test_the_inner_loop_is_made_of_the_instruction(kind: str) -> None:
    target = parse_target(AVX2)
    graph = product((48, 256), weight(kind, (256, 64)), "uint8", None, None)
    lowered = tilewright.compile(graph, target=target, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    trace, rules = explained_default(func, target)
    assert "register_tiles" in rules.values()
    text = assembly_text(emit_kernel(prepare(trace.apply(func), target), target, "kernel"), target)
    assert sum("vpmaddubsw" in x and "%ymm" in x for x in text.splitlines()) >= 8
    assert ("vpshufb" in text) == (kind != "small")


def test_an_image_with_a_border_is_copied_before_its_bytes_are_put_in_order() -> None:
    target, graph = parse_target(AVX2), convolution("taps", "wide")
    graph = with_implementations(graph, {graph.nodes[0].name: NAME})
    lowered = tilewright.compile(graph, target=target, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    scheduled = explained_default(func, target)[0].apply(func)
    assert {b.buffer for b in all_blocks(scheduled)} >= {"rows", "bytes"}
    assert "vpshufb" in assembly_text(emit_kernel(prepare(scheduled, target), target, "kernel"), target)


def test_one_weight_computed_in_two_ways() -> None:
    if why_foreign(parse_target(AVX2)):
        pytest.skip("this machine cannot run it")
    rng = np.random.default_rng(1)
    b = weight("small", (32, 16)).view(np.uint8) ^ 128
    g = GraphBuilder("two")
    x, w, za, zb = (
        g.input("a", "uint8", (9, 32)),
        g.constant(b, "b"),
        g.constant(np.uint8(7)),
        g.constant(np.uint8(120)),
    )
    graph = g.build(*(g.op("MatMulInteger", x, w, za, zb) for _ in range(2)))
    choice = {n.name: way for n, way in zip(graph.nodes, (NAME, "dot_product"), strict=True)}
    a = rng.integers(0, 256, (9, 32)).astype(np.uint8)
    for got in tilewright.compile(graph, target=AVX2, implementations=choice, progress=False).run(None, {"a": a}):
        np.testing.assert_array_equal(got, wanted(a, b, np.uint8(7), np.uint8(120)))


def test_it_is_chosen_by_what_it_costs() -> None:
    (found,) = alternatives_of(product((64, 256), weight("narrow", (256, 64)), "uint8", None, None), parse_target(AVX2))
    assert found.standard().name == NAME
    (found,) = alternatives_of(
        product((64, 256), weight("extreme", (256, 64)), "uint8", None, None), parse_target(AVX2)
    )
    assert found.standard().name == "shorts"  # twice as many steps


@pytest.mark.parametrize(
    ("shape", "b", "cpu", "why"),
    [
        ((64, 42), weight("small", (42, 16)), "haswell", "sums over 42, expected a multiple of 4, at least 16"),
        ((4, 32), weight("small", (32, 16)), "haswell", "4 rows, expected at least 8"),
        (
            (64, 32),
            weight("small", (32, 16)),
            "znver4",
            "no sums of two products of bytes on the target, or such of four",
        ),
        ((64, 32), weight("other", (32, 16)).view(np.uint8), "haswell", "the weight less its zero point does not fit"),
    ],
)
def test_why_it_does_not_apply(shape: tuple[int, int], b: np.ndarray, cpu: str, why: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    (found,) = alternatives_of(product(shape, b, "uint8", None, None), target)
    assert why in (found.named(NAME).refusal(found.facts) or "")
