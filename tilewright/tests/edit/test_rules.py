"""Rules of a user: they fire, in a graph and in a build; what they may not do is refused, with their names."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.autotune.network.options import TuneOptions
from tilewright.core.errors import InputError, RuleError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Node
from tilewright.rules import NOT_HERE, C, Either, Exactness, Match, P, Rule, apply_rules
from tilewright.tests.api.models import perceptron
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small

DOUBLE = Rule(
    "twice_is_double", "Add(x, x) --> x * 2", P("Add", "x", "x"), lambda m: m.op("Mul", m["x"], m.const(2.0, like="x"))
)
LEAKY = Rule(
    "leaky", "Relu(x) --> LeakyRelu(x)", P("Relu", "x"), lambda m: m.op("LeakyRelu", m["x"], alpha=0.5),
    lambda m: None if m.dtype("x").is_float else "integers do not leak", Exactness.APPROXIMATE,
)  # fmt: skip


def sums() -> Graph:
    """relu(x + x) and relu(k + k), for floats and for integers."""
    b = GraphBuilder("g")
    x, k = b.input("x", "float32", ("n", 3)), b.input("k", "int32", (2,))
    return b.build(b.op("Relu", b.op("Add", x, x)), b.op("Relu", b.op("Add", k, k)))


FEED = {"x": np.array([[-1, 0, 2.5]], np.float32), "k": np.array([-1, 2], np.int32)}


def test_in_a_graph() -> None:
    graph, report = apply_rules(sums(), [DOUBLE, LEAKY])
    assert [n.op for n in graph.nodes] == ["Mul", "LeakyRelu", "Mul", "Relu"]
    assert (report.fired("twice_is_double"), report.fired("leaky")) == (2, 1)
    assert report.refusals("leaky") == ("integers do not leak",)
    got = interpret(graph, FEED)
    x, k = got.values()
    np.testing.assert_array_equal(x, [[-1, 0, 5]])
    np.testing.assert_array_equal(k, [0, 4])


def test_in_an_edited_graph() -> None:
    g = small()
    want = numbers(g)
    report = g.apply_rules([Rule("id", "Relu(x) --> Max(x, 0)", P("Relu", "x"),
                                 lambda m: m.op("Max", m["x"], m.const(0.0, like="x")))])  # fmt: skip
    assert report.fired("id") == 1
    assert [n.op for n in g.nodes] == ["MatMul", "Add", "Max", "MatMul"]
    np.testing.assert_array_equal(numbers(g)["y"], want["y"])


def test_in_a_build() -> None:
    g = small()
    feed = fed(g)
    g.apply_rules([LEAKY])
    want = g.run(feed)["y"]
    for level in ("none", "all"):
        model = tilewright.compile(perceptron(), opt_level=level, rules=[LEAKY])
        np.testing.assert_allclose(model.run(feed)["y"], want, rtol=1e-4, atol=1e-5)
        assert "fired leaky x1: relu" in model.explain()
    plain = tilewright.compile(perceptron(), rules=LEAKY, disabled_pass="leaky")  # type: ignore[call-overload]
    assert not np.allclose(plain.run(feed)["y"], want, atol=1e-2)


def test_in_what_is_tuned() -> None:
    keywords = TuneOptions(rules=[LEAKY]).build_keywords()
    graph = tilewright.compile(perceptron(), stop_after="passes", **keywords)
    assert "LeakyRelu" in [n.op for n in graph.nodes]


def test_a_refusal_is_in_the_account_of_a_build() -> None:
    never = Rule("never", "Relu(x) --> x", P("Relu", "x"), lambda m: m["x"], lambda m: "not today")
    assert "refused never at relu: not today" in tilewright.compile(perceptron(), rules=[never]).explain()
    silent = Rule("never", "Relu(x) --> x", P("Relu", "x"), lambda m: m["x"], lambda m: NOT_HERE)
    assert "never" not in tilewright.compile(perceptron(), rules=[silent]).explain()


def test_alternatives() -> None:
    either = Rule("flat", "Relu(x) or Tanh(x) --> x", Either(P("Relu", "x"), P("Tanh", "x")), lambda m: m["x"])
    g = small()
    g.insert_after("y", "Tanh")
    assert [f.root.op for f in g.match(either.pattern)] == ["Relu", "Tanh"]
    assert g.apply_rules([either]).fired("flat") == 2
    assert [n.op for n in g.nodes] == ["MatMul", "Add", "MatMul"]


def test_foreign_nodes_come_and_go() -> None:
    g = small()
    want = numbers(g)["y"]
    there = Rule("plug", "Relu(x) --> com.acme::Rectify(x)", P("Relu", "x"),
                 lambda m: m.foreign("com.acme", "Rectify", m["x"], level=2))  # fmt: skip
    assert g.apply_rules([there]).fired("plug") == 1
    (found,) = g.match(P("Rectify", "x", domain="com.acme", attrs={"level": 2}))
    assert str(found.root.output.type) == "float32[batch, 64]"
    assert {o.domain for o in g.to_onnx().opset_import} == {"", "com.acme"}
    back = Rule("unplug", "com.acme::Rectify(x) --> Relu(x)", P("Rectify", "x", domain="com.acme"),
                lambda m: m.op("Relu", m["x"]))  # fmt: skip
    assert g.apply_rules([back]).fired("unplug") == 1
    np.testing.assert_array_equal(g.run(fed(g))["y"], want)
    with pytest.raises(
        RuleError, match=r"rule 'plug' at node 'relu' \(Relu\): expected operators that a build knows, got"
    ):
        tilewright.compile(perceptron(), rules=[there])


def test_an_unknown_operator() -> None:
    rule = Rule("typo", "", P("Relu", "x"), lambda m: m.op("Rellu", m["x"]))
    with pytest.raises(RuleError, match=r"^rule 'typo' at node 'relu' .*expected a known operator"):
        small().apply_rules([rule])


# -- what a rule may not do ----------------------------------------------------------------------------------------
def test_a_rule_that_does_not_end() -> None:
    flip = Rule("flip", "Relu(x) --> Relu(x)", P("Relu", "x"), lambda m: m.op("Relu", m["x"]))
    g = small()
    with refused(g, r"^rule 'flip' does not come to an end: it is the last of \d+ rewrites$"):
        g.apply_rules([flip])
    with pytest.raises(RuleError, match=r"^rule 'flip' does not"):
        tilewright.compile(perceptron(), rules=[flip])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda m: m.op("Shape", m["x"]), "its result for 'Relu_1' is int64[2], expected float32[n, 3]"),
        (lambda m: m.op("Transpose", m["x"]), "its result for 'Relu_1' is float32[3, n], expected float32[n, 3]"),
        (lambda m: m.op("ReduceSum", m["x"]), "its result for 'Relu_1' is float32[1, 1], expected float32[n, 3]"),
        (lambda m: m.op("Concat", m["x"], m["x"], axis=0), "is float32[n*2, 3], expected float32[n, 3]"),
        (lambda m: Node("Shape", (m["x"],), m.root.outputs, (), m.root.name), "is int64[2], expected float32[n, 3]"),
        (lambda m: m.op("Neg", m.output), "its result is computed from 'Relu_1', which it would replace"),
        (lambda m: "Neg_2", "its result is computed from 'Relu_1', which it would replace"),
    ],
)
def test_another_result_is_not_put_in_place(build: object, reason: str) -> None:
    b = GraphBuilder("g")
    graph = b.build(b.op("Neg", b.op("Relu", b.op("Exp", b.input("x", "float32", ("n", 3))))))
    rule = Rule("wrong", "Relu(x) --> something else", P("Relu", "x"), build)  # type: ignore[arg-type]
    after, report = apply_rules(graph, [rule])
    assert [n.op for n in after.nodes] == ["Exp", "Relu", "Neg"]
    (said,) = report.refusals("wrong")
    assert reason in said
    assert report.fired("wrong") == 0


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda m: 5, "expected a value for each result of the node, got 5"),
        (lambda m: "nothing", "expected the name of a value, got 'nothing'"),
        (lambda m: (m["x"], m["x"]), "expected a value for each result of the node, got tuple"),
        (
            lambda m: Node("Neg", (m["x"],), ("z",), (), "z"),
            r"expected a node that defines \('Relu_1',\), got \('z',\)",
        ),
        (lambda m: m.op("Neg", m["x"], m["x"]), r"node '.*' \(Neg\): expected 1 inputs, got 2"),
    ],
)
def test_what_is_no_result(build: object, words: str) -> None:
    rule = Rule("wrong", "Relu(x) --> something else", P("Relu", "x"), build)  # type: ignore[arg-type]
    with pytest.raises(RuleError, match=rf"^rule 'wrong' at node 'n_Relu_1' \(Relu\): {words}"):
        apply_rules(sums(), [rule])


def test_a_guard_that_gives_no_reason() -> None:
    rule = Rule("wrong", "", P("Relu", "x"), lambda m: m["x"], lambda m: True)  # type: ignore[arg-type, return-value]
    with pytest.raises(RuleError, match=r"expected a reason or None of its guard, got True"):
        apply_rules(sums(), [rule])


def test_what_a_rule_raises_says_where() -> None:
    rule = Rule("wrong", "", P("Relu", "x"), lambda m: m["z"])
    with pytest.raises(KeyError) as caught:
        apply_rules(sums(), [rule])
    assert caught.value.__notes__ == ["in rule 'wrong' at node 'n_Relu_1' (Relu)"]


def test_what_is_no_rule() -> None:
    with pytest.raises(InputError, match=r"^rules: expected a Rule, got 'DOUBLE'"):
        apply_rules(sums(), ["DOUBLE"])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"^rules: expected a list of rules, got 5"):
        tilewright.compile(perceptron(), rules=5)  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^rules: expected a name that no other rule or pass has, got 'leaky'"):
        tilewright.compile(perceptron(), rules=[LEAKY, LEAKY])
    own = Rule("drop_dead", "", P("Relu", "x"), lambda m: m["x"])
    with pytest.raises(InputError, match=r"^rules: expected a name that no other rule or pass has, got 'drop_dead'"):
        tilewright.compile(perceptron(), rules=[own])


def test_constants_and_several_results() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 4))
    left, right = b.ops("Split", b.op("Mul", x, np.ones(4, np.float32)), outputs=2, axis=1, num_outputs=2)
    graph = b.build(left, right)
    pattern = P("Split", P("Mul", "x", C("one", 1.0)))
    halves = Rule("halves", "Split(x * 1) --> two slices", pattern, lambda m: (_columns(m, 0, 2), _columns(m, 2, 4)))
    after, report = apply_rules(graph, [halves])
    assert report.fired("halves") == 1
    assert [n.op for n in after.nodes] == ["Slice", "Slice"]
    x_ = np.arange(8, dtype=np.float32).reshape(2, 4)
    for a, c in zip(interpret(graph, {"x": x_}).values(), interpret(after, {"x": x_}).values(), strict=True):
        np.testing.assert_array_equal(a, c)


def _columns(m: Match, start: int, end: int) -> str:
    return m.op("Slice", m["x"], m.const([start]), m.const([end]), m.const([1]))
