"""Depthwise convolutions of bytes, four rows in a word or two: exact for all geometries, zero points and sizes."""

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
from tilewright.lowering.geometry.words import BYTES, SHORTS
from tilewright.lowering.implementations.conv.depthwise_bytes import RowGroups, row_groups
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.schedule.rules.rows_of_bytes import find_rows_of_bytes
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.interpreter import interpret as run_func
from tilewright.tests.lowering.lowered import lower, require_twin
from tilewright.tests.schedule.rules.test_winograd import Pick

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
AVX2 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell"
WAYS = ("depthwise", "depthwise_shorts")


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.choice([info.min, info.max, *rng.integers(info.min, info.max, 6)], shape).astype(dtype)


def depthwise(
    image: tuple[int | str, ...], kernel: tuple[int, int], left: str = "uint8", zero: int | None = 3,
    right: str = "int8", given: bool = False, seed: int = 0, **attrs: Attribute,
) -> Graph:  # fmt: skip
    """Channels last. ``given``: the zero point is an input."""
    g = GraphBuilder("depthwise")
    channels = image[-1]
    assert isinstance(channels, int)
    w = g.constant(numbers(np.random.default_rng(seed), right, (channels, 1, *kernel)), "w")
    operands = [g.input("x", left, image), w]
    if given:
        operands.append(g.input("z", left, ()))
    elif zero is not None:
        operands.append(g.constant(np.array(zero, left), "z"))
    return g.build(g.op("ConvInteger", *operands, group=channels, data_layout="NHWC", **attrs))


def feed_of(graph: Graph, **dims: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = {i: tuple(d.evaluate(dims) for d in graph.values[i].shape) for i in graph.inputs}
    return {i: numbers(rng, str(graph.values[i].dtype), s) for i, s in shapes.items()}


CASES = {
    "3x3": depthwise((1, 8, 9, 64), (3, 3), pads=(1, 1, 1, 1)),
    "odd rows and channels": depthwise((2, 7, 7, 37), (3, 3), pads=(1, 1, 1, 1)),
    "stride 2": depthwise((1, 9, 12, 48), (3, 3), strides=(2, 2), pads=(0, 1, 1, 0)),
    "5x5": depthwise((1, 10, 6, 33), (5, 5), pads=(2, 2, 2, 2), zero=0),
    "5x5 stride 2": depthwise((1, 11, 9, 16), (5, 5), pads=(2, 2, 2, 2), strides=(2, 2)),
    "rows of different strides": depthwise((1, 12, 9, 16), (4, 2), strides=(3, 1), dilations=(1, 2)),
    "7x7": depthwise((1, 9, 9, 20), (7, 7), pads=(3, 3, 3, 3)),
    "one tap": depthwise((1, 5, 4, 16), (1, 1), zero=None),
    "signed": depthwise((1, 8, 8, 32), (3, 3), "int8", -5, pads=(1, 1, 1, 1)),
    "one row of results": depthwise((1, 3, 6, 16), (3, 3)),
    "automatic pads": depthwise((1, 8, 7, 16), (3, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
    "zero point at run time": depthwise((1, 6, 6, 16), (3, 3), given=True, pads=(1, 1, 1, 1)),
    "symbolic": depthwise(("n", "h", "w", 32), (3, 3), pads=(1, 1, 1, 1)),
    "symbolic stride 2": depthwise((1, "h", "w", 32), (5, 5), pads=(2, 2, 2, 2), strides=(2, 2)),
}  # fmt: skip
DIMS = {"n": 2, "h": 7, "w": 9}


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ("llvm", "depthwise"), ("llvm -mcpu=haswell", "depthwise"), ("llvm -mcpu=haswell", "depthwise_shorts"),
        ("llvm -mcpu=x86-64", "depthwise_shorts"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("case", CASES)
def test_results_are_exact(case: str, target: str, way: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    graph = CASES[case]
    feed = feed_of(graph, **DIMS)
    choice = {graph.nodes[0].name: way}
    model = tilewright.compile(graph, target=target, implementations=choice, progress=False)
    np.testing.assert_array_equal(model.run(None, feed)[0], next(iter(interpret(graph, feed).values())))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ["odd rows and channels", "5x5 stride 2", "signed", "symbolic"])
def test_the_interpreter_says_the_same(case: str, way: str) -> None:
    graph = CASES[case]
    require_twin(with_implementations(graph, {graph.nodes[0].name: way}), feed_of(graph, **DIMS), DIMS)


def test_rows_that_share_words() -> None:
    assert row_groups(BYTES, 3, 1) == RowGroups(BYTES, 2, 1, 1)
    assert row_groups(BYTES, 3, 2) == RowGroups(BYTES, 1, 1, 2)
    assert row_groups(BYTES, 5, 1) == RowGroups(BYTES, 4, 2, 1)
    assert row_groups(BYTES, 5, 2) == RowGroups(BYTES, 2, 2, 2)
    assert row_groups(BYTES, 4, 1) == RowGroups(BYTES, 1, 1, 1)
    assert row_groups(SHORTS, 3, 1) == RowGroups(SHORTS, 2, 2, 1)
    assert row_groups(SHORTS, 3, 2) == RowGroups(SHORTS, 1, 2, 2)
    assert row_groups(SHORTS, 5, 1) == RowGroups(SHORTS, 2, 3, 1)


REFUSALS = [
    (depthwise((1, 8, 8, 16), (3, 3), right="uint8"), "constant weight of int8"),
    (depthwise((1, 8, 8, 16), (3, 3), dilations=(2, 1)), "rows 2 apart"),
]


@pytest.mark.parametrize(("graph", "reason"), REFUSALS, ids=[r for _, r in REFUSALS])
def test_refusals(graph: Graph, reason: str) -> None:
    (found,) = alternatives_of(graph, parse_target(AVX512))
    assert all(reason in (found.named(way).refusal(found.facts) or "") for way in WAYS)
    assert found.standard().name not in WAYS


@pytest.mark.parametrize(
    ("target", "case", "way"),
    [
        (AVX512, "3x3", "depthwise"), (AVX512, "stride 2", "depthwise"), (AVX2, "3x3", "depthwise_shorts"),
        (AVX2, "5x5", "depthwise_shorts"), (AVX2, "stride 2", "depthwise"),
    ],
)  # fmt: skip
def test_which_is_chosen(target: str, case: str, way: str) -> None:
    """Words of two rows are more, and where each serves one row of the result, making them takes longer."""
    (found,) = alternatives_of(CASES[case], parse_target(target))
    assert found.standard().name == way


@pytest.mark.parametrize(("cpu", "op"), [("znver4", "ConvInteger"), ("haswell", "ConvInteger"), ("nehalem", "Conv")])
def test_dequantized_ones_are_integers_where_vectors_multiply_bytes(cpu: str, op: str) -> None:
    g = GraphBuilder("dequantized")
    scale, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    x = g.op("DequantizeLinear", g.input("x", "uint8", (1, 32, 28, 28)), scale, zero)
    w = g.op("DequantizeLinear", g.constant(numbers(np.random.default_rng(1), "int8", (32, 1, 3, 3)), "w"), scale)
    y = g.op("QuantizeLinear", g.op("Conv", x, w, group=32, pads=(1, 1, 1, 1)), scale, zero)
    target = f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"
    graph = tilewright.compile(g.build(y), target=target, stop_after="passes", progress=False)
    assert [n.op for n in graph.nodes if "Conv" in n.op] == [op]


@pytest.mark.parametrize(("cpu", "product"), [(AVX512, "vpdpbusd"), (AVX2, "vpmaddwd")])
def test_its_kernel_multiplies_words(cpu: str, product: str) -> None:
    target = parse_target(cpu)
    lowered = tilewright.compile(CASES["3x3"], target=target, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    trace, rules = explained_default(func, target)
    assert "rows_of_bytes" in rules.values()
    text = assembly_text(emit_kernel(prepare(trace.apply(func), target), target, "kernel"), target)
    assert text.count(product) >= 12
    assert "vpunpck" in text
    assert "vpmovzxbd" not in text


@pytest.mark.parametrize("vectors", [1, 3, 4])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(
    ("case", "way"),
    [("odd rows and channels", "depthwise"), ("5x5", "depthwise"), ("stride 2", "depthwise"), ("3x3", WAYS[1])],
)
def test_every_decision_keeps_the_values(case: str, way: str, rows: int, vectors: int) -> None:
    graph = CASES[case]
    func = lower(with_implementations(graph, {graph.nodes[0].name: way})).func
    target = parse_target(AVX512)
    s = schedule_by_rule(func, target, Pick(rows=rows, vectors=vectors))  # type: ignore[arg-type]
    assert Trace.from_text(s.trace.to_text()).apply(func) == s.func
    feed = list(feed_of(graph).values())
    rng = np.random.default_rng(0)
    rest = [rng.integers(-99, 99, [int(d) for d in p.shape]).astype(p.dtype.numpy) for p in func.params[len(feed) : -1]]
    np.testing.assert_array_equal(run_func(s.func, feed + rest, {})[0], run_func(func, feed + rest, {})[0])


def test_other_sums_are_none_of_its_business() -> None:
    g = GraphBuilder("dense")
    x = g.input("x", "uint8", (1, 6, 6, 8))
    graph = g.build(g.op("ConvInteger", x, g.constant(np.ones((16, 8, 3, 3), np.int8)), data_layout="NHWC"))
    s = Schedule(lower(graph).func)
    assert all(find_rows_of_bytes(s, b) is None for b in s.blocks())
