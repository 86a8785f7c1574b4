"""Einsum as products and as plain sums: each implementation against numpy, which is chosen, why others are not."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.tests.lowering.lowered import TARGET, require_twin

SIZES = dict(zip("bhijkmn", (2, 3, 4, 5, 7, 6, 5), strict=True))
EQUATIONS = [
    "ij,jk->ik", "bij,bjk->bik", "bhik,bhjk->bhij", "ij,kj->ki", "bhij,bhjk->bihk", "bijk,jkmn->bimn", "i,j->ij",
    "i,i", "ij->ji", "ij->", "ij->i", "ii->i", "ij,jk,km->im", "ijk,jk->", "...ij,...jk->...ik", "bj,j->b",
]  # fmt: skip


def einsum(equation: str, **sizes: int | str) -> Graph:
    b = GraphBuilder("g")
    terms = equation.partition("->")[0].replace("...", "b").split(",")
    shapes = [[sizes.get(x, SIZES[x]) for x in t] for t in terms]
    return b.build(b.op("Einsum", *(b.input(f"x{k}", "float32", s) for k, s in enumerate(shapes)), equation=equation))


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equation(equation: str) -> None:
    rng = np.random.default_rng(0)
    graph = einsum(equation)
    feed = {x: rng.standard_normal([int(d) for d in graph.values[x].shape]).astype(np.float32) for x in graph.inputs}
    (c,) = alternatives_of(graph, TARGET)
    for i in c.by_cost():
        require_twin(with_implementations(graph, {c.node.name: i.name}), feed, tolerance=1e-4)


@pytest.mark.parametrize(
    ("equation", "sizes", "name"),
    [
        ("ij,jk->ik", {}, "batched_gemm"), ("ij,jk->ik", {"i": 3}, "unpacked_gemm"), ("bj,j->b", {}, "unpacked_gemm"),
        ("bj,j->b", {"b": 40}, "batched_gemm"), ("bij,bjk->bik", {"i": "n"}, "batched_gemm"), ("ij->i", {}, "loops"),
        ("ij,jk,km->im", {}, "loops"),
    ],
)  # fmt: skip
def test_products_are_packed_from_four_rows_on(equation: str, sizes: dict[str, int | str], name: str) -> None:
    (c,) = alternatives_of(einsum(equation, **sizes), TARGET)
    assert c.standard().name == name


@pytest.mark.parametrize(
    ("equation", "reason"),
    [
        ("ij->i", "1 operands, expected two"), ("ii,ij->ij", "a label stands twice in a term"),
        ("i,j->ij", "no label of both operands is summed"), ("ij,ik->k", "a label of one operand alone is summed"),
    ],
)  # fmt: skip
def test_what_is_no_product_says_why(equation: str, reason: str) -> None:
    (c,) = alternatives_of(einsum(equation), TARGET)
    assert {i.name: i.refusal(c.facts) for i in c.ways} == {
        "batched_gemm": reason, "unpacked_gemm": reason, "loops": None,
    }  # fmt: skip
