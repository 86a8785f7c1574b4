"""Which implementation nodes get, why others are refused, and what a tuner measures."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.graph_ir.passes.base import Level, PassContext
from tilewright.graph_ir.pipeline import PASSES, run_passes
from tilewright.graph_ir.verifier import verify_graph
from tilewright.lowering.choose_implementation import alternatives_of, choose_implementation, with_implementations
from tilewright.lowering.implementations.conv.winograd_matrices import WINOGRAD
from tilewright.lowering.implementations.table import IMPLEMENTATIONS
from tilewright.tests.graph_ir.rewriting import assert_same_numbers
from tilewright.tests.lowering.lowered import TARGET

CHOOSE = choose_implementation(TARGET)


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def conv(shape: tuple[Dim, ...] = (1, 28, 28, 32), w: np.ndarray | None = None, **attrs: Attribute) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", shape)
    w = weight(32, 32, 3, 3) if w is None else w
    return b.build(b.op("Conv", x, w, **{"pads": (1, 1, 1, 1), "data_layout": "NHWC", **attrs}))  # type: ignore[arg-type]


def chosen(graph: Graph, *disabled: str) -> str:
    new = CHOOSE.apply(graph, PassContext.for_graph(graph, disabled=disabled))
    return str(new.nodes[0].attr("implementation"))


def hopeful(graph: Graph, *disabled: str) -> set[str]:
    (found,) = alternatives_of(graph, TARGET)
    return set(found.hopeful(disabled))


def test_the_fastest_implementation_is_chosen_and_nothing_else_changes() -> None:
    ctx = PassContext.for_graph(conv())
    new = CHOOSE.apply(conv(), ctx)
    verify_graph(new)
    assert_same_numbers(conv(), new, 2e-5)
    assert new.nodes[0].with_attrs(implementation=None) == conv().nodes[0].with_attrs(implementation=None)
    assert new.nodes[0].attr("implementation") == "winograd4"
    assert [f.what for f in ctx.log.fired] == ["winograd4"]
    assert "error estimate of the 1 nodes that round otherwise: at most" in ctx.log.notes[0]


def test_a_node_that_has_an_implementation_keeps_it() -> None:
    graph = with_implementations(conv(), {conv().nodes[0].name: "winograd2"})
    assert CHOOSE.apply(graph, PassContext.for_graph(graph)) is graph


def test_below_the_highest_level_results_round_as_the_definition_does() -> None:
    extended = choose_implementation(TARGET, Level.EXTENDED)
    assert extended.apply(conv(), PassContext.for_graph(conv())).nodes[0].attr("implementation") == "implicit_gemm"


@pytest.mark.parametrize(
    ("graph", "name"),
    [
        (conv((1, 32, 32, 4), weight(16, 4, 5, 5), pads=(2, 2, 2, 2)), "implicit_gemm"),
        (conv((1, 64, 60, 4), weight(16, 4, 5, 5), pads=(2, 2, 2, 2)), "direct"),
        (conv((1, "h", "w", 4), weight(16, 4, 5, 5), pads=(2, 2, 2, 2)), "direct"),
        (conv((1, 64, 60, 4), weight(16, 4, 1, 1), pads=(0, 0, 0, 0)), "implicit_gemm"),
        (conv((1, 60, 60, 8), weight(8, 1, 3, 3), group=8), "depthwise"),
        (conv((1, 60, 60, 8), weight(32, 1, 3, 3), group=8), "depthwise"),
        (conv((1, 60, 60, 8), weight(24, 1, 3, 3), group=8), "merged_groups_rows"),
        (conv((1, 60, 60, 8), weight(96, 1, 3, 3), group=8), "direct"),
        (conv((1, 200, 200, 8), weight(16, 2, 3, 3), group=4), "merged_groups_rows"),
        (conv((1, 60, 60, 8), weight(16, 2, 3, 3), group=4), "merged_groups_rows"),
        (conv((1, 60, 60, 32), weight(2, 32, 3, 3)), "vectorized_reduction"),
    ],
    ids=[
        "short rows",
        "long rows",
        "symbolic rows",
        "pointwise",
        "depthwise",
        "half a vector of filters a channel",
        "three filters a channel",
        "a vector and a half of filters a channel",
        "narrow groups of long rows",
        "narrow groups",
        "few results",
    ],
)
def test_the_fastest_of_those_that_round_alike(graph: Graph, name: str) -> None:
    assert chosen(graph) == name


@pytest.mark.parametrize(("width", "name"), [(8, "subpixel"), (96, "subpixel_rows"), ("w", "subpixel_rows")])
def test_transposed_convolutions(width: Dim, name: str) -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 8, 7, width))
    graph = b.build(b.op("ConvTranspose", x, weight(8, 6, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1)))
    assert chosen(graph) == name
    assert chosen(graph, "subpixel").startswith("zero_insertion")


@pytest.mark.parametrize(
    ("a", "b", "constant", "name"),
    [
        ((64, 32), (32, 48), True, "packed_gemm"), ((2, 32), (32, 48), True, "packed_gemm"),
        ((64, 32), (32, 48), False, "packed_gemm"), ((3, 32), (32, 48), False, "unpacked_gemm"),
        ((4, 32), (32, 48), False, "packed_gemm"), (("n", 32), (32, 48), False, "packed_gemm"),
        ((2, 64, 32), (2, 32, 48), False, "batched_gemm"), ((2, 1, 32), (2, 32, 48), False, "unpacked_gemm"),
    ],
)  # fmt: skip
def test_products(a: tuple[Dim, ...], b: tuple[int, ...], constant: bool, name: str) -> None:
    g = GraphBuilder("g")
    w = weight(*b) if constant else g.input("w", "float32", b)
    assert chosen(g.build(g.op("MatMul", g.input("x", "float32", a), w))) == name


def test_few_results_of_a_long_sum_may_be_cut_in_parts() -> None:
    threads = TARGET.with_threads(4)
    for rows, depth, columns, tried in ((1, 4096, 16, True), (512, 4096, 1024, False), (1, 96, 16, False)):
        (c,) = alternatives_of(product((rows, depth), columns), threads)
        assert ("split_k" in c.hopeful()) is tried
        assert c.standard().name == "packed_gemm"


def test_few_columns_may_be_computed_along_the_depth() -> None:
    for depth, columns, tried in ((768, 2, True), (768, 9, True), (768, 8, False), (766, 2, False)):
        (c,) = alternatives_of(product((384, depth), columns), TARGET)
        assert ("vectorized_reduction" in c.hopeful()) is tried
        assert c.standard().name == "packed_gemm"


def test_names_are_unique_and_each_implementation_is_of_its_operator() -> None:
    for op, ways in IMPLEMENTATIONS.items():
        names = [i.name for i in ways]
        assert len(set(names)) == len(names)
        assert {i.op for i in ways} == {op}
        assert any(i.error is None and not i.measured for i in ways)


def test_few_pixels_and_many_channels_take_the_smaller_weights() -> None:
    assert chosen(conv((1, 14, 14, 256), weight(256, 256, 3, 3))) == "winograd3"
    assert chosen(conv((1, 7, 7, 256), weight(256, 256, 3, 3))) == "winograd2"


def test_a_stride_of_two_has_implementations_of_its_own() -> None:
    assert chosen(conv((1, 56, 56, 32), strides=(2, 2))) == "winograd4_stride2"
    assert chosen(conv((1, 28, 28, 256), weight(256, 256, 3, 3), strides=(2, 2))) == "winograd2_stride2"
    assert chosen(conv((1, 14, 14, 512), weight(512, 512, 3, 3), strides=(2, 2))) == "implicit_gemm"  # larger weights
    strided = conv((1, 56, 56, 32), strides=(2, 2))
    assert hopeful(strided) >= {"winograd2_stride2", "winograd4_stride2"}
    assert not hopeful(strided) & {"winograd2", "winograd3", "winograd4"}


def test_symbolic_sizes_count_as_one_image_of_usual_size() -> None:
    assert chosen(conv(("n", 28, 28, 32))) == "winograd4"
    assert chosen(conv(("n", 7, 7, 256), weight(256, 256, 3, 3))) == "winograd2"
    assert chosen(conv((1, 28, "w", 32))) == "winograd4"
    assert chosen(conv(("n", "h", "w", 32))) == "winograd4"
    assert chosen(conv(("n", "h//32", "w//32", 256), weight(256, 256, 3, 3))) == "winograd2"
    assert chosen(conv(("n", "h//(n - 1)", 28, 32))) == "direct"  # not defined for one image


def test_one_implementation_or_all_can_be_forbidden() -> None:
    assert chosen(conv(), "winograd4") == "winograd3"
    assert chosen(conv(), "winograd4", "winograd3") == "winograd2"
    assert chosen(conv(), "winograd2") == "winograd4"
    assert chosen(conv(), *WINOGRAD) == "implicit_gemm"
    assert chosen(conv(), "winograd") == "implicit_gemm"
    assert chosen(conv(), "winograd", "implicit_gemm") == "direct"


def test_a_tuner_measures_what_is_not_estimated_far_slower() -> None:
    assert hopeful(conv()) == {"implicit_gemm", "direct", "winograd2", "winograd3", "winograd4"}
    assert hopeful(conv(), "winograd2", "direct") == {"implicit_gemm", "winograd3", "winograd4"}
    assert hopeful(conv(), "winograd") == {"implicit_gemm", "direct"}
    assert hopeful(conv((1, 3, 3, 4), weight(4, 4, 3, 3))) == {"implicit_gemm", "direct"}


@pytest.mark.parametrize(
    "graph",
    [
        conv(strides=(3, 3)), conv((1, 56, 56, 32), strides=(1, 2)), conv(dilations=(2, 2)),
        conv(w=weight(32, 16, 3, 3), group=2), conv(w=weight(32, 32, 5, 5)),
        conv((1, 32, 28, 28), data_layout="NCHW"), conv(("n", 3, 3, 32)),
        conv((1, 112, 112, 3), weight(64, 3, 3, 3)), conv((1, 5, 5, 64), weight(64, 64, 3, 3)),
    ],
    ids=["stride", "strides", "dilation", "group", "kernel", "layout", "batch", "channels", "small"],
)  # fmt: skip
def test_others_are_computed_as_defined(graph: Graph) -> None:
    assert chosen(graph) in ("direct", "implicit_gemm", "merged_groups")


def test_a_weight_that_is_not_constant_is_not_transformed() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", "float32", (1, 28, 28, 32)), b.input("w", "float32", (32, 32, 3, 3))
    assert chosen(b.build(b.op("Conv", x, w, pads=(1, 1, 1, 1), data_layout="NHWC"))) == "implicit_gemm"


def test_an_inexact_implementation_is_refused() -> None:
    graph = conv(w=np.full((32, 32, 3, 3), 3e38, np.float32))
    ctx = PassContext.for_graph(graph)
    assert CHOOSE.apply(graph, ctx).nodes[0].attr("implementation") == "implicit_gemm"
    assert [r.what for r in ctx.log.refused] == ["winograd4", "winograd3", "winograd2"]
    assert all("error estimate" in r.reason and "limit 1e-04" in r.reason for r in ctx.log.refused)


def test_the_pipeline_prints_the_estimate() -> None:
    graph = conv((1, 32, 28, 28), data_layout="NCHW")
    passes = (*PASSES, CHOOSE)
    _, report = run_passes(graph, passes=passes)
    assert report.fired("winograd4") == 1
    assert "error estimate of the 1 nodes that round otherwise" in report.explain()
    _, report = run_passes(graph, disabled=["winograd"], passes=passes)
    assert report.fired("implicit_gemm") == 1


def product(
    shape: tuple[Dim, ...] = (1, 128, 768), columns: int = 3072, dtype: str = "float32", scale: float = 1.0
) -> Graph:
    b = GraphBuilder("g")
    w = np.random.default_rng(2).standard_normal((int(str(shape[-1])), columns)).astype(dtype)
    w[:, : columns // 2] *= scale
    return b.build(b.op("MatMul", b.input("x", dtype, shape), w))


def test_a_large_product_has_an_implementation_that_is_only_chosen_by_a_tuner() -> None:
    assert chosen(product()) == "packed_gemm"
    assert hopeful(product()) == hopeful(product((4, 32, 768))) == {"packed_gemm", "strassen"}
    assert hopeful(product(), "strassen") == {"packed_gemm"}
    assert hopeful(product(), "winograd") == {"packed_gemm", "strassen"}


@pytest.mark.parametrize(
    "graph",
    [
        product((1, 48, 768)), product(columns=256), product((1, 128, 256)), product((128, 769)), product(columns=3000),
        product(("n", 128, 768)), product((768,)), product(dtype="float64"),
    ],
    ids=["rows", "columns", "depth", "odd depth", "part of a vector", "symbolic", "vector", "dtype"],
)  # fmt: skip
def test_other_products_have_none(graph: Graph) -> None:
    assert "strassen" not in hopeful(graph)


def test_a_product_whose_columns_differ_too_much_has_none() -> None:
    assert "strassen" in hopeful(product(scale=10.0))
    assert "strassen" not in hopeful(product(scale=1e4))
