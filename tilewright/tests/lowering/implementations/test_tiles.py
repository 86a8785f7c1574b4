"""Products in matrix tiles, of bfloat16 and of bytes: formulas, schedules, and code that is run by a simulation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.lowering.geometry.tile_sums import block_of
from tilewright.machine.target import Target
from tilewright.schedule.decisions import RandomDecider
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.tensor_ir.analysis.scopes import find_block
from tilewright.tensor_ir.interpreter import interpret as run_func
from tilewright.tensor_ir.ir import Alloc, Func, walk
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles
from tilewright.tests.lowering import lowered
from tilewright.tests.lowering.lowered import product_of_bfloat16

__all__ = ["tiles"]

RAPIDS = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-threads=2"
LAST: dict[str, Attribute] = {"data_layout": "NHWC"}
Case: TypeAlias = tuple[str, tuple[Dim, ...], tuple[int, ...], dict[str, Attribute]]
CASES: dict[str, Case] = {
    "whole": ("MatMul", (64, 64), (64, 64), {}),
    "odd": ("MatMul", (50, 71), (71, 45), {}),
    "few rows": ("MatMul", (17, 32), (32, 16), {}),
    "part of a tile": ("MatMul", (5, 40), (40, 20), {}),
    "batch": ("MatMul", (3, 15, 70), (70, 33), {}),
    "symbolic rows": ("MatMul", ("n", 9, 40), (40, 40), {}),
    "pixels": ("Conv", (1, 5, 8, 40), (50, 40, 1, 1), {**LAST}),
    "image": ("Conv", (1, 7, 6, 33), (24, 33, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "strides": ("Conv", (2, 9, 9, 6), (40, 6, 3, 2), {**LAST, "strides": (2, 1), "pads": (1, 0, 1, 1)}),
    "planes": ("Conv", (1, 5, 8, 9), (19, 5, 3, 3), {"dilations": (2, 1)}),
    "symbolic image": ("Conv", ("n", "h", 7, 8), (18, 8, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "few columns": ("MatMul", (40, 64), (64, 3), {}),
    "rows of taps": ("Conv", (1, 13, 8, 3), (20, 3, 4, 5), {**LAST, "strides": (2, 1)}),
    "padded rows of taps": ("Conv", (2, 9, 8, 5), (20, 5, 3, 3), {**LAST, "pads": (1, 1, 1, 1), "strides": (2, 2)}),
    "transposed": ("ConvTranspose", (1, 5, 4, 40), (40, 12, 3, 2), {**LAST, "strides": (2, 1), "pads": (1, 0, 0, 1)}),
    "symbolic transposed": ("ConvTranspose", ("n", "h", 4, 6), (6, 20, 2, 2), {**LAST, "strides": (2, 2)}),
}  # fmt: skip
SHIFTED: dict[str, Case] = {
    "image": ("Conv", (1, 7, 6, 33), (40, 33, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "images": ("Conv", (3, 5, 6, 32), (20, 32, 2, 3), {**LAST}),
    "dilated": ("Conv", (1, 9, 8, 70), (32, 70, 3, 2), {**LAST, "dilations": (2, 1), "pads": (0, 1, 2, 0)}),
    "few channels": ("Conv", (1, 12, 12, 32), (3, 32, 5, 5), {**LAST, "pads": (2, 2, 2, 2)}),
    "transposed": ("ConvTranspose", (1, 5, 4, 40), (40, 12, 3, 4), {**LAST, "strides": (2, 2), "pads": (1, 1, 0, 1)}),
    "symbolic images": ("Conv", ("n", 3, 6, 32), (20, 32, 2, 3), {**LAST}),
    "symbolic rows": ("Conv", (1, 2, "w", 6), (10, 6, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "symbolic sizes": ("Conv", (2, "h", "w", 6), (16, 6, 2, 2), {**LAST, "dilations": (2, 1)}),
}
BYTES = {"u8s8": ("uint8", np.int8), "s8u8": ("int8", np.uint8), "u8u8": ("uint8", np.uint8), "s8s8": ("int8", np.int8)}
DIMS = {"n": 4, "h": 4, "w": 35}
TILES, MOVED, COLUMNS = "dot_product_tiles", "dot_product_shifted", "dot_product_columns"


def case_of(name: str) -> Case:
    return SHIFTED[name.removeprefix("shifted ")] if name.startswith("shifted") else CASES[name]


def of_pairs(case: str) -> Graph:
    g, y = product_of_bfloat16(*case_of(case))
    return g.build(g.op("Relu", y))


def of_bytes(case: str, kind: str, sizes: Case | None = None) -> Graph:
    """With zero points, of a row or the whole, that are not those by which elements are moved."""
    op, a, b, attrs = sizes or case_of(case)
    left, right = BYTES[kind]
    g = GraphBuilder("g")
    rng = np.random.default_rng(3)
    info = np.iinfo(right)
    w = g.constant(rng.integers(info.min, info.max + 1, b).astype(right), "w")
    zeros = [g.constant(np.array(v, t), n) for v, t, n in ((7, left, "za"), (5, right, "zb"))]
    return g.build(g.op(f"{op}Integer", g.input("x", left, a), w, *zeros, **attrs))


def feed_of(graph: Graph, dims: Mapping[str, int] = DIMS) -> dict[str, np.ndarray]:
    value = graph.values["x"]
    shape = [d.evaluate(dims) for d in value.shape]
    rng = np.random.default_rng(2)
    if value.dtype == dtypes.bfloat16:
        return {"x": rng.standard_normal(shape).astype(ml_dtypes.bfloat16)}
    info = np.iinfo(value.dtype.numpy)
    return {"x": rng.integers(info.min, info.max + 1, shape).astype(value.dtype.numpy)}


def rapids() -> Target:
    """``RAPIDS`` with caches of its own, not those of the machine that runs the test."""
    return dataclasses.replace(parse_target(RAPIDS), l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=32 << 20)


def in_tiles(graph: Graph, target: Target, name: str = TILES) -> Graph:
    """``graph`` with its product in tiles, by the implementation ``name``."""
    node = next(n for n in graph.nodes if n.op != "Relu")
    (found,) = (c for c in alternatives_of(graph, target) if c.node.name == node.name)
    way = found.named(name)
    assert way is not None
    assert way.refusal(found.facts) is None
    return with_implementations(graph, {node.name: name})


_ALL = (*CASES, *(f"shifted {c}" for c in SHIFTED))
GRAPHS = {
    **{f"pairs: {c}": (c, "") for c in _ALL},
    **{f"{k}: {c}": (c, k) for c in _ALL for k in BYTES if "transposed" not in c},
}
SOME = [n for n in GRAPHS if n.startswith(("pairs", "s8u8")) or n.endswith(("odd", "strides", "shifted image"))]


def way_of(name: str) -> str:
    return MOVED if "shifted" in name else TILES


def graph_of(name: str) -> Graph:
    case, kind = GRAPHS[name]
    return of_bytes(case, kind) if kind else of_pairs(case)


@pytest.mark.parametrize("name", SOME)
def test_the_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_target(RAPIDS)
    monkeypatch.setattr(lowered, "TARGET", target)
    graph = in_tiles(graph_of(name), target, way_of(name))
    lowered.require_twin(graph, feed_of(graph), DIMS, 1e-5)


@pytest.mark.parametrize("name", SOME)
def test_a_model(tiles: State, name: str) -> None:
    target = with_tiles().with_threads(2)
    graph = in_tiles(graph_of(name), target, way_of(name))
    feed = feed_of(graph)
    (want,) = interpret(graph, feed).values()
    (got,) = tilewright.compile(graph, target=target, progress=False).run(None, feed)
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, want)
    tiles.require_clean()


def lowered_func(graph: Graph, target: Target, name: str = TILES) -> Func:
    done = tilewright.compile(in_tiles(graph, target, name), target=target, stop_after="lower", progress=False)
    (func,) = done.funcs.values()
    return func


@pytest.mark.parametrize(
    "name",
    [
        "pairs: odd",
        "s8u8: image",
        "pairs: symbolic rows",
        "pairs: strides",
        "pairs: padded rows of taps",
        "pairs: shifted images",
        "s8u8: shifted dilated",
        "pairs: shifted transposed",
        "s8u8: shifted symbolic rows",
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_any_decisions(name: str, seed: int) -> None:
    """A schedule of the search space computes what the function does, by the interpreter."""
    func = lowered_func(graph_of(name), parse_target(RAPIDS), way_of(name))
    text, want, got = randomly_scheduled(func, seed)
    assert "opaque" in text
    np.testing.assert_array_equal(got, want)


def randomly_scheduled(func: Func, seed: int) -> tuple[str, np.ndarray, np.ndarray]:
    """A schedule of the search space, and what the function and the scheduled one compute by the interpreter."""
    rng = np.random.default_rng(seed)
    s = schedule_by_rule(func, parse_target(RAPIDS), RandomDecider(rng))
    verify(s.func)
    dims = {d: DIMS[d] for d in func.dims}
    args = [
        rng.integers(-9, 10, [d.evaluate(dims) for d in b.shape]).astype(b.dtype.numpy)
        for b in func.params[: -func.outputs]
    ]
    (want,), (got,) = (run_func(f, args, dims) for f in (func, s.func))
    return str(s), want, got


@pytest.mark.parametrize(("name", "instruction"), [("pairs: whole", "tdpbf16ps"), ("u8s8: whole", "tdpbusd")])
def test_the_assembly(name: str, instruction: str) -> None:
    target = parse_target(RAPIDS)
    func = lowered_func(graph_of(name), target)
    trace, rules = explained_default(func, target)
    assert "matrix_tiles" in rules.values()
    text = assembly_text(emit_kernel(prepare(trace.apply(func), target), target, "kernel"), target)
    words = [x.split()[0] for x in text.splitlines() if x.strip()]
    assert words.count(instruction) == words.count("tileloadd") > 0
    assert words.count("ldtilecfg") == words.count("tilerelease") == 1
    assert "vdpbf16ps" not in words
    assert "vpdpbusd" not in words


def chosen(graph: Graph, target: str) -> str:
    found = alternatives_of(graph, parse_target(target))
    return next(c for c in found if c.node.op != "Relu").standard().name


def product(rows: Dim, depth: int, columns: int) -> Graph:
    g = GraphBuilder("g")
    w = g.constant(np.zeros((depth, columns), ml_dtypes.bfloat16), "w")
    return g.build(g.op("MatMul", g.input("x", "bfloat16", (rows, depth)), w, output_dtype=dtypes.float32))


def product_of_bytes(rows: Dim, depth: int, columns: int) -> Graph:
    g = GraphBuilder("g")
    w = g.constant(np.zeros((depth, columns), np.int8), "w")
    return g.build(g.op("MatMulInteger", g.input("x", "uint8", (rows, depth)), w))


def test_they_are_chosen_where_they_pay() -> None:
    assert chosen(of_pairs("whole"), RAPIDS) == TILES
    assert chosen(of_bytes("whole", "u8s8"), RAPIDS) == "dot_product"  # done before the tiles are awake
    assert chosen(product_of_bytes(128, 768, 768), RAPIDS) == TILES
    assert chosen(product(512, 768, 768), RAPIDS) == TILES
    assert chosen(product("n", 768, 768), RAPIDS) == f"{TILES}_by_rows"
    assert chosen(product_of_bytes("n", 768, 768), RAPIDS) == f"{TILES}_by_rows"
    assert chosen(product("n", 16, 16), RAPIDS) != f"{TILES}_by_rows"
    assert chosen(product(8, 768, 768), RAPIDS) == TILES
    assert chosen(product(1, 768, 768), RAPIDS) == "dot_product"  # waits for the weight, and tiles would be empty
    without = f"{RAPIDS} -mattr=-amx-bf16,-amx-int8"
    assert chosen(of_pairs("whole"), without) == "dot_product"
    assert chosen(of_bytes("whole", "u8s8"), without) == "dot_product"
    windows = RAPIDS.replace("linux-gnu", "windows-msvc")
    assert chosen(of_pairs("whole"), windows) == "packed_gemm"  # vdpbf16ps is slow where there are tiles


@pytest.mark.parametrize("way", ["dot_product_by_rows", f"{TILES}_by_rows"])
@pytest.mark.parametrize("kind", ["pairs", "u8s8", "s8u8"])
def test_few_rows_of_a_number_that_a_call_tells(tiles: State, way: str, kind: str) -> None:
    target = with_tiles().with_threads(2)
    case: Case = ("MatMul", ("n", 70), (70, 80), {})
    if kind == "pairs":
        g, y = product_of_bfloat16(*case)
        whole = g.build(g.op("Relu", y))
    else:
        whole = of_bytes("", kind, case)
    graph = in_tiles(whole, target, way)
    model = tilewright.compile(graph, target=target, progress=False)
    for rows in (0, 1, 5, 6, 8, 12, 13, 33):
        feed = feed_of(graph, {"n": rows})
        (want,) = interpret(graph, feed).values()
        np.testing.assert_allclose(model.run(None, feed)[0], want, rtol=1e-5, atol=1e-5 if kind == "pairs" else 0)
    if "tiles" in way:
        tiles.require_clean()


@pytest.mark.parametrize("rows", [1, 5, 6, 12, 13, 40])
@pytest.mark.parametrize(("of", "steps", "least"), [(product, 2, 6), (product_of_bytes, 1, 13)])
def test_few_rows_are_not_made_up_to_a_block(
    of: Callable[[Dim, int, int], Graph], steps: int, least: int, rows: int
) -> None:
    """Either they are summed one by one, or in blocks: the other sums have no rows, or no steps."""
    func = lowered_func(of("n", 64, 64), parse_target(RAPIDS), f"{TILES}_by_rows")
    few = next(a.buffer.shape[0] for a in walk(func.body) if isinstance(a, Alloc) and a.buffer.name == "few")
    extent = next(x.extent for x in find_block(func, "acc").axes if x.kind == "reduce")
    found = few.evaluate({"n": rows}), extent.evaluate({"n": rows})
    assert found == ((rows, 0) if rows < least else (0, steps))


def decided(func: Func) -> tuple[str, str]:
    """The trace of the default schedule, and the function that it makes."""
    trace, _ = explained_default(func, parse_target(RAPIDS))
    return str(trace), str(trace.apply(func))


@pytest.mark.parametrize(("columns", "order", "steps"), [(64, "rows", "((n + 31)//32)*2"), (3072, "columns", "96")])
def test_threads_share_the_panels_of_an_open_number_of_rows(columns: int, order: str, steps: str) -> None:
    func = lowered_func(product("n", 768, columns), parse_target(RAPIDS), f"{TILES}_by_rows")
    trace, text = decided(func)
    assert f'"acc.order", candidates=("columns", "rows"), decision="{order}"' in trace
    assert "tiles = shared(int32[" in text
    assert "acc = local(float32[32, 1, 32]" in text
    (shared,) = re.findall(r"for o0\w+ in parallel\(([^,]*), if_=", text)
    assert shared == steps


@pytest.mark.parametrize("rows", [2, 5])
def test_blocks_without_a_step_are_zero(rows: int) -> None:
    """Their initial values are stored in front of the nest that an intrinsic computes."""
    func = lowered_func(product("n", 128, 32), parse_target(RAPIDS), f"{TILES}_by_rows")
    done = explained_default(func, parse_target(RAPIDS))[0].apply(func)
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 10, [int(d.evaluate({"n": rows})) for d in b.shape]) for b in func.params[: -func.outputs]]
    typed = [a.astype(b.dtype.numpy) for a, b in zip(args, func.params, strict=False)]
    (want,), (got,) = (run_func(f, typed, {"n": rows}) for f in (func, done))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", ["shifted symbolic rows", "shifted symbolic sizes", "shifted symbolic images"])
def test_an_image_of_open_size_is_summed_in_runs_of_a_row(case: str) -> None:
    trace, text = decided(lowered_func(of_pairs(case), parse_target(RAPIDS), MOVED))
    assert ('"acc.run"' in trace) == ("images" not in case)
    assert "acc = local(float32[" in text
    assert "opaque" in text


def test_what_fills_no_tile_is_refused() -> None:
    (found,) = alternatives_of(product(3, 64, 64), parse_target(RAPIDS))
    way = found.named(TILES)
    assert way is not None
    assert way.refusal(found.facts) == "3 rows, expected at least 4"


def test_a_depth_that_a_symbol_tells_is_refused() -> None:
    """The weight is a constant, but the other operand says by a symbol how long the sums are: vectors take it."""
    g = GraphBuilder("g")
    w = g.constant(np.ones((30, 64), ml_dtypes.bfloat16), "w")
    graph = g.build(g.op("MatMul", g.input("x", "bfloat16", (40, "k")), w, output_dtype=dtypes.float32))
    (found,) = alternatives_of(graph, parse_target(RAPIDS))
    way = found.named(TILES)
    assert way is not None
    assert way.refusal(found.facts) == "sums over k, expected a constant"
    choice = {graph.nodes[0].name: "dot_product"}
    model = tilewright.compile(graph, implementations=choice, progress=False)
    (got,) = model.run(None, {"x": np.ones((40, 30), ml_dtypes.bfloat16)})
    np.testing.assert_array_equal(got, np.full((40, 64), 30, np.float32))


def test_groups_are_refused() -> None:
    g = GraphBuilder("g")
    w = g.constant(np.zeros((64, 32, 1, 1), ml_dtypes.bfloat16), "w")
    x = g.input("x", "bfloat16", (1, 8, 8, 64))
    graph = g.build(g.op("Conv", x, w, output_dtype=dtypes.float32, group=2, data_layout="NHWC"))
    (found,) = alternatives_of(graph, parse_target(RAPIDS))
    way = found.named(TILES)
    assert way is not None
    assert way.refusal(found.facts) == "2 groups, expected one"


@pytest.mark.parametrize(("extent", "block"), [(16, 16), (17, 32), (31, 32), (33, 32)])
def test_blocks(extent: int, block: int) -> None:
    assert block_of(const(extent)) == block
    assert block_of(var("n")) == 32


def test_a_network_of_bfloat16(tiles: State) -> None:
    """``precision="bf16"`` and fused epilogues: a layer of a transformer, by the default schedules."""
    g = GraphBuilder("g")
    rng = np.random.default_rng(0)
    x = g.input("x", "float32", (2, 24, 64))
    w1, w2 = ((rng.standard_normal(s) / 8).astype(np.float32) for s in ((64, 128), (128, 64)))
    y = g.op("Add", g.op("MatMul", x, g.constant(w1, "w1")), g.constant(np.ones(128, np.float32), "b"))
    graph = g.build(g.op("Add", g.op("MatMul", g.op("Gelu", y), g.constant(w2, "w2")), x))
    target = with_tiles().with_threads(2)
    done = tilewright.compile(graph, target=target, precision="bf16", stop_after="lower", progress=False)
    rules = [explained_default(f, target)[1] for f in done.funcs.values()]
    assert sum("matrix_tiles" in r.values() for r in rules) == 2
    feed = {"x": rng.standard_normal((2, 24, 64)).astype(np.float32)}
    reduced = tilewright.compile(graph, target=target, precision="bf16", stop_after="passes", progress=False)
    (want,) = interpret(reduced, feed).values()
    (got,) = tilewright.compile(graph, target=target, precision="bf16", progress=False).run(None, feed)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
    tiles.require_clean()


REFUSED: dict[str, tuple[tuple[Dim, ...], tuple[int, ...], dict[str, Attribute], str]] = {
    "planes": ((1, 32, 8, 9), (19, 32, 3, 3), {}, "no image with channels last"),
    "a line": ((1, 40, 32), (20, 32, 3), {**LAST}, "no image with channels last"),
    "one tap": ((1, 8, 9, 32), (20, 32, 1, 1), {**LAST}, "one tap, expected several"),
    "strides": (
        (1, 8, 9, 32), (20, 32, 3, 3), {**LAST, "strides": (2, 1)},
        "strides 2 x 1 and dilations 1 x 1, expected 1 along a row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_images_that_are_not_read_as_they_lie(case: str) -> None:
    a, b, attrs, reason = REFUSED[case]
    g, y = product_of_bfloat16("Conv", a, b, attrs)
    (found,) = alternatives_of(g.build(y), parse_target(RAPIDS))
    way = found.named(MOVED)
    assert way is not None
    assert way.refusal(found.facts) == reason


def test_of_an_image_that_several_taps_read_one_copy_is_made() -> None:
    assert chosen(of_pairs("shifted few channels"), RAPIDS) == COLUMNS
    assert chosen(of_pairs("shifted image"), RAPIDS) == TILES  # of so few pixels a third would be edges
    assert chosen(of_pairs("rows of taps"), RAPIDS) != MOVED
    func = lowered_func(of_pairs("shifted image"), parse_target(RAPIDS), MOVED)
    trace, rules = explained_default(func, parse_target(RAPIDS))
    assert rules["o0"] == "shifted_tiles"
    assert "tiles_dot2_taps_2x2" in str(trace.apply(func))


FEW: dict[str, Case] = {
    "of nine taps": ("Conv", (1, 13, 12, 32), (3, 32, 9, 9), {**LAST, "pads": (4, 4, 4, 4)}),
    "of one tap below another": ("Conv", (2, 5, 9, 40), (2, 40, 1, 4), {**LAST}),
    "dilated": ("Conv", (1, 9, 8, 18), (10, 18, 2, 3), {**LAST, "dilations": (2, 1), "pads": (0, 1, 2, 0)}),
    "one": ("Conv", (1, 8, 8, 32), (1, 32, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
    "symbolic images": ("Conv", ("n", 5, 6, 32), (4, 32, 3, 3), {**LAST}),
    "symbolic rows": ("Conv", (1, "h", 9, 32), (4, 32, 3, 3), {**LAST, "pads": (1, 1, 1, 1)}),
}


@pytest.mark.parametrize("case", FEW)
def test_taps_of_a_row_are_columns_where_there_are_few_channels(tiles: State, case: str) -> None:
    g, y = product_of_bfloat16(*FEW[case])
    on = with_tiles().with_threads(2)
    graph = in_tiles(g.build(g.op("Relu", y)), on, COLUMNS)
    feed = feed_of(graph)
    (want,) = interpret(graph, feed).values()
    (got,) = tilewright.compile(graph, target=on, progress=False).run(None, feed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    tiles.require_clean()


def test_sums_of_taps_are_added_where_they_are_made() -> None:
    g, y = product_of_bfloat16(*FEW["of nine taps"])
    trace, text = decided(lowered_func(g.build(g.op("Relu", y)), parse_target(RAPIDS), COLUMNS))
    assert '"acc.rows"' in trace
    assert re.search(r"acc = local\(float32\[\d+, 1, 32\]", text)
    assert "tiles_dot2_taps_2x2" in text


@pytest.mark.parametrize(
    ("shape", "weight", "reason"),
    [
        ((1, 8, 8, 32), (4, 32, 3, 1), "rows of one tap, expected several"),
        ((1, 8, 8, 32), (11, 32, 3, 3), "33 channels and taps of a row, expected at most 32"),
        ((1, 8, "w", 32), (4, 32, 3, 3), "rows of w - 2 pixels, expected a constant"),
    ],
)
def test_taps_that_are_no_columns(shape: tuple[int | str, ...], weight: tuple[int, ...], reason: str) -> None:
    g, y = product_of_bfloat16("Conv", shape, weight, {**LAST})
    (found,) = alternatives_of(g.build(y), parse_target(RAPIDS))
    way = found.named(COLUMNS)
    assert way is not None
    assert way.refusal(found.facts) == reason


@pytest.mark.parametrize(("times", "way"), [(1, MOVED), (32, TILES)])
def test_short_rows_of_an_open_image_fill_no_runs(times: int, way: str) -> None:
    """One of 224 by 224 is assumed; of 7 by 7, blocks over several rows of the image have fewer empty rows."""
    g = GraphBuilder("g")
    x = g.input("x", "bfloat16", (1, 64, "h", "w"))
    w = g.constant(np.zeros((64, 64, 3, 3), ml_dtypes.bfloat16), "w")
    small = g.op("MaxPool", x, kernel_shape=(times, times), strides=(times, times))
    last = g.op("Transpose", small, perm=(0, 2, 3, 1))
    graph = g.build(g.op("Conv", last, w, output_dtype=dtypes.float32, data_layout="NHWC"))
    found = alternatives_of(graph, parse_target(RAPIDS))
    assert next(c for c in found if c.node.op == "Conv").standard().name == way


@pytest.mark.parametrize("case", ["shifted image", "odd", "image"])
def test_what_finishes_the_sums_in_another_order(tiles: State, case: str) -> None:
    """No block of the consumer is one of the product: the sums are made before it."""
    g, y = product_of_bfloat16(*case_of(case))
    result = g.build(y).values[y].shape
    across = int(result[-2] * result[-1])
    flat = g.op("Reshape", y, g.constant(np.array([-1, across // 2 if across % 2 == 0 else across], np.int64), "to"))
    graph = in_tiles(g.build(g.op("Relu", flat)), with_tiles().with_threads(2), way_of(case))
    feed = feed_of(graph)
    (want,) = interpret(graph, feed).values()
    (got,) = tilewright.compile(graph, target=with_tiles().with_threads(2), progress=False).run(None, feed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    tiles.require_clean()
