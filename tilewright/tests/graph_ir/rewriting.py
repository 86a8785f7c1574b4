"""One way to test a rewrite: it fires or refuses as expected, verifies, prints and parses, and computes the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.pipeline import PASSES
from tilewright.graph_ir.rules import (
    activations,
    algebra,
    attention,
    integer_products,
    logic,
    noops,
    norms,
    products,
    quantization,
    scales,
    views,
    weights,
)
from tilewright.graph_ir.rules.base import Rule
from tilewright.graph_ir.rules.composites import byte_functions, cells, channel_norms
from tilewright.graph_ir.rules.contractions import einsum
from tilewright.graph_ir.rules.driver import rule_pass
from tilewright.graph_ir.rules.files import defaults, gemm
from tilewright.graph_ir.rules.moves import convolutions, repeats, row_views, slices
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.machine.costs import GENERIC, Costs

RULES: dict[str, Rule] = {
    r.name: r
    for rules in (
        noops.RULES,
        views.RULES,
        algebra.RULES,
        algebra.STRENGTH,
        logic.RULES,
        slices.RULES,
        convolutions.RULES,
        algebra.AFFINE,
        activations.CLIPS,
        einsum.RULES,
        repeats.RULES,
        weights.RULES,
        products.CHAINS,
        activations.RULES,
        channel_norms.RULES,
        cells.RULES,
        norms.RULES,
        scales.RULES,
        scales.BATCHNORM_AS_AFFINE,
        scales.WEIGHTS_AT_RUN_TIME,
        products.RULES,
        defaults.RULES,
        gemm.RULES,
        row_views.RULES,
        attention.RULES,
        integer_products.PRODUCTS,
        quantization.UNSIGNED,
        quantization.MOVES,
        quantization.SCALES,
        byte_functions.RULES,
    )
    for r in rules
}
BY_NAME: dict[str, Pass] = {p.name: p for p in PASSES}
SIZES = (1, 3, 8)
TOLERANCE = {Exactness.BIT_EXACT: 0.0, Exactness.REASSOCIATING: 2e-5, Exactness.APPROXIMATE: 1e-2}


def built(build: Callable[[GraphBuilder], str | Sequence[str]]) -> Graph:
    """The graph whose outputs ``build`` names."""
    b = GraphBuilder("g")
    out = build(b)
    return b.build(*((out,) if isinstance(out, str) else out))


def as_pass(*names: str) -> Pass:
    """The pass of that name, or a pass of just the named rules."""
    if len(names) == 1 and names[0] in BY_NAME:
        return BY_NAME[names[0]]
    return rule_pass("under_test", Level.BASIC, tuple(RULES[n] for n in names))


def apply(graph: Graph, *names: str, costs: Costs = GENERIC) -> tuple[Graph, PassContext]:
    """The graph after a pass or rules, verified, round-tripped, and compared with the original by numbers."""
    p = as_pass(*names)
    ctx = dataclasses.replace(PassContext.for_graph(graph, enabled=names), costs=costs)
    new = p.apply(graph, ctx)
    verify_graph(new)
    text = print_graph(new)
    assert print_graph(parse_graph(text, constants_of(new))) == text
    assert_same_numbers(graph, new, TOLERANCE[p.exactness])
    return new, ctx


def assert_same_numbers(a: Graph, b: Graph, tolerance: float, sizes: Sequence[int] = SIZES) -> None:
    """Both graphs give the same outputs for seeded inputs, every dim symbol set to each of ``sizes`` in turn."""
    symbols = {s for i in a.inputs for d in a.values[i].shape for s in d.free_vars()}
    for size in sizes if symbols else (1,):
        rng = np.random.default_rng(size)
        feed = {i: random_array(rng, a, i, dict.fromkeys(symbols, size)) for i in a.inputs}
        want, got = interpret(a, feed), interpret(b, feed)
        for k, x in want.items():
            y = got[k]
            assert isinstance(x, np.ndarray)
            assert isinstance(y, np.ndarray)
            assert (x.dtype, x.shape) == (y.dtype, y.shape), k
            if tolerance == 0.0:
                np.testing.assert_array_equal(y, x, err_msg=k)
            else:
                np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance, err_msg=k)


def random_array(rng: np.random.Generator, graph: Graph, name: str, env: dict[str, int]) -> np.ndarray:
    """A seeded array for a graph input."""
    v = graph.values[name]
    shape = tuple(d.evaluate(env) for d in v.shape)
    if v.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if v.dtype.is_integer:
        return rng.integers(0, 5, shape).astype(v.dtype.numpy)
    return rng.standard_normal(shape).astype(v.dtype.numpy)


def ops(graph: Graph) -> list[str]:
    """Operators in order."""
    return [n.op for n in graph.nodes]


def reasons(ctx: PassContext) -> str:
    """All refusals, a line each."""
    return "\n".join(r.reason for r in ctx.log.refused)


def require_fires(
    build: Callable[[GraphBuilder], str | Sequence[str]], names: Sequence[str], want: Sequence[str]
) -> None:
    """The rules ``names`` all fire, and leave the operators ``want``."""
    new, ctx = apply(built(build), *names)
    assert {f.what for f in ctx.log.fired} == set(names)
    assert ops(new) == want


def require_refused(build: Callable[[GraphBuilder], str | Sequence[str]], name: str, reason: str) -> None:
    """The rule ``name`` leaves the graph as it is, and says so with ``reason``."""
    graph = built(build)
    new, ctx = apply(graph, name)
    assert new is graph
    assert reason in reasons(ctx)
