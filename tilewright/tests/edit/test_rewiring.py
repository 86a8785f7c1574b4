"""Who reads what: nodes in between, nodes away, nodes and subgraphs replaced; each by its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import InputError
from tilewright.edit.found import Found
from tilewright.edit.loading import load_graph, new_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.edit.views import ValueView
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.rules import C, P
from tilewright.tests.api.models import two_inputs
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small


def weights(g: ModelGraph) -> tuple[np.ndarray, ...]:
    found = [c.array for c in g.constants]
    return tuple(a for a in found if a is not None)


def test_insert_after_a_value() -> None:
    g = small()
    w, b, v = weights(g)
    x = fed(g)["x"]
    new = g.insert_after("hb", "Mul", 2)
    assert new.name == "Mul_out"
    assert [n.op for n in g.nodes] == ["MatMul", "Add", "Mul", "Relu", "MatMul"]
    np.testing.assert_allclose(numbers(g)["y"], np.maximum(2 * (x @ w + b), 0) @ v, rtol=1e-4, atol=1e-5)


def test_insert_after_an_input_and_an_output() -> None:
    g = small()
    w, b, v = weights(g)
    x = fed(g)["x"]
    g.insert_after("x", "Neg")
    assert g.insert_after("y", "Abs").name == "y"
    assert (g.inputs.names, g.outputs.names) == (("x",), ("y",))
    np.testing.assert_allclose(numbers(g)["y"], np.abs(np.maximum(-x @ w + b, 0) @ v), rtol=1e-4, atol=1e-5)


def test_insert_what_a_function_builds() -> None:
    g = small()
    want = np.tanh(numbers(g)["y"]) + 1
    g.insert_after("y", lambda y: g.add("Add", g.add("Tanh", y), 1))
    np.testing.assert_allclose(numbers(g)["y"], want, rtol=1e-6)
    with refused(g, r"insert: expected a value, got 5"):
        g.insert_after("h", lambda h: 5)  # type: ignore[arg-type, return-value]


def test_insert_before_a_node_and_between_two() -> None:
    g = load_graph(two_inputs())
    feed = fed(g)
    a, b = feed["a"], feed["b"]
    g.insert_before("add", "Neg", index=1)
    got = numbers(g, feed)
    np.testing.assert_array_equal(got["total"], a - b)
    np.testing.assert_array_equal(got["rows"], np.concatenate([a, b]))
    g.insert_between("a", "concat", "Mul", 3)
    got = numbers(g, feed)
    np.testing.assert_array_equal(got["total"], a - b)
    np.testing.assert_array_equal(got["rows"], np.concatenate([3 * a, b]))
    h = small()
    h.insert_between(h.nodes["bias"], h.nodes["relu"], "Neg")
    assert [n.op for n in h.nodes] == ["MatMul", "Add", "Neg", "Relu", "MatMul"]


def test_wrong_places() -> None:
    g = small()
    with refused(g, r"insert_before 'bias' \(Add\): expected the number of an input, got 2"):
        g.insert_before("bias", "Neg", index=2)
    with refused(g, r"insert_between: expected an input of 'relu' \(Relu\) \(hb\), got 'h'"):
        g.insert_between("h", "relu", "Neg")
    with refused(g, r"insert_between: expected one result of 'hidden' that 'relu' reads, got none"):
        g.insert_between(g.nodes["hidden"], "relu", "Neg")
    with refused(g, r"insert_after: expected the name of a value of graph 'g', got 'hx'"):
        g.insert_after("hx", "Neg")


def test_redirect() -> None:
    g = small()
    w, b, v = weights(g)
    x = fed(g)["x"]
    g.redirect("hb", "h", "relu")
    np.testing.assert_allclose(numbers(g)["y"], np.maximum(x @ w, 0) @ v, rtol=1e-4, atol=1e-5)
    g.set_outputs("y", "r")
    g.redirect("r", "hb")
    got = numbers(g)
    assert list(got) == ["y", "r"]
    np.testing.assert_allclose(got["r"], x @ w + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["y"], (x @ w + b) @ v, rtol=1e-3, atol=1e-4)


def test_an_output_that_becomes_an_input_is_a_copy() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n",))
    g.add_output(g.add("Relu", x, name="relu"), "y")
    g.remove("relu")
    assert [n.op for n in g.nodes] == ["Identity"]
    feed = fed(g)
    np.testing.assert_array_equal(numbers(g, feed)["y"], feed["x"])


def test_a_circle_is_told() -> None:
    g = small()
    with refused(g, r"graph 'g': expected nodes without a cycle, got 'bias' -> 'relu' -> 'bias'"):
        g.set_input("bias", 0, "r")


# -- away ----------------------------------------------------------------------------------------------------------
def test_remove() -> None:
    g = small()
    w, _, v = weights(g)
    x = fed(g)["x"]
    g.remove("relu", "bias")
    assert [n.name for n in g.nodes] == ["hidden", "readout"]
    assert g.constants.names == ("w", "v")
    np.testing.assert_allclose(numbers(g)["y"], x @ w @ v, rtol=1e-3, atol=1e-4)


def test_remove_what_was_found() -> None:
    g = small()
    g.insert_after("h", "Identity")
    g.insert_after("r", "Identity")
    want = numbers(g)["y"]
    g.remove(g.find("Identity"))
    assert [n.op for n in g.nodes] == ["MatMul", "Add", "Relu", "MatMul"]
    np.testing.assert_array_equal(numbers(g)["y"], want)


def test_which_input_takes_the_place() -> None:
    g = load_graph(two_inputs())
    feed = fed(g)
    with refused(g, r"remove 'add' \(Add\): expected one input to take its place, got a, b; give through="):
        g.remove("add")
    with refused(g, r"remove 'add' \(Add\): expected the number of an input \(a, b\), got 2"):
        g.remove("add", through=2)
    g.remove("add", through=1)
    np.testing.assert_array_equal(numbers(g, feed)["total"], feed["b"])


def test_without_reconnection() -> None:
    g = small()
    with refused(g, r"remove 'bias' \(Add\): expected results that nothing reads, got 'hb', read by 'relu' \(Relu\)"):
        g.remove("bias", reconnect=False)
    with refused(g, r"remove 'readout' \(MatMul\): expected results that nothing reads, got 'y', read by the outputs"):
        g.remove("readout", reconnect=False)
    g.set_outputs("h")
    g.remove("readout", "relu", "bias", reconnect=False)
    assert [n.name for n in g.nodes] == ["hidden"]
    assert g.constants.names == ("w",)


def test_a_node_with_several_results_that_are_read() -> None:
    g = new_graph()
    g.add_node("Split", g.add_input("x", "float32", (4,)), outputs=["a", "b"], num_outputs=2, name="split")
    g.set_outputs("a", "b")
    with refused(g, r"remove 'split' \(Split\): expected one result that is read, got a, b: replace the node instead"):
        g.remove("split")


# -- something else ------------------------------------------------------------------------------------------------
def test_replace_a_node() -> None:
    g = small()
    w, b, v = weights(g)
    x = fed(g)["x"]
    g.replace("relu", "LeakyRelu", alpha=0.5)
    assert str(g.nodes["relu"]) == "r = LeakyRelu(hb)"
    h = x @ w + b
    np.testing.assert_allclose(numbers(g)["y"], np.where(h < 0, h / 2, h) @ v, rtol=1e-3, atol=1e-4)


def test_replace_a_node_that_gives_an_output() -> None:
    g = small()
    want = numbers(g)["y"]
    g.replace("readout", "Gemm", "r", "v", np.ones(10, np.float32))
    assert str(g.nodes["readout"]).startswith("y = Gemm(r, v, ")
    np.testing.assert_allclose(numbers(g)["y"], want + 1, rtol=1e-4, atol=1e-5)


def test_replace_a_matched_subgraph() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n", 4))
    low = g.add("Max", x, 0.0)
    g.add_output(g.add("Neg", g.add("Min", low, 6.0)), "y")
    want = numbers(g)["y"]
    (found,) = g.match(P("Min", P("Max", "x", C("low")), C("high")))
    g.replace(found, "Clip", found["x"], found["low"], found["high"])
    assert [n.op for n in g.nodes] == ["Clip", "Neg"]
    assert len(g.constants) == 2
    np.testing.assert_array_equal(numbers(g)["y"], want)


def test_replace_by_what_a_function_builds() -> None:
    g = small()
    want = numbers(g)["y"]

    def as_gemm(m: Found) -> ValueView:
        return g.add("Gemm", m["x"], m["w"], m["b"], name="dense")

    for m in g.match(P("Add", P("MatMul", "x", C("w")), C("b"))):
        g.replace(m, as_gemm)
    assert [n.op for n in g.nodes] == ["Gemm", "Relu", "MatMul"]
    np.testing.assert_allclose(numbers(g)["y"], want, rtol=1e-5, atol=1e-6)


def test_replace_by_a_value_and_of_values() -> None:
    g = small()
    _, _, v = weights(g)
    g.replace("relu", g.values["hb"])
    assert [n.name for n in g.nodes] == ["hidden", "bias", "readout"]
    h = small()
    x = fed(h)["x"]
    h.replace(["r"], lambda r: h.add("Tile", h.add("ReduceSum", "x", [1], keepdims=1), [1, 64]))
    assert [n.op for n in h.nodes] == ["ReduceSum", "Tile", "MatMul"]
    np.testing.assert_allclose(numbers(h)["y"], np.tile(x.sum(1, keepdims=True), (1, 64)) @ v, rtol=1e-3, atol=1e-4)


def test_where_nothing_is_needed() -> None:
    """What no output needs is edited as the rest is, and stays."""
    g = small()
    g.add("Exp", g.add("Relu", "h", name="aside"))
    g.replace("aside", "Neg")
    assert str(g.nodes["aside"]) == "aside_out = Neg(h)"
    assert [n.op for n in g.nodes].count("Relu") == 1
    g.remove("aside")
    assert [str(n) for n in g.find("Exp")] == ["Exp_out = Exp(h)"]


def test_what_cannot_replace() -> None:
    g = small()
    with refused(g, r"replace: expected 1 values \(r\), got 2"):
        g.replace("relu", lambda hb: [g.add("Neg", hb), g.add("Abs", hb)])
    with refused(g, r"node 'readout' \(MatMul\)"):
        g.replace("relu", lambda hb: g.add("Reshape", hb, [-1, 7]))
    with pytest.raises(InputError, match="expected a node or its name, got 5"):
        g.remove(5)  # type: ignore[arg-type]


def test_a_subgraph_reads_what_takes_the_place() -> None:
    """A value that a body captures is redirected there too."""
    g = new_graph()
    x, flag = g.add_input("x", "float32", ("n",)), g.add_input("flag", "bool", ())
    h = g.add("Neg", x, outputs="h", name="neg")
    bodies = {}
    for key, op in (("then_branch", "Abs"), ("else_branch", "Relu")):
        b = GraphBuilder(key)
        (out,) = b.ops(op, h.name, outputs=[f"{key}_out"])
        bodies[key] = b.build(out, infer=False)
    g.add_output(g.add("If", flag, **bodies), "y")
    g.replace("neg", "Exp")
    feed = np.array([-1.0, 2.0], np.float32)
    np.testing.assert_allclose(g.run({"x": feed, "flag": np.array(True)})["y"], np.exp(feed), rtol=1e-6)
    g.remove("neg")
    np.testing.assert_array_equal(g.run({"x": feed, "flag": np.array(True)})["y"], [1, 2])
    np.testing.assert_array_equal(g.run({"x": feed, "flag": np.array(False)})["y"], [0, 2])
