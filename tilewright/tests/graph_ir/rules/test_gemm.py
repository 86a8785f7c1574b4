"""Products with what stands around them become Gemm where ranks and shapes allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.tests.graph_ir.rewriting import apply, as_pass, built, ops, require_fires, require_refused

F = np.float32
Build = Callable[[GraphBuilder], str]


def matrix(b: GraphBuilder, name: str, *shape: int | str) -> str:
    return b.input(name, "float32", shape)


def product(b: GraphBuilder) -> str:
    return b.op("MatMul", matrix(b, "a", "n", 5), matrix(b, "b", 5, 7))


def gemm(b: GraphBuilder, **attrs: float | int) -> str:
    return b.op("Gemm", matrix(b, "a", "n", 5), matrix(b, "b", 5, 7), **attrs)


def heads(b: GraphBuilder, *batch: int | str) -> str:
    """Two products of one value with matrices, each with a bias, seen as heads."""
    x = matrix(b, "x", *batch, 8)
    target = [0 if isinstance(d, str) else d for d in batch]

    def head(k: int) -> str:
        product = b.op("MatMul", x, matrix(b, f"w{k}", 8, 10))
        return b.op("Reshape", b.op("Add", product, matrix(b, f"b{k}", 10)), np.array([*target, 2, 5]))

    return b.op("Add", head(0), head(1))


FIRES: list[tuple[str, Build, list[str]]] = [
    ("matmul_add_as_gemm", lambda b: b.op("Add", product(b), matrix(b, "c", 7)), ["Gemm"]),
    ("matmul_add_as_gemm", lambda b: b.op("Add", matrix(b, "c", 1, 1), product(b)), ["Gemm"]),
    ("matmul_add_as_gemm", lambda b: b.op("Add", product(b), matrix(b, "c", "n", 7)), ["Gemm"]),
    ("add_into_gemm", lambda b: b.op("Add", gemm(b, alpha=0.5, beta=3.0), matrix(b, "c", 7)), ["Gemm"]),
    ("matmul_add_view_as_gemm", lambda b: heads(b, 2, 3), ["Reshape", "Gemm", "Reshape", "Gemm", "Reshape", "Add"]),
    (
        "transpose_into_gemm_left",
        lambda b: b.op("Gemm", b.op("Transpose", matrix(b, "a", 5, "n")), matrix(b, "b", 5, 7), np.ones(7, F)),
        ["Gemm"],
    ),
    (
        "transpose_into_gemm_right",
        lambda b: b.op("Gemm", matrix(b, "a", "n", 5), b.op("Transpose", matrix(b, "b", 5, 7)), transB=1),
        ["Gemm"],
    ),
]


@pytest.mark.parametrize(("rule", "build", "want"), FIRES)
def test_fires(rule: str, build: Build, want: list[str]) -> None:
    require_fires(build, [rule], want)


def test_the_sum_is_not_scaled_by_an_old_beta() -> None:
    new, _ = apply(built(lambda b: b.op("Add", gemm(b, alpha=0.5, beta=3.0), matrix(b, "c", 7))), "add_into_gemm")
    assert (new.nodes[0].attr("alpha"), new.nodes[0].attr("beta")) == (0.5, 1.0)


NOT: list[tuple[str, Build]] = [
    ("matmul_add_view_as_gemm", lambda b: heads(b, 6)),
    (
        "matmul_add_view_as_gemm",
        lambda b: b.op(
            "Reshape",
            b.op("Add", b.op("MatMul", matrix(b, "x", 2, 3, 8), matrix(b, "w", 8, 10)), matrix(b, "b", 10)),
            np.array([2, 3, 2, 5]),
        ),
    ),
    ("matmul_add_as_gemm", lambda b: b.op("Add", product(b), matrix(b, "c", 3, "n", 7))),
    (
        "matmul_add_as_gemm",
        lambda b: b.op("Add", b.op("MatMul", matrix(b, "a", 2, 3, 5), matrix(b, "b", 5, 7)), matrix(b, "c", 7)),
    ),
    (
        "matmul_add_as_gemm",
        lambda b: b.op(
            "Add",
            b.op("MatMul", b.input("a", "int32", (2, 5)), b.input("b", "int32", (5, 7))),
            b.input("c", "int32", (7,)),
        ),
    ),
    ("add_into_gemm", lambda b: b.op("Add", gemm(b), matrix(b, "c", 3, "n", 7))),
]


@pytest.mark.parametrize(("rule", "build"), NOT)
def test_not_here(rule: str, build: Build) -> None:
    graph = built(build)
    assert apply(graph, rule)[0] is graph


def test_a_sum_that_may_be_larger_than_the_product_stays() -> None:
    graph = built(lambda b: b.op("Add", product(b), matrix(b, "c", "m", 7)))
    either = infer_graph(graph.replace(broadcasts=True, assumptions=()))
    assert as_pass("matmul_add_as_gemm").apply(either, PassContext.for_graph(either)) is either


def test_rows_of_two_open_sizes_cannot_be_seen_as_heads() -> None:
    require_refused(lambda b: heads(b, "n", "s"), "matmul_add_view_as_gemm", "more than one unknown dim")


def test_a_product_that_others_read_stays() -> None:
    graph = built(lambda b: b.op("Mul", p := product(b), b.op("Add", p, matrix(b, "c", 7))))
    new, ctx = apply(graph, "matmul_add_as_gemm")
    assert new is graph
    assert "also used elsewhere" in next(iter(ctx.log.refused)).reason
    assert ops(new) == ["MatMul", "Add", "Mul"]
