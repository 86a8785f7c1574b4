"""Products with weights that 16 bits hold: how they are kept, that nothing is rounded, and where they are not used."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import alternatives_of

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
PLAIN = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64"
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def weight(kind: str, k: int = 1100, n: int = 70) -> np.ndarray:
    values = np.random.default_rng(k).standard_normal((k, n)).astype(KINDS[kind])
    values[0, :3] = (0, -0.0, 65280)  # both types have them
    return values.astype(np.float32)


def product(w: np.ndarray, *rows: Dim) -> Graph:
    g = GraphBuilder("product")
    y = g.op("MatMul", g.input("x", "float32", (*rows, w.shape[0])), w)
    return g.build(g.op("Relu", g.op("Add", y, w[0])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["halves", "halves_by_rows"])
@pytest.mark.parametrize("k", [937, 1200])
def test_sums_are_those_of_float32(kind: str, way: str, k: int) -> None:
    """Up to the order of sums; with rows on both sides of the number that a call is asked for, and none."""
    w = weight(kind, k)
    node = "n_MatMul_0"
    model = tilewright.compile(product(w, "a", "b"), implementations={node: way}, progress=False)
    for a, b in ((0, 3), (1, 1), (1, 7), (2, 4), (3, 11)):
        x = np.random.default_rng(0).standard_normal((a, b, k)).astype(np.float32)
        (got,) = model.run(None, {"x": x})
        exact = np.maximum(x.astype(np.float64) @ w + w[0], 0)
        bound = np.abs(x).astype(np.float64) @ np.abs(w) + np.abs(w[0])
        assert got.shape == (a, b, 70)
        assert np.all(np.abs(got - exact) <= 2e-6 * bound)


@pytest.mark.parametrize(("kind", "largest"), [("float16", 1.0), ("bfloat16", 2.0**100)])
def test_few_rows_read_half_of_the_bytes(kind: str, largest: float) -> None:
    w = weight(kind)
    w[1, 1] = largest
    for rows in (1, "n"):
        lowered = tilewright.compile(product(w, rows), target=AVX512, stop_after="lower", progress=False)
        (func,) = lowered.funcs.values()
        kinds = {str(p.dtype) for p in func.params if p.name.startswith("c") and len(p.shape) == 3}
        assert kinds == {kind}


def test_many_rows_read_float32() -> None:
    lowered = tilewright.compile(product(weight("float16"), 200), target=AVX512, stop_after="lower", progress=False)
    (func,) = lowered.funcs.values()
    assert {str(p.dtype) for p in func.params} == {"float32"}


def reason(w: np.ndarray, *rows: Dim, target: str = AVX512) -> str | None:
    (c,) = alternatives_of(product(w, *rows), parse_target(target))
    return next(i.refusal(c.facts) for i in c.ways if i.name == "halves")


def test_where_they_are_not_used() -> None:
    held = weight("float16")
    assert reason(held, 3) is None
    assert reason(held, 300) == "so many rows take longer than the weight"
    assert reason(held, 3, target=PLAIN) == "a weight of numbers that 16 bits do not hold"
    for place, value in (((39, 69), 1 / 3), ((5, 5), 1e30), ((0, 0), np.nan)):
        other = held.copy()
        other[place] = value
        assert reason(other, 3) == "a weight of numbers that 16 bits do not hold"
    assert reason(weight("float16", 400), 3) == "a small weight"
    g = GraphBuilder("computed")
    y = g.op("MatMul", g.input("x", "float32", (3, 4)), g.input("w", "float32", (4, 5)))
    (c,) = alternatives_of(g.build(y), parse_target(AVX512))
    refusals = {i.name: i.refusal(c.facts) for i in c.ways}
    assert refusals["halves"] == "the second operand is not a constant matrix of float32"


def test_a_weight_that_bfloat16_alone_holds() -> None:
    w = weight("bfloat16")
    w[1, 1] = 2.0**100
    assert reason(w, 3) is None
    x = np.random.default_rng(0).standard_normal((1, 1100)).astype(np.float32)
    (got,) = tilewright.compile(product(w, 1), progress=False).run(None, {"x": x})
    np.testing.assert_allclose(got, np.maximum(x @ w + w[0], 0), rtol=1e-4, atol=1e-4)


def test_a_model_of_float16_reads_its_weights_as_they_are() -> None:
    g = GraphBuilder("half")
    w = weight("float16").astype(np.float16)
    graph = g.build(g.op("MatMul", g.input("x", "float16", (1, 1100)), w))
    lowered = tilewright.compile(graph, target=AVX512, stop_after="lower", progress=False)
    packed = [p for f in lowered.funcs.values() for p in f.params if len(p.shape) == 3]
    assert [str(p.dtype) for p in packed] == ["float16"]
