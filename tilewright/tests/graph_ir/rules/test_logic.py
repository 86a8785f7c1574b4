"""Negations, De Morgan's laws, conditions that were cast, as exporters write them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.passes.base import Level
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.exported import FORMS, Case, read, require_kept, require_rewritten

ABC = "agraph (bool[$N] a, bool[$N] b, bool[$N] c) => (bool[$N] y)"
TWO = "agraph (float[$N] a, float[$N] b) => (bool[$N] y) { l = Less(a, b) y = Not(l) }"


def case(name: str, text: str, rule: str, left: str, enabled: tuple[str, ...] = ()) -> Case:
    return Case(name, text, (rule,), left, level=Level.BASIC, enabled=enabled)


CASES = [
    *(
        case(
            f"not_{op}",
            f"agraph (int64[$N] a, int64[$N] b) => (bool[$N] y) {{ l = {op}(a, b) y = Not(l) }}",
            "not_comparison",
            opposite,
        )
        for op, opposite in (
            ("Less", "GreaterOrEqual"),
            ("LessOrEqual", "Greater"),
            ("Greater", "LessOrEqual"),
            ("GreaterOrEqual", "Less"),
        )
    ),
    case("not_less_of_floats", TWO, "not_comparison_of_floats", "GreaterOrEqual", ("not_comparison_of_floats",)),
    case(
        "floats_that_are_no_nan",
        "agraph (int64[$N] a) => (bool[$N] y) <float c = {2.0}> { f = Cast<to=1>(a) g = Abs(f) l = Less(g, c) y ="
        " Not(l) }",
        "not_comparison",
        "Cast Abs GreaterOrEqual",
    ),
    case(
        "de_morgan",
        f"{ABC} {{ na = Not(a) nb = Not(b) o = Or(na, nb) p = Or(o, c) y = Not(p) }}",
        "not_of_chain",
        "And Not And",
    ),
    case(
        "de_morgan_back",
        f"{ABC} {{ na = Not(a) nb = Not(b) nc = Not(c) o = And(na, nb) y = And(o, nc) }}",
        "chain_of_nots",
        "Or Or Not",
    ),
    case(
        "de_morgan_within",
        f"{ABC} {{ na = Not(a) nb = Not(b) o = And(na, nb) y = Or(o, c) }}",
        "chain_of_nots",
        "Or Not Or",
    ),
    case(
        "de_morgan_over_comparisons",
        "agraph (int64[$N] a, int64[$N] b, bool[$N] c) => (bool[$N] y)"
        " { l = Less(a, b) nc = Not(c) o = And(l, nc) y = Not(o) }",
        "not_of_chain",
        "GreaterOrEqual Or",
    ),
    *(
        case(
            f"cast_{op}_{number}",
            f"agraph (bool[$N] a) => (bool[$N] y) <{kind} z = {{{number}}}> {{ i = Cast<to={to}>(a) c = {op}(i, z)"
            f" y = {last}(c) }}",
            rule,
            left,
        )
        for op, number, kind, to, last, rule, left in (
            ("Equal", 0, "int32[1]", 6, "Identity", "bool_equals_zero", "Not"),
            ("Equal", 0, "int64", 7, "Identity", "bool_equals_zero", "Not"),
            ("Less", 1, "float", 1, "Identity", "bool_equals_zero", "Not"),
            ("Equal", 1, "int32", 6, "Not", "bool_equals_one", "Not"),
            ("Greater", 0, "float", 1, "Not", "bool_equals_one", "Not"),
        )
    ),
]

KEPT = [
    ("not_comparison", TWO, "with NaN, not (a < b) is true and a >= b is false; enable not_comparison_of_floats"),
    (
        "not_comparison",
        "agraph (int64[$N] a) => (bool[$N] y, bool[$N] z) <int64 c = {2}> { z = Less(a, c) y = Not(z) }",
        "'z' is also used elsewhere",
    ),
    ("not_of_chain", f"{ABC} {{ na = Not(a) o = Or(na, b) p = Or(o, c) y = Not(p) }}", ""),
    (
        "not_of_chain",
        "agraph (bool[$N] a, bool[$N] b) => (bool[$N] y, bool[$N] o) { na = Not(a) o = Or(na, b) y = Not(o) }",
        "'o' is also used elsewhere",
    ),
    (
        "chain_of_nots",
        "agraph (bool[$N] a, bool[$N] b) => (bool[$N] y, bool[$N] na) { na = Not(a) nb = Not(b) y = Or(na, nb) }",
        "",
    ),
    (
        "bool_equals_zero",
        "agraph (int32[$N] a) => (bool[$N] y) <int64 z = {0}> { i = Cast<to=7>(a) y = Equal(i, z) }",
        "",
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fires(case: Case, form: str) -> None:
    require_rewritten(case, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rule", "text", "reason"), KEPT, ids=[f"{k}-{c[0]}" for k, c in enumerate(KEPT)])
def test_refuses(rule: str, text: str, reason: str, form: str) -> None:
    require_kept(text, form, rule, reason, Level.BASIC)


def test_nan_is_why_floats_are_left_alone() -> None:
    graph = read(TWO, "static")
    feed = {"a": np.array([np.nan, 1, 2, 3, np.nan], np.float32), "b": np.array([0, 2, 1, np.nan, np.nan], np.float32)}
    right = interpret(graph, feed)["y"]
    assert np.array_equal(interpret(run_passes(graph)[0], feed)["y"], right)
    enabled, _ = run_passes(graph, enabled=("not_comparison_of_floats",))
    assert np.array_equal(interpret(enabled, feed)["y"], [False, False, True, False, False])
    assert np.array_equal(right, [True, False, True, True, True])
