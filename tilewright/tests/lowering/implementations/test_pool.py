"""Pooling in one pass or in one for each dimension: which is chosen, types, NaN and infinities, refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import Alternatives, alternatives_of
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.schedule.rules.facts import all_blocks
from tilewright.tensor_ir.analysis.scopes import loops_around
from tilewright.tensor_ir.ir import Func, Index, walk_expr
from tilewright.tests.lowering.lowered import TARGET

AVX512 = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4")
WAYS = ("direct", "separable")


def pool(op: str, shape: tuple[Dim, ...], kernel: int, dtype: str = "float32", **attrs: Attribute) -> Graph:
    b = GraphBuilder("g")
    pads = (kernel // 2,) * 4
    x = b.input("x", dtype, shape)
    return b.build(b.op(op, x, **{"kernel_shape": (kernel, kernel), "strides": (1, 1), "pads": pads, **attrs}))  # type: ignore[arg-type]


def choice(graph: Graph) -> Alternatives:
    (c,) = alternatives_of(graph, TARGET)
    return c


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("kernel", "stride", "standard", "tried"),
    [(3, 1, "direct", True), (5, 1, "separable", False), (13, 1, "separable", False)],
)
def test_large_windows_that_overlap_are_reduced_along_one_dimension_after_another(
    kernel: int, stride: int, standard: str, tried: bool, layout: str
) -> None:
    shape = (1, 32, 40, 40) if layout == "NCHW" else (1, 40, 40, 32)
    c = choice(pool("MaxPool", shape, kernel, strides=(stride, stride), data_layout=layout))
    assert c.standard().name == standard
    assert (len(c.hopeful()) == 2) is tried


@pytest.mark.parametrize(
    ("op", "kernel", "layout", "standard"),
    [
        ("MaxPool", 2, "NHWC", "direct"), ("MaxPool", 2, "NCHW", "separable"), ("AveragePool", 2, "NCHW", "direct"),
        ("MaxPool", 3, "NCHW", "separable"), ("AveragePool", 3, "NCHW", "separable"), ("MaxPool", 3, "NHWC", "direct"),
    ],
)  # fmt: skip
def test_windows_side_by_side(op: str, kernel: int, layout: str, standard: str) -> None:
    """Steps along rows lie apart: a second pass over fewer elements is then worth the first one."""
    shape = (1, 32, 60, 60) if layout == "NCHW" else (1, 60, 60, 32)
    c = choice(pool(op, shape, kernel, strides=(kernel, kernel), pads=(0, 0, 0, 0), data_layout=layout))
    assert c.standard().name == standard
    assert c.hopeful() == (standard,)


def test_windows_of_whole_images_stay_one_reduction() -> None:
    c = choice(pool("AveragePool", (1, 64, 7, 7), 7, pads=(0, 0, 0, 0)))
    assert c.standard().name == "direct"
    assert c.hopeful() == ("direct",)


def test_the_choice_does_not_need_sizes() -> None:
    assert choice(pool("MaxPool", ("n", 8, "h", "w"), 9)).standard().name == "separable"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_types(op: str, dtype: str, way: str) -> None:
    if dtype == "uint8" and op != "MaxPool":
        pytest.skip("only maxima of integers")
    graph = pool(op, (2, 3, 11, 13), 5, dtype)
    x = (np.random.default_rng(1).standard_normal((2, 3, 11, 13)) * 9 + 9).astype(dtype)
    if dtype.startswith("float") and op == "MaxPool":
        x[0, 0, 3, 4], x[0, 1, 5, 5], x[1, 2] = np.nan, np.inf, -np.inf
    model = tilewright.compile(
        graph, threads=1, opt_level="none", implementations={graph.nodes[0].name: way}, progress=False
    )
    (got,) = model.run({"x": x}).values()
    (want,) = interpret(graph, {"x": x}).values()
    tolerance = 1e-3 if dtype == "float16" else 1e-5
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance)
    assert f": {way}, by user" in model.explain()


def test_positions_need_whole_windows() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 2, 9, 9))
    c = choice(b.build(*b.ops("MaxPool", x, outputs=2, kernel_shape=(5, 5))))
    assert c.standard().name == "direct"
    (separable,) = [i for i in c.ways if i.name == "separable"]
    assert separable.refusal(c.facts) == "the positions of the maxima need the whole windows"


@pytest.mark.parametrize("kernel", [(5, 1), (1, 5), (1, 1)])
def test_windows_over_one_dimension_have_one_pass(kernel: tuple[int, int]) -> None:
    c = choice(pool("MaxPool", (1, 2, 9, 9), 5, kernel_shape=kernel, pads=(0, 0, 0, 0)))
    (separable,) = [i for i in c.ways if i.name == "separable"]
    assert "windows of more than one step in one dimension at most" in str(separable.refusal(c.facts))


@pytest.mark.parametrize(
    ("op", "shape", "layout", "standard", "refusal"),
    [
        ("GlobalAveragePool", (1, 56, 56, 64), "NHWC", "in_parts", None),
        ("GlobalMaxPool", (1, 7, 7, 64), "NHWC", "one_sweep", None),
        ("GlobalLpPool", (1, 64, 56, 56), "NCHW", "one_sweep", "the innermost dimension is reduced, too"),
        ("GlobalMaxPool", (1, 56, 64), "NHWC", "one_sweep", "1 spatial dimensions, expected two or more"),
    ],
)
def test_long_images_whose_channels_lie_together_are_reduced_in_parts(
    op: str, shape: tuple[int, ...], layout: str, standard: str, refusal: str | None
) -> None:
    b = GraphBuilder("g")
    c = choice(b.build(b.op(op, b.input("x", "float32", shape), data_layout=layout)))
    assert c.standard().name == standard
    assert c.ways[1].refusal(c.facts) == refusal


def _lowered(graph: Graph, way: str, target: Target = TARGET) -> Func:
    ways = {graph.nodes[0].name: way}
    done = tilewright.compile(graph, implementations=ways, stop_after="lower", target=target, progress=False)
    (func,) = done.funcs.values()
    return func


def _average(stride: int) -> Graph:
    return pool("AveragePool", (1, 4, 18, 40), 3, strides=(stride, stride))


@pytest.mark.parametrize("way", ["direct", "separable"])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_number_of_elements_is_a_product_of_what_each_dimension_decides(way: str, stride: int) -> None:
    """So a vector has the same number in all rows but for a factor, and no integers are multiplied in it."""
    func = _lowered(_average(stride), way)
    (last,) = (b for b in all_blocks(func) if b.buffer == func.params[-1].name)
    counts = [x.expr for x in walk_expr(last.value) if isinstance(x, Index)]
    assert len(counts) == 2
    assert all(len(n.free_vars()) == 1 for n in counts)


def test_sums_along_one_dimension_are_made_once_and_in_vectors() -> None:
    """Windows that overlap share them: no row computes those of its own."""
    func = _lowered(_average(2), "separable")
    after = default_trace(func, TARGET).apply(func)
    loops, own = ({x.var: x for x in loops_around(after, n)} for n in ("pool_sum", after.params[-1].name))
    assert not loops.keys() & own.keys()
    assert any(x.kind == "vectorized" for x in loops.values())


def test_the_second_pass_does_not_repeat_the_first() -> None:
    """In its steps the first would be made again for each window."""
    func = _lowered(pool("MaxPool", (1, 56, 56, 64), 5, data_layout="NHWC"), "separable", AVX512)
    text = default_trace(func, AVX512).to_text()
    steps = {f"k0{n}" for n in ("", "_1")}
    assert not any(f'compute_at("{first}", loop="{step}")' in text for first in ("max_pool", "o0") for step in steps)


def test_rows_that_are_read_under_tests_are_few() -> None:
    func = _lowered(pool("AveragePool", (1, 56, 56, 64), 3, data_layout="NHWC"), "direct", AVX512)
    text = default_trace(func, AVX512).to_text()
    (rows,) = (int(n) for n in re.findall(r'"pool_sum.rows", candidates=.*, decision=(\d+)', text))
    assert rows <= 6
