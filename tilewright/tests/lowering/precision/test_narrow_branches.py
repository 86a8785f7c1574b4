"""Which of two products that are added up is stored rounded, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"
IMAGE = (1, 32, 12, 12)


def weight(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def conv(g: GraphBuilder, x: str, seed: int, side: int = 1) -> str:
    return g.op("Conv", x, weight(seed, 64, 32, side, side), pads=(side // 2,) * 4)


def block(read: str = "", added: int = 2) -> Graph:
    """A sum of two convolutions. ``read``: what reads the second one besides; ``added``: how many are convolutions."""
    g = GraphBuilder("block")
    x = g.input("x", "float32", IMAGE)
    first, last = conv(g, x, 0, 3), conv(g, x, 1)
    other = last if added == 2 else g.input("z", "float32", (1, 64, 12, 12))
    y = g.op("Relu", g.op("Add", first, other))
    return g.build(
        y, *([g.op("Neg", last)] if read == "operator" else [last] if read == "caller" or added == 1 else [])
    )


def after_passes(graph: Graph, precision: str = "bf16") -> Graph:
    found: Graph = tilewright.compile(graph, target=AVX512, precision=precision, stop_after="passes", progress=False)
    return found


def rounded(graph: Graph) -> list[str]:
    """The operators whose results are rounded."""
    makers = {o: n.op for n in graph.nodes for o in n.outputs}
    casts = [n for n in graph.nodes if n.op == "Cast" and n.attr("to") == dtypes.bfloat16]
    return [makers[n.inputs[0]] for n in casts if n.inputs[0] in makers]


def test_the_last_of_two_products_is_stored_rounded() -> None:
    graph = after_passes(block())
    assert rounded(graph).count("Conv") == 1
    (cast,) = [
        n
        for n in graph.nodes
        if n.op == "Cast" and n.inputs[0] in {o for m in graph.nodes if m.op == "Conv" for o in m.outputs}
    ]
    last = [n for n in graph.nodes if n.op == "Conv"][-1]
    assert cast.inputs[0] == last.outputs[0]


@pytest.mark.parametrize("build", [
    lambda: block("operator"),  # that one reads float32
    lambda: block("caller"),
    lambda: block(added=1),
])  # fmt: skip
def test_what_others_read_is_not(build: Callable[[], Graph]) -> None:
    assert "Conv" not in rounded(after_passes(build()))


def test_nor_is_it_where_nodes_are_named_or_nothing_is_reduced() -> None:
    names = [n.name for n in after_passes(block(), "fp32").nodes if n.op == "Conv"]
    one = tilewright.compile(
        block(), target=AVX512, precision=dict.fromkeys(names, "bf16"), stop_after="passes", progress=False
    )
    for graph in (one, after_passes(block(), "fp32")):
        assert "Conv" not in rounded(graph)


def test_it_is_what_the_kernel_stores() -> None:
    done = tilewright.compile(block(), target=AVX512, precision="bf16", stop_after="lower", progress=False)
    outputs = [b.dtype for f in done.funcs.values() if "conv" in f.name for b in f.params[-f.outputs :]]
    assert sorted(map(str, outputs)) == ["bfloat16", "float32"]


def test_results_are_as_exact() -> None:
    feed = {"x": np.random.default_rng(3).standard_normal(IMAGE).astype(np.float32)}
    (want,) = interpret(after_passes(block(), "fp32"), feed).values()
    (reduced,) = interpret(after_passes(block()), feed).values()
    error = np.sqrt(np.mean((reduced - want) ** 2) / np.mean(want**2))
    assert 1e-4 < error < 4e-3
    (got,) = tilewright.compile(block(), precision="bf16", progress=False).run(None, feed)
    np.testing.assert_allclose(got, want, rtol=0.05, atol=0.02)
