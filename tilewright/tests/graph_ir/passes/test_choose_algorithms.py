"""Which convolutions get an algorithm with fewer products, and why others do not."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.winograd import WINOGRAD
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.choose_algorithms import (
    CHOOSE_ALGORITHMS,
    algorithm_of,
    algorithms_of,
    with_algorithms,
)
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply


def weight(oc: int, ic: int, *taps: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((oc, ic, *taps)).astype(np.float32)


def conv(shape: tuple[Dim, ...] = (1, 28, 28, 32), w: np.ndarray | None = None, **attrs: Attribute) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", shape)
    w = weight(32, 32, 3, 3) if w is None else w
    return b.build(b.op("Conv", x, w, **{"pads": (1, 1, 1, 1), "data_layout": "NHWC", **attrs}))  # type: ignore[arg-type]


def chosen(graph: Graph, *disabled: str) -> str:
    new = CHOOSE_ALGORITHMS.apply(graph, PassContext.for_graph(graph, disabled=disabled))
    return str(new.nodes[0].attr("algorithm", "direct"))


def test_the_fastest_algorithm_is_chosen_and_nothing_else_changes() -> None:
    new, ctx = apply(conv(), "choose_algorithms")
    assert new.nodes[0].attr("algorithm") == "winograd4"
    assert [f.what for f in ctx.log.fired] == ["winograd4"]
    assert "error estimate of the 1 convolutions: at most" in ctx.log.notes[0]


def test_few_pixels_and_many_channels_take_the_smaller_weights() -> None:
    assert chosen(conv((1, 14, 14, 256), weight(256, 256, 3, 3))) == "winograd3"
    assert chosen(conv((1, 7, 7, 256), weight(256, 256, 3, 3))) == "winograd2"


def test_a_stride_of_two_has_algorithms_of_its_own() -> None:
    assert chosen(conv((1, 56, 56, 32), strides=(2, 2))) == "winograd4_stride2"
    assert chosen(conv((1, 28, 28, 256), weight(256, 256, 3, 3), strides=(2, 2))) == "winograd2_stride2"
    assert chosen(conv((1, 14, 14, 512), weight(512, 512, 3, 3), strides=(2, 2))) == "direct"  # the weights are larger
    strided = conv((1, 56, 56, 32), strides=(2, 2))
    assert set(algorithms_of(strided)[strided.nodes[0].name]) == {"direct", "winograd2_stride2", "winograd4_stride2"}


def test_symbolic_sizes_count_as_one_image_of_usual_size() -> None:
    assert chosen(conv(("n", 28, 28, 32))) == "winograd4"
    assert chosen(conv(("n", 7, 7, 256), weight(256, 256, 3, 3))) == "winograd2"
    assert chosen(conv((1, 28, "w", 32))) == "winograd4"
    assert chosen(conv(("n", "h", "w", 32))) == "winograd4"
    assert chosen(conv(("n", "h//32", "w//32", 256), weight(256, 256, 3, 3))) == "winograd2"
    assert chosen(conv(("n", "h//(n - 1)", 28, 32))) == "direct"  # not defined for one image


def test_one_algorithm_or_all_can_be_forbidden() -> None:
    assert chosen(conv(), "winograd4") == "winograd3"
    assert chosen(conv(), "winograd4", "winograd3") == "winograd2"
    assert chosen(conv(), "winograd2") == "winograd4"
    assert chosen(conv(), *WINOGRAD) == "direct"
    assert chosen(conv(), "winograd") == "direct"


def test_the_algorithms_that_may_be_chosen_instead() -> None:
    name = conv().nodes[0].name
    assert algorithms_of(conv()) == {name: ("direct", "winograd2", "winograd3", "winograd4")}
    assert algorithms_of(conv(), ["winograd2"]) == {name: ("direct", "winograd3", "winograd4")}
    assert algorithms_of(conv(), ["winograd"]) == {}
    assert algorithms_of(conv((1, 3, 3, 4), weight(4, 4, 3, 3))) == {}
    for algorithm in algorithms_of(conv())[name]:
        assert algorithm_of(with_algorithms(conv(), {name: algorithm}).nodes[0]) == algorithm


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
def test_others_stay_direct(graph: Graph) -> None:
    assert chosen(graph) == "direct"
    assert CHOOSE_ALGORITHMS.apply(graph, PassContext.for_graph(graph)) is graph


def test_a_weight_that_is_not_constant_stays_direct() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", "float32", (1, 28, 28, 32)), b.input("w", "float32", (32, 32, 3, 3))
    assert chosen(b.build(b.op("Conv", x, w, pads=(1, 1, 1, 1), data_layout="NHWC"))) == "direct"


def test_an_inexact_algorithm_is_refused() -> None:
    graph = conv(w=np.full((32, 32, 3, 3), 3e38, np.float32))
    ctx = PassContext.for_graph(graph)
    assert CHOOSE_ALGORITHMS.apply(graph, ctx) is graph
    assert [r.what for r in ctx.log.refused] == ["winograd4", "winograd3", "winograd2"]
    assert all("error estimate" in r.reason and "limit 1e-04" in r.reason for r in ctx.log.refused)


def test_the_pipeline_prints_the_estimate() -> None:
    graph = conv((1, 32, 28, 28), data_layout="NCHW")
    _, report = run_passes(graph)
    assert report.fired("winograd4") == 1
    assert "error estimate of the 1 convolutions" in report.explain()
    assert all("algorithm" not in dict(n.attrs) for n in run_passes(graph, disabled=["winograd"])[0].nodes)
    assert all("algorithm" not in dict(n.attrs) for n in run_passes(graph, "extended")[0].nodes)


def product(
    shape: tuple[Dim, ...] = (1, 128, 768), columns: int = 3072, dtype: str = "float32", scale: float = 1.0
) -> Graph:
    b = GraphBuilder("g")
    w = np.random.default_rng(2).standard_normal((int(str(shape[-1])), columns)).astype(dtype)
    w[:, : columns // 2] *= scale
    return b.build(b.op("MatMul", b.input("x", dtype, shape), w))


def test_a_large_product_has_an_algorithm_that_is_only_chosen_by_a_tuner() -> None:
    name = product().nodes[0].name
    assert chosen(product()) == "direct"
    assert algorithms_of(product()) == {name: ("direct", "strassen")}
    assert algorithms_of(product((4, 32, 768))) == {name: ("direct", "strassen")}
    assert algorithms_of(product(), ["strassen"]) == {}
    assert algorithms_of(product(), ["choose_algorithms"]) == {}
    assert algorithms_of(product(), ["winograd"]) == {name: ("direct", "strassen")}


@pytest.mark.parametrize(
    "graph",
    [
        product((1, 95, 768)), product(columns=256), product((1, 128, 256)), product((128, 769)), product(columns=3000),
        product(("n", 128, 768)), product((768,)), product(dtype="float64"),
    ],
    ids=["rows", "columns", "depth", "odd depth", "part of a vector", "symbolic", "vector", "dtype"],
)  # fmt: skip
def test_other_products_have_none(graph: Graph) -> None:
    assert algorithms_of(graph) == {}


def test_a_product_whose_columns_differ_too_much_has_none() -> None:
    assert algorithms_of(product(scale=10.0)) != {}
    assert algorithms_of(product(scale=1e4)) == {}
