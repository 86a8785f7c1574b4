"""Products of bytes four steps at a time: exact for all kinds of operands and zero points, on every kind of CPU."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target, why_foreign
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.schedule.default import explained_default
from tilewright.tests.lowering.lowered import require_twin

KINDS = [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")]
SHAPES = [((3, 7), 5), ((17, 64), 33), ((2, 3, 5, 8), 16), ((1, 1), 1), ((40, 130), 48)]
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def product(
    shape: tuple[int | str, ...], b: np.ndarray, dtype: str, za: np.ndarray | None, zb: np.ndarray | None,
    given: bool = False,
) -> Graph:  # fmt: skip
    """``given``: the zero point of A is an input."""
    g = GraphBuilder("product")
    x = g.input("a", dtype, shape)
    zero = None if za is None else g.input("za", dtype, za.shape) if given else g.constant(za, "za")
    operands = [x, g.constant(b, "b"), zero, None if zb is None else g.constant(zb, "zb")]
    while operands[-1] is None:
        operands.pop()
    return g.build(g.op("MatMulInteger", *operands))


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.choice([info.min, info.max, 0, *rng.integers(info.min, info.max, 5)], shape).astype(dtype)


def wanted(a: np.ndarray, b: np.ndarray, za: np.ndarray | None, zb: np.ndarray | None) -> np.ndarray:
    left = a.astype(np.int64) - (0 if za is None else za[:, None] if za.ndim else za.astype(np.int64))
    right = b.astype(np.int64) - (0 if zb is None else zb.astype(np.int64))
    return (left @ right).astype(np.int32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("left", "right"), KINDS)
def test_results_are_exact(left: str, right: str, target: str) -> None:
    if why_foreign(parse_target(target)):
        pytest.skip("this machine cannot run it")
    rng = np.random.default_rng(7)
    for n, (shape, columns) in enumerate(SHAPES):
        a, b = numbers(rng, left, shape), numbers(rng, right, (shape[-1], columns))
        for za in (None, numbers(rng, left, ()), *([numbers(rng, left, (shape[0],))] if len(shape) == 2 else [])):
            for zb in (
                None,
                numbers(rng, right, ()),
                numbers(rng, right, (columns,)),
                np.full((), 128 % 256, np.uint8),
            ):
                if zb is not None and zb.dtype != right:
                    continue
                dims = (*shape[:-2], "rows", shape[-1]) if n == 1 and (za is None or not za.ndim) else shape
                graph = product(dims, b, left, za, zb, given=n == 2)
                name = graph.nodes[0].name
                model = tilewright.compile(graph, target=target, implementations={name: "dot_product"}, progress=False)
                feed = {"a": a, "za": za} if "za" in graph.inputs else {"a": a}
                np.testing.assert_array_equal(model.run(feed)[graph.outputs[0]], wanted(a, b, za, zb))


@pytest.mark.parametrize(("left", "right"), KINDS)
def test_int16_is_exact(left: str, right: str) -> None:
    rng = np.random.default_rng(9)
    for shape, columns in SHAPES:
        a, b = numbers(rng, left, shape), numbers(rng, right, (shape[-1], columns))
        for za in (None, numbers(rng, left, ()), *([numbers(rng, left, (shape[0],))] if len(shape) == 2 else [])):
            zb = numbers(rng, right, (columns,))
            graph = product(shape, b, left, za, zb)
            choice = {graph.nodes[0].name: "shorts"}
            model = tilewright.compile(graph, implementations=choice, progress=False)
            np.testing.assert_array_equal(model.run({"a": a})[graph.outputs[0]], wanted(a, b, za, zb))
    require_twin(with_implementations(graph, choice), {"a": a})


def test_one_weight_with_two_zero_points() -> None:
    rng = np.random.default_rng(1)
    a, b = numbers(rng, "uint8", (4, 8)), numbers(rng, "uint8", (8, 16))
    g = GraphBuilder("two")
    x, w = g.input("a", "uint8", (4, 8)), g.constant(b, "b")
    zeros = [np.full((), z, np.uint8) for z in (3, 200)]
    graph = g.build(*(g.op("MatMulInteger", x, w, None, g.constant(z, f"z{n}")) for n, z in enumerate(zeros)))
    for way in ("shorts", "dot_product", "loops"):
        choice = {n.name: way for n in graph.nodes}
        model = tilewright.compile(graph, implementations=choice, progress=False)
        for got, z in zip(model.run(None, {"a": a}), zeros, strict=True):
            np.testing.assert_array_equal(got, wanted(a, b, None, z))


def test_sums_wrap_around() -> None:
    k = 70_000  # 70,000 * 255 * 127 is beyond an int32
    a, b = np.full((1, k), 255, np.uint8), np.full((k, 16), 127, np.int8)
    graph = product((1, k), b, "uint8", None, None)
    (got,) = tilewright.compile(graph, progress=False).run(None, {"a": a})
    np.testing.assert_array_equal(got, wanted(a, b, None, None))


def test_the_interpreter_says_the_same() -> None:
    rng = np.random.default_rng(3)
    a, b = numbers(rng, "int8", (5, 9)), numbers(rng, "uint8", (9, 20))
    za, zb = numbers(rng, "int8", ()), numbers(rng, "uint8", (20,))
    graph = product((5, 9), b, "int8", za, zb)
    require_twin(with_implementations(graph, {graph.nodes[0].name: "dot_product"}), {"a": a})


@pytest.mark.parametrize(
    ("cpu", "instruction"), [("znver4", "vpdpbusd"), ("alderlake", "vpdpbusd"), ("haswell", "vpmaddwd"),
                             ("skylake-avx512", "vpmaddwd")],
)  # fmt: skip
def test_the_inner_loop_is_made_of_the_instruction(cpu: str, instruction: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    b = np.ones((128, 64), np.int8)
    lowered = tilewright.compile(
        product((48, 128), b, "uint8", None, None), target=target, stop_after="lower", progress=False
    )
    (func,) = lowered.funcs.values()
    trace, rules = explained_default(func, target)
    assert "register_tiles" in rules.values()
    text = emit_kernel(prepare(trace.apply(func), target), target, "kernel")
    lines = [x for x in assembly_text(text, target).splitlines() if instruction in x]
    register = "%zmm" if target.vector_bits == 512 else "%ymm"
    assert sum(register in x for x in lines) >= target.tile_rows(2)


def test_it_is_chosen_where_b_is_constant() -> None:
    target = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    (found,) = alternatives_of(product((4, 8), np.ones((8, 8), np.int8), "uint8", None, None), target)
    assert found.standard().name == "dot_product"  # few rows wait for the weight, which takes fewer bytes so
    g = GraphBuilder("variable")
    a, b = g.input("a", "uint8", (4, 8)), g.input("b", "int8", (8, 8))
    (found,) = alternatives_of(g.build(g.op("MatMulInteger", a, b)), target)
    assert found.standard().name == "loops"
    assert found.named("dot_product").refusal(found.facts) == "the second operand is not a constant matrix"
