"""Numeric twin of lowering: groups run by the tensor IR interpreter against the graph's reference values."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from tilewright.core import dtypes
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.interpreter import interpret as interpret_graph
from tilewright.graph_ir.ir import Attribute, Graph, Group, Node
from tilewright.graph_ir.kinds import RunsAs
from tilewright.lowering.group import LoweredGroup, lower_group
from tilewright.machine.target import Target
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.text import parse_func

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 1)


def product_of_bfloat16(
    op: str, a: tuple[Dim, ...], b: tuple[int, ...], attrs: Mapping[str, Attribute]
) -> tuple[GraphBuilder, str]:
    """A graph with a MatMul, or a Conv with a bias, of ``x`` and a constant, both bfloat16, in float32; its result."""
    g = GraphBuilder("g")
    w = (np.random.default_rng(1).standard_normal(b) / 8).astype(ml_dtypes.bfloat16)
    operands = [g.input("x", "bfloat16", a), g.constant(w, "w")]
    if op == "Conv":
        operands.append(g.constant(np.linspace(-1, 1, b[0], dtype=np.float32), "bias"))
    return g, g.op(op, *operands, output_dtype=dtypes.float32, **attrs)


def group_of(graph: Graph, nodes: tuple[Node, ...] | None = None) -> Group:
    """All nodes of a graph as one group."""
    nodes = graph.nodes if nodes is None else nodes
    made = {o for n in nodes for o in n.outputs}
    inputs = dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in made and i not in graph.constants)
    return Group("g", nodes, tuple(inputs), graph.outputs, RunsAs.KERNEL)


def lower(graph: Graph) -> LoweredGroup:
    return lower_group(graph, group_of(graph), TARGET)


def require_twin(
    graph: Graph, feed: Mapping[str, np.ndarray], dims: Mapping[str, int] | None = None, tolerance: float = 1e-5
) -> LoweredGroup:
    """Lower the whole graph as one group and compare every output with the reference; the text must parse back."""
    low = lower(graph)
    args = [feed[i] for i in low.inputs] + [p.evaluate(graph.constants) for p in low.constants]
    results = interpret(low.func, args, {d: (dims or {})[d] for d in low.func.dims})
    expected = interpret_graph(graph, feed)
    for name, got in zip(low.outputs, results, strict=True):
        want = np.asarray(expected[name])
        assert got.shape == want.shape, name
        assert got.dtype == want.dtype, name
        if dtypes.from_numpy(want.dtype).is_float:
            got, want = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)
    assert parse_func(str(low.func)) == low.func
    return low
