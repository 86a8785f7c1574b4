"""Every implementation of every operator computes what the definition does: the formulas against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import Alternatives, alternatives_of, with_implementations
from tilewright.lowering.implementations.table import IMPLEMENTATIONS
from tilewright.tests.lowering.lowered import TARGET, require_twin


def node(op: str, a: tuple[Dim, ...], b: tuple[int, ...], constant: bool, **attrs: Attribute) -> Graph:
    g = GraphBuilder("g")
    x = g.input("x", "float32", a)
    if not b:
        return g.build(g.op(op, x, **attrs))
    w = (np.random.default_rng(1).standard_normal(b) / 8).astype(np.float32)
    return g.build(g.op(op, x, w if constant else g.input("w", "float32", b), **attrs))


LAST = {"data_layout": "NHWC"}
CASES = {
    "odd": ("Conv", (1, 9, 11, 16), (5, 16, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "large filter": ("Conv", (2, 9, 8, 3), (17, 3, 5, 5), {**LAST, "pads": (2, 2, 2, 2), "strides": (2, 1)}),
    "planes": ("Conv", (1, 3, 12, 7), (4, 3, 7, 2), {"dilations": (1, 2)}),
    "one dimension": ("Conv", (2, 40, 8), (3, 8, 11), {"data_layout": "NHWC", "pads": (0, 5)}),
    "no image": ("Conv", (0, 9, 9, 8), (8, 8, 5, 5), {**LAST}),
    "narrow groups": ("Conv", (1, 6, 5, 12), (12, 3, 3, 3), {**LAST, "group": 4}),
    "depthwise": ("Conv", (1, 6, 5, 12), (12, 1, 4, 4), {**LAST, "group": 12}),
    "symbolic": ("Conv", ("n", "h", 7, 4), (6, 4, 5, 5), {**LAST, "pads": (2, 2, 2, 2)}),
    "transposed": ("ConvTranspose", (1, 5, 4, 3), (3, 5, 3, 3), {**LAST, "strides": (2, 2)}),
    "skinny": ("MatMul", (2, 384), (384, 5), {}),
    "long vector": ("MatMul", (256,), (256, 3), {}),
    "batch": ("MatMul", (3, 2, 130), (130, 4), {}),
    "symbolic rows": ("MatMul", ("n", 128), (128, 9), {}),
    "symbolic rows by a larger matrix": ("MatMul", ("n", 128), (128, 34), {}),
    "even": ("MatMul", (4, 128), (128, 16), {}),
    "batches": ("MatMul", (3, 2, 8), (3, 8, 5), {}),
    "gemm": ("Gemm", (3, 192), (7, 192), {"transB": 1, "alpha": 0.5}),
    "sum over labels": ("Einsum", (3, 2, 5), (4, 3, 5), {"equation": "bij,kbj->ibk"}),
    "symbolic labels": ("Einsum", ("n", 2, 5), (4, 5), {"equation": "nij,kj->ink"}),
    "max": ("MaxPool", (2, 9, 7, 3), (), {**LAST, "kernel_shape": (5, 3), "strides": (1, 2), "pads": (2, 1, 2, 0)}),
    "max of rows": ("MaxPool", (1, 2, 9, 7), (), {"kernel_shape": (1, 4), "strides": (2, 1)}),
    "max of a symbolic image": ("MaxPool", ("n", 2, "h", 5), (), {"kernel_shape": (3, 3), "auto_pad": "SAME_LOWER"}),
    "average": ("AveragePool", (1, 3, 7, 6), (), {"kernel_shape": (3, 5), "pads": (1, 2, 1, 2)}),
    "average with pads": (
        "AveragePool", (1, 2, 5, 8, 4), (),
        {"kernel_shape": (2, 3, 1), "pads": (0, 1, 0, 1, 1, 0), "count_include_pad": 1, "strides": (2, 1, 1)},
    ),
    "image": ("GlobalAveragePool", (2, 17, 3, 5), (), {**LAST}),
    "planes of an image": ("GlobalMaxPool", (2, 3, 5, 7), (), {}),
    "largest of a symbolic image": ("GlobalMaxPool", (2, "h", 2, 4), (), {**LAST}),
    "norm of an image": ("GlobalLpPool", (1, 4, 5, 1, 3), (), {**LAST, "p": 1}),
    "norm": ("LpPool", (1, 2, 7, 1), (), {"kernel_shape": (3, 1), "p": 3}),
    "norm of blocks": ("LpPool", ("n", 2, 7, 9), (), {"kernel_shape": (2, 4), "strides": (2, 3), "p": 1}),
}  # fmt: skip


def applicable(graph: Graph) -> tuple[Alternatives, list[str]]:
    (c,) = alternatives_of(graph, TARGET)
    return c, [i.name for i in c.ways if i.refusal(c.facts) is None]


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("case", CASES)
def test_twin(case: str, constant: bool) -> None:
    op, a, b, attrs = CASES[case]
    graph = node(op, a, b, constant, **attrs)  # type: ignore[arg-type]
    c, names = applicable(graph)
    assert names
    dims = {"n": 2, "h": 9}
    rng = np.random.default_rng(2)
    feed = {
        i: rng.standard_normal([d.evaluate(dims) for d in graph.values[i].shape]).astype(np.float32)
        for i in graph.inputs
    }
    for name in names:
        require_twin(with_implementations(graph, {c.node.name: name}), feed, dims, 2e-4)


def test_the_cases_have_every_implementation() -> None:
    found = {(op, n) for op, a, b, attrs in CASES.values() for n in applicable(node(op, a, b, True, **attrs))[1]}  # type: ignore[arg-type]
    elsewhere = {  # with tests of their own
        *(("Conv", n) for n in ("winograd2_stride2", "winograd4_stride2")),
        *(("MatMulInteger", n) for n in ("dot_product", "dot_product_tiles", "shorts", "loops")),
        *((op, "paired_bytes") for op in ("MatMulInteger", "ConvInteger")),
        *((op, f"{n}_by_rows") for op in ("MatMul", "MatMulInteger") for n in ("dot_product", "dot_product_tiles")),
        *((op, "dot_product_shifted") for op in ("Conv", "ConvInteger", "ConvTranspose")),
        *(("Conv", n) for n in ("winograd2_pairs", "winograd2_stride2_pairs", "dot_product_columns")),
        *(
            (op, n)
            for op in ("Conv", "ConvTranspose")
            for n in ("dot_product", "dot_product_rows", "dot_product_tiles")
        ),
        *(("MatMul", n) for n in ("dot_product", "dot_product_tiles", "halves", "halves_by_rows")),
        *((op, n) for op in ("Conv", "ConvTranspose") for n in ("split_tiles", "split_shifted")),
        *(("MatMul", n) for n in ("split_tiles", "split_tiles_by_rows")),
        *(("MatMulDequantized", n) for n in ("packed", "packed_by_rows", "dequantized_panels")),
        *(("MatMulDequantized", n) for n in ("fixed_point", "fixed_point_by_rows")),
        *(("MatMulDequantized", n) for n in ("bfloat16_tiles", "bfloat16_tiles_by_rows")),
        *(("ConvInteger", n) for n in ("depthwise", "dot_product", "dot_product_rows", "dot_product_tiles")),
        *(("ConvInteger", n) for n in ("depthwise_shorts", "shorts", "shorts_rows", "loops")),
        *(("ConvInteger", f"{n}_shorts") for n in ("winograd2", "winograd4", "winograd2_stride2")),
    }
    assert found | elsewhere == {(op, i.name) for op, ways in IMPLEMENTATIONS.items() for i in ways}
