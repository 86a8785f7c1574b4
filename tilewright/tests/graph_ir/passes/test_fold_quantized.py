"""Quantized weights: dequantized when the model is built, whatever their size, and only for kernels of real numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.passes import fold_constants as folding
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply, built, ops, reasons

F = np.float32
RNG = np.random.default_rng(0)
Q = RNG.integers(-128, 128, (40, 30)).astype(np.int8)
SCALES = RNG.uniform(0.01, 0.1, 30).astype(F)


@pytest.fixture(autouse=True)
def _no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "GROWTH_BYTES", 0)
    monkeypatch.setattr(folding, "TRANSIENT_BYTES", 0)


def test_a_weight_is_dequantized() -> None:
    def build(b: GraphBuilder) -> str:
        w = b.op("DequantizeLinear", Q, SCALES, np.zeros(30, np.int8), axis=1)
        return b.op("MatMul", b.input("x", "float32", ("n", 40)), w)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["MatMul"]
    (w,) = (c.array for c in new.constants.values())
    assert np.array_equal(w, Q * SCALES)
    assert w.dtype == F


def test_views_and_products_of_it_too() -> None:
    def build(b: GraphBuilder) -> str:
        w = b.op("DequantizeLinear", b.op("Reshape", Q, np.array([30, 40])), SCALES, axis=0)
        return b.op("MatMul", b.input("x", "float32", ("n", 40)), b.op("Transpose", b.op("Mul", w, SCALES[:, None])))

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["MatMul"]


def test_weights_that_are_stored_as_reals_and_quantized_first() -> None:
    def build(b: GraphBuilder) -> str:
        q = b.op("QuantizeLinear", RNG.standard_normal((40, 30)).astype(F), np.array(0.1, F), np.array(3, np.uint8))
        w = b.op("DequantizeLinear", q, np.array(0.1, F), np.array(3, np.uint8))
        return b.op("MatMul", b.input("x", "float32", ("n", 40)), w)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["MatMul"]


def test_numbers_of_a_table_in_four_bits() -> None:
    def build(b: GraphBuilder) -> str:
        codes = b.op("Cast", (Q % 16).astype(np.uint8), to=tilewright.core.dtypes.int32)
        w = b.op("Mul", b.op("Gather", RNG.standard_normal(16).astype(F), codes), SCALES)
        return b.op("MatMul", b.input("x", "float32", ("n", 40)), w)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["MatMul"]


def test_copies_of_it_are_made_when_they_are_needed() -> None:
    def build(b: GraphBuilder) -> str:
        w = b.op("DequantizeLinear", Q, SCALES, axis=1)
        return b.op("Add", b.input("x", "float32", (4, 40, 30)), b.op("Expand", w, np.array([4, 1, 1])))

    new, ctx = apply(built(build), "fold_constants")
    assert ops(new) == ["Expand", "Add"]
    assert "larger than" in reasons(ctx)


def test_products_of_integers_read_the_weight_as_it_is_stored() -> None:
    def build(b: GraphBuilder) -> tuple[str, str]:
        zero = np.zeros((), np.uint8)
        q = b.input("q", "uint8", ("n", 40))
        wide = b.op("DequantizeLinear", q, np.array(0.5, F), zero)
        w = b.constant(Q, "w")
        weight = b.op("DequantizeLinear", w, SCALES, axis=1)
        return b.op("MatMulInteger", q, w, zero, np.zeros((), np.int8)), b.op("MatMul", wide, weight)

    new, _ = apply(built(build), "fold_constants")
    assert ops(new) == ["DequantizeLinear", "MatMulInteger", "MatMul"]
    assert new.constants["w"].array is Q


def test_a_weight_of_the_graph_around_a_body() -> None:
    def build(b: GraphBuilder) -> str:
        x, w = b.input("x", "float32", ("n", 40)), b.constant(Q, "w")
        branches = []
        for name in ("then", "other"):
            inner = GraphBuilder(name)
            scale = inner.constant(SCALES * F(len(branches) + 1), f"{name}_scales")
            (real,) = inner.ops("DequantizeLinear", w, scale, outputs=(f"{name}_w",), axis=1)
            branches.append(inner.build(*inner.ops("MatMul", x, real, outputs=(f"{name}_y",)), infer=False))
        return b.op("If", b.input("c", "bool", ()), then_branch=branches[0], else_branch=branches[1])

    new, _ = apply(built(build), "fold_constants")
    assert [n.op for _, g in new.nodes[0].subgraphs() for n in g.nodes] == ["MatMul", "MatMul"]


STORED = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("blocks", [0, 5])
def test_the_build_and_a_run_dequantize_to_the_same_bits(stored: str, scale: str, blocks: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, stored, stored))
    q = RNG.integers(0, 16 if "4" in stored[-1] else 256, (10, 7)).astype(np.uint8)
    q = q.view(dtype) if dtype.itemsize == 1 and "4" not in stored[-1] else q.astype(dtype)
    q = np.where(np.isfinite(q.astype(F)), q, np.ones_like(q))
    shape = (10 // blocks, 7) if blocks else (7,)
    scales = RNG.uniform(0.001, 0.1, shape).astype(getattr(ml_dtypes, scale, scale))
    zeros = np.full(shape, 0 if stored.startswith("float") or stored == "int32" else 3).astype(dtype)

    attrs = {"axis": 0, "block_size": blocks} if blocks else {"axis": 1}
    graph = built(lambda b: b.op("DequantizeLinear", q, scales, zeros, **attrs))
    folded, _ = run_passes(graph)
    assert not folded.nodes
    (at_build,) = tilewright.compile(graph).run({}).values()
    (at_run,) = tilewright.compile(graph, opt_level="none").run({}).values()
    assert at_build.dtype == at_run.dtype
    assert at_build.tobytes() == at_run.tobytes()
