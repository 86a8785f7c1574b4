"""The pipeline: levels, names, instruments, the report, and that a run changes no numbers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.errors import InputError, InternalError, VerifyError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.pipeline import FILE_PASSES, PASSES, Dump, Timing, Verify, run_passes
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
from tilewright.graph_ir.rules.base import P, Rule
from tilewright.graph_ir.rules.composites import byte_functions, cells, channel_norms
from tilewright.graph_ir.rules.contractions import einsum
from tilewright.graph_ir.rules.driver import rewrite
from tilewright.graph_ir.rules.files import defaults, gemm
from tilewright.graph_ir.rules.moves import convolutions, repeats, row_views, slices
from tilewright.graph_ir.text import constants_of, parse_graph
from tilewright.tests.graph_ir.rewriting import RULES, assert_same_numbers, ops
from tilewright.tests.graph_ir.rules import (
    test_arithmetic,
    test_byte_functions,
    test_cells,
    test_channel_norms,
    test_convolutions,
    test_defaults,
    test_einsum,
    test_gemm,
    test_logic,
    test_moves,
    test_noops_and_views,
    test_quantized,
    test_spellings,
    test_strength,
    test_weights,
)

F = np.float32
RULE_MODULES = (
    activations,
    algebra,
    attention,
    byte_functions,
    cells,
    channel_norms,
    defaults,
    gemm,
    convolutions,
    einsum,
    integer_products,
    logic,
    noops,
    norms,
    products,
    quantization,
    row_views,
    repeats,
    scales,
    slices,
    views,
    weights,
)


def mlp() -> Graph:
    b = GraphBuilder("mlp")
    rng = np.random.default_rng(0)
    x = b.input("x", "float32", ("n", 6))
    y = b.op("Relu", b.op("Gemm", b.op("Identity", x), rng.standard_normal((4, 6)).astype(F), np.ones(4, F), transB=1))
    return b.build(b.op("Pow", y, np.array(2, F)))


def test_levels_grow() -> None:
    assert run_passes(mlp(), "none")[1].records == ()
    assert ops(run_passes(mlp(), "basic")[0]) == ["Gemm", "Relu", "Pow"]
    assert ops(run_passes(mlp(), "extended")[0]) == ["MatMul", "Add", "Relu", "Mul"]
    for level in Level:
        assert_same_numbers(mlp(), run_passes(mlp(), level)[0], 1e-5)


def test_unknown_level_and_names() -> None:
    with pytest.raises(InputError, match="expected one of none, basic, extended, all, got 'fast'"):
        run_passes(mlp(), "fast")
    with pytest.raises(InputError, match="expected the name of a pass or rule, got 'nope'"):
        run_passes(mlp(), "all", disabled=("nope",))


def test_disabled_pass_and_rule() -> None:
    assert "Gemm" in ops(run_passes(mlp(), "all", disabled=("split_gemm",))[0])
    assert "Identity" in ops(run_passes(mlp(), "all", disabled=("identity",))[0])


def test_optional_pass_runs_only_when_enabled() -> None:
    passes = tuple(dataclasses.replace(p, optional=p.name == "fuse_attention") for p in PASSES)
    _, report = run_passes(mlp(), "all", enabled=("fuse_attention",), passes=passes)
    assert "fuse_attention" in [r.name for r in report.records]
    assert "fuse_attention" not in [r.name for r in run_passes(mlp(), "all", passes=passes)[1].records]


def test_report_explains() -> None:
    _, report = run_passes(mlp(), "all")
    assert report.fired("gemm_bias") == 1
    assert "fired gemm_bias x1: n_Gemm_1" in report.explain()


def test_instruments(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    timing = Timing(clock=lambda: float(next(ticks)))
    new, report = run_passes(mlp(), "all", instruments=(timing, Dump(tmp_path), Verify(types=True)))
    assert [n for n, _ in timing.seconds] == [r.name for r in report.records]
    assert {s for _, s in timing.seconds} == {1.0}
    last = sorted(tmp_path.iterdir())[-1]
    assert ops(parse_graph(last.read_text(), constants_of(new))) == ops(new)


def test_verify_names_the_pass() -> None:
    def spoil(graph: Graph, ctx: PassContext) -> Graph:
        return graph.replace(nodes=graph.nodes[1:])

    bad = Pass("spoil", Level.BASIC, Exactness.BIT_EXACT, spoil)
    with pytest.raises(VerifyError, match="after pass spoil"):
        run_passes(mlp(), "all", instruments=(Verify(),), passes=(bad,))


def test_endless_rules_are_named() -> None:
    flip = Rule(
        "flip",
        "Relu <-> Abs",
        P(("Relu", "Abs"), "x"),
        lambda m: m.op({"Relu": "Abs", "Abs": "Relu"}[m.root.op], m["x"]),
    )
    with pytest.raises(InternalError, match="the last was 'flip'"):
        rewrite(mlp(), (flip,), PassContext.for_graph(mlp()))


def test_approximate_rules_are_opt_in() -> None:
    rough = Rule("rough", "Relu(x) ~ x", P("Relu", "x"), lambda m: m["x"], exactness=Exactness.APPROXIMATE)
    g = mlp()
    assert rewrite(g, (rough,), PassContext.for_graph(g)) is g
    assert "Relu" not in ops(rewrite(g, (rough,), PassContext.for_graph(g, enabled=("rough",))))


def test_every_rule_is_named_once_and_says_its_equation() -> None:
    rules = {id(r): r for m in RULE_MODULES for v in vars(m).values() if isinstance(v, tuple) for r in v
             if isinstance(r, Rule)}.values()  # fmt: skip
    names = [r.name for r in rules] + [p.name for p in set(PASSES)]
    assert [n for n, count in Counter(names).items() if count > 1] == []
    assert [r.name for r in rules if not r.equation] == []
    assert set(RULES) == {r.name for r in rules}
    assert {n for p in (*PASSES, *FILE_PASSES) for n in p.rules} == set(RULES)


def test_every_rule_is_seen_to_fire() -> None:
    """Each has a case whose test asserts that it fired and kept the numbers."""
    fired = {n for n, *_ in test_noops_and_views.FIRES}
    fired |= {n for n, *_ in (*test_cells.FIRES, *test_defaults.FIRES, *test_einsum.FIRES, *test_gemm.FIRES)}
    fired |= {n for module in (test_arithmetic, test_byte_functions, test_channel_norms, test_quantized, test_spellings)
              for names, *_ in module.FIRES for n in names}  # fmt: skip
    modules = (test_convolutions, test_logic, test_moves, test_strength, test_weights)
    fired |= {n for module in modules for case in module.CASES for n in case.rules} & set(RULES)
    assert set(RULES) - fired == set()
    assert fired <= set(RULES)


def test_input_passed_through_keeps_output_name() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", ("n",))
    g = b.build(b.op("Identity", x), b.op("Neg", b.op("Neg", x)), b.op("Exp", x))
    new, _ = run_passes(g, "all")
    assert new.outputs == g.outputs
    assert_same_numbers(g, new, 0.0)
