"""The grammar of patterns: alternatives, layers in between, roots, and what is no pattern."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import C, Either, Match, Operand, P, Past, Rule, matches

F = np.float32


def found(graph: Graph, pattern: P | Either, root: int = -1) -> list[Match]:
    """Every way in which the pattern fits at a node of the graph."""
    rule = Rule("match", "", pattern, lambda m: None)
    return list(matches(rule, GraphEditor(graph, PassContext.for_graph(graph)), graph.nodes[root]))


def casts(count: int) -> Graph:
    """Relu behind so many Casts of an Exp."""
    b = GraphBuilder()
    x = b.op("Exp", b.input("x", "float32", (3,)))
    for k in range(count):
        x = b.op("Cast", x, to=dtypes.float64 if k % 2 == 0 else dtypes.float32)
    return b.build(b.op("Relu", x))


@pytest.mark.parametrize(("count", "want"), [(0, 1), (1, 1), (3, 1), (4, 0)])
def test_past_goes_through_a_few_layers(count: int, want: int) -> None:
    hits = found(casts(count), P("Relu", Past(("Cast",), P("Exp", "x"))))
    assert len(hits) == want
    assert [len(m.inner) for m in hits] == [count + 1] * want


def test_past_binds_the_operand_of_each_layer() -> None:
    assert [m["y"] for m in found(casts(2), P("Relu", Past(("Cast",), "y")))] == ["Cast_2", "Cast_1", "Exp_0"]


def test_past_goes_through_first_outputs_only() -> None:
    b = GraphBuilder()
    y, mask = b.ops("Dropout", b.op("Exp", b.input("x", "float32", (3,))), outputs=2)
    graph = b.build(b.op("Not", mask), y)
    assert found(graph, P("Not", Past(("Dropout",), P("Exp", "x")))) == []


def test_alternatives_come_in_their_order_and_bind_their_names() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", (3,))
    graph = b.build(b.op("Add", b.op("Mul", x, np.array(2, F)), x))
    scaled = P("Mul", "x", C("factor"))
    hits = found(graph, P("Add", Either(scaled, "plain"), "y"))
    assert [sorted(m.names) for m in hits] == [["factor", "x", "y"], ["plain", "y"], ["plain", "y"]]


def test_an_absent_operand_is_an_alternative() -> None:
    b = GraphBuilder()
    low = np.array(0, F)
    x = b.input("x", "float32", (3,))
    graph = b.build(b.op("Clip", x, None, low))
    assert len(found(graph, P("Clip", "x", Either(None, C("low")), "high"))) == 1
    assert found(graph, P("Clip", "x", C("low"), "high")) == []


def test_a_rule_may_have_several_roots() -> None:
    pattern = Either(P("Relu", P("Exp", "x")), P(("Abs", "Neg"), "x"))
    assert Rule("r", "", pattern, lambda m: None).root_ops == ("Relu", "Abs", "Neg")
    assert len(found(casts(0), pattern)) == 1
    assert found(casts(1), pattern) == []


@pytest.mark.parametrize("pattern", ["x", Either("x", P("Relu", "x")), C("c"), Past(("Cast",), P("Relu", "x"))])
def test_a_root_is_a_node(pattern: Operand) -> None:
    with pytest.raises(InputError, match="rule 'r': expected a P or an Either of P as pattern"):
        Rule("r", "", pattern, lambda m: None)  # type: ignore[arg-type]
