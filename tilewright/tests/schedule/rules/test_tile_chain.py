"""Attention of bfloat16 in matrix tiles: numbers on awkward sizes by a simulation, and where the rule applies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.schedule.decisions import RandomDecider
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.tensor_ir.interpreter import interpret as run_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles

__all__ = ["tiles"]

RAPIDS = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-threads=2"
Sizes = tuple[int, int, int, int, int]
"""Batch, queries, keys, elements of a key, elements of a value; two heads."""
CASES: dict[str, tuple[Sizes, dict[str, object]]] = {
    "whole": ((1, 32, 64, 32, 32), {}),
    "odd": ((1, 37, 45, 20, 40), {}),
    "batches": ((2, 33, 32, 64, 32), {"heads": True}),
    "causal": ((1, 40, 40, 32, 32), {"causal": 1}),
    "mask": ((1, 35, 50, 17, 33), {"mask": (1, 1, 1, 50)}),
    "rows of mask": ((1, 33, 33, 32, 64), {"mask": (33, 33), "zero": 1}),
}


def attention(
    sizes: Sizes,
    heads: bool = False,
    causal: int = 0,
    mask: tuple[int, ...] = (),
    zero: int = 0,
    dtype: str = "bfloat16",
) -> Graph:
    b, s, t, d, dv = sizes
    g = GraphBuilder("attention")
    operands = []
    for name, n, width in (("q", s, d), ("k", t, d), ("v", t, dv)):
        shape = (b, n, 2, width) if heads else (b, 2, n, width)
        x = g.input(name, dtype, shape)
        operands.append(g.op("Transpose", x, perm=(0, 2, 1, 3)) if heads else x)
    if mask:
        operands.append(g.input("mask", "float32", mask))
    attrs = {"scale": 0.3, "causal": causal, "nan_rows_to_zero": zero}
    return g.build(g.op("FusedAttention", *operands, output_dtype=dtypes.float32, **attrs))


def graph_of(case: str) -> Graph:
    sizes, options = CASES[case]
    return attention(sizes, **options)  # type: ignore[arg-type]


def feed_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    feed = {}
    for name in graph.inputs:
        x = rng.standard_normal([int(d) for d in graph.values[name].shape]).astype(np.float32)
        if name == "mask":
            feed[name] = np.where(x > 1, -np.inf, x).astype(np.float32)
        else:
            feed[name] = x.astype(ml_dtypes.bfloat16)
    return feed


@pytest.mark.parametrize("case", CASES)
def test_numbers(tiles: State, case: str) -> None:
    graph, target = graph_of(case), with_tiles().with_threads(2)
    feed = feed_of(graph)
    (want,) = interpret(graph, feed).values()
    (got,) = tilewright.compile(graph, target=target, progress=False).run(None, feed)
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-2)  # weights are rounded to bfloat16
    tiles.require_clean()


@pytest.mark.parametrize("case", ["odd", "causal"])
@pytest.mark.parametrize("seed", range(2))
def test_any_decisions(case: str, seed: int) -> None:
    """A schedule of the search space computes what the function does, by the interpreter."""
    target = parse_target(RAPIDS)
    low = tilewright.compile(graph_of(case), target=target, stop_after="lower", progress=False)
    (func,) = low.funcs.values()
    s = schedule_by_rule(func, target, RandomDecider(np.random.default_rng(seed)))
    verify(s.func)
    assert str(s).count("opaque") == 2
    args = [feed_of(graph_of(case))[n] for n in graph_of(case).inputs]
    (want,), (got,) = (run_func(f, args, {}) for f in (func, s.func))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def rules_of(graph: Graph, target: str) -> set[str]:
    low = tilewright.compile(graph, target=parse_target(target), stop_after="lower", progress=False)
    return {r for f in low.funcs.values() for r in explained_default(f, parse_target(target))[1].values()}


def test_where_the_rule_applies() -> None:
    assert "tile_chain" in rules_of(graph_of("odd"), RAPIDS)
    assert "tile_chain" not in rules_of(graph_of("odd"), f"{RAPIDS} -mattr=-amx-bf16")
    for few in ((1, 31, 64, 32, 32), (1, 32, 15, 32, 32), (1, 32, 32, 15, 32), (1, 32, 32, 32, 31)):
        assert "tile_chain" not in rules_of(attention(few), RAPIDS)


def test_operands_are_rounded_where_it_applies() -> None:
    graph = attention((1, 64, 64, 64, 64), dtype="float32")
    for target, reduced in ((RAPIDS, True), (f"{RAPIDS} -mattr=-amx-bf16", False)):
        done = tilewright.compile(
            graph, target=parse_target(target), precision="bf16", stop_after="passes", progress=False
        )
        assert ("Cast" in {n.op for n in done.nodes}) == reduced
    (name,) = (n.name for n in graph.nodes)
    own = tilewright.compile(
        graph, target=parse_target(RAPIDS), precision={name: "fp32"}, stop_after="passes", progress=False
    )
    assert "Cast" not in {n.op for n in own.nodes}
