"""Each numbered invariant, with a program that breaks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.core.errors import VerifyError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value
from tilewright.graph_ir.verifier import verify_graph


def _good() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 2))
    y = b.op("Add", x, b.constant(np.ones(2, np.float32), "w"))
    return b.build(b.op("Relu", y))


def _with_if() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 2))
    c = b.input("c", "bool", ())
    branches = []
    for name in ("then", "other"):
        s = GraphBuilder(name)
        branches.append(s.build(*s.ops("Neg", x, outputs=(name,)), infer=False))
    return b.build(b.op("If", c, then_branch=branches[0], else_branch=branches[1]))


def _node(g: Graph, i: int, **changes: object) -> Graph:
    nodes = list(g.nodes)
    nodes[i] = dataclasses.replace(nodes[i], **changes)  # type: ignore[arg-type]
    return g.replace(nodes=tuple(nodes))


def _value(g: Graph, name: str, v: Value | None) -> Graph:
    values = {k: x for k, x in g.values.items() if k != name}
    return g.replace(values=values if v is None else values | {name: v})


def _sub(g: Graph, **changes: object) -> Graph:
    node = g.nodes[-1]
    branch = node.attr("then_branch")
    assert isinstance(branch, Graph)
    return g.replace(nodes=(*g.nodes[:-1], node.with_attrs(then_branch=branch.replace(**changes))))


def _fixed(*dims: int) -> TensorType:
    return TensorType(dtypes.float32, tuple(map(const, dims)))


BROKEN: list[tuple[int, Callable[[], Graph]]] = [
    (1, lambda: _node(_good(), 1, outputs=("x",))),
    (2, lambda: _node(_good(), 0, inputs=("Relu_1", "w"))),
    (3, lambda: _good().replace(outputs=("nothing",))),
    (4, lambda: _value(_good(), "Relu_1", None)),
    (4, lambda: _value(_good(), "other", Value("other", _fixed(1)))),
    (5, lambda: _node(_good(), 1, op="Frobnicate")),
    (5, lambda: _node(_good(), 1, inputs=("Add_0", "w"))),
    (6, lambda: _node(_good(), 1, name="")),
    (6, lambda: _node(_good(), 1, name="n_Add_0")),
    (7, lambda: _node(_good(), 1, attrs=(("b", 1), ("a", 1)))),
    (7, lambda: _node(_good(), 1, attrs=(("a", {}),))),
    (8, lambda: _good().replace(constants={"w": Constant(np.ones(3, np.float32))})),
    (9, lambda: _value(_good(), "Relu_1", Value("Relu_1", _fixed(3, 3)))),
    (9, lambda: _value(_good(), "Relu_1", Value("Relu_1", TensorType(dtypes.int8, _good().values["x"].shape)))),
    (10, lambda: _value(_good(), "x", Value("x", _fixed(-1, 2)))),
    (10, lambda: _value(_good(), "w", Value("w", _fixed(2), (const(1),)))),
    (11, lambda: _sub(_with_if(), outputs=("then", "then"))),
]


def test_good_graphs_pass() -> None:
    verify_graph(_good())
    verify_graph(_with_if())


@pytest.mark.parametrize(("number", "make"), BROKEN, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BROKEN)])
def test_broken(number: int, make: Callable[[], Graph]) -> None:
    with pytest.raises(VerifyError, match=f"^invariant {number}: "):
        verify_graph(make())


def test_a_capture_before_its_definition_is_found() -> None:
    g = _with_if()
    late = Node("Neg", ("x",), ("late",), (), "late_node")
    g = _sub(g, nodes=(Node("Neg", ("late",), ("then",), (), "n_then"),))
    g = g.replace(nodes=(*g.nodes, late), values={**g.values, "late": Value("late", g.values["x"].type)})
    with pytest.raises(VerifyError, match="invariant 2"):
        verify_graph(g)


@pytest.mark.parametrize("name", ["x", "w", "Add_0", "Relu_1"])
def test_types_of_what_changed_since_are_checked(name: str) -> None:
    g = _good()
    verify_graph(g, since=g)
    changed = _value(g, name, Value(name, TensorType(dtypes.int8, (const(2),))))
    with pytest.raises(VerifyError, match=r"^invariant [89]: "):
        verify_graph(changed, since=g)
    with pytest.raises(VerifyError, match=r"^invariant 9: "):
        verify_graph(_node(g, 1, op="Shape"), since=g)
