"""New nodes, constants, inputs and outputs: what they compute, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import InputError
from tilewright.edit.loading import new_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small


def test_a_node_more() -> None:
    g = small()
    want = numbers(g)["y"]
    g.add_output(g.add("Mul", g.add("Neg", "y"), 2), "twice")
    got = numbers(g)
    np.testing.assert_array_equal(got["twice"], -2 * want)
    np.testing.assert_array_equal(got["y"], want)
    assert [n.name for n in g.nodes][-2:] == ["Neg", "Mul"]


def test_several_results_and_absent_operands() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (4, 6))
    parts = g.add_node("Split", x, outputs=["a", "b"], axis=1, num_outputs=2)
    assert [v.name for v in parts.outputs if v] == ["a", "b"]
    g.add_output(g.add("Clip", "b", None, 0.5), "low")
    g.add_output("a")
    feed = fed(g)
    got = numbers(g, feed)
    np.testing.assert_array_equal(got["low"], np.minimum(feed["x"][:, 3:], np.float32(0.5)))
    np.testing.assert_array_equal(got["a"], feed["x"][:, :3])


@pytest.mark.parametrize(
    ("dtype", "number", "want"), [("float16", 2, "float16"), ("int64", 2, "int64"), ("float64", 0.5, "float64")]
)
def test_a_number_has_the_type_of_what_it_goes_with(dtype: str, number: float, want: str) -> None:
    g = new_graph()
    g.add_output(g.add("Mul", g.add_input("x", dtype, ("n",)), number), "y")
    assert g.outputs["y"].dtype.name == want


def test_a_number_of_its_own_type() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (3, 2))
    assert g.add("Gather", x, 1, axis=0).type == g.values[g.nodes[0].outputs[0].name].type  # type: ignore[union-attr]
    assert [c.dtype.name for c in g.constants] == ["int64"]
    assert g.add("Cast", x, to=np.float16).dtype.name == "float16"
    assert g.add("Cast", x, to="bool").dtype.name == "bool"


def test_attributes() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (1, 3, 8, 8))
    y = g.add("Conv", x, np.ones((4, 3, 3, 3), np.float32), pads=[1, 1, 1, 1], strides=(2, 2), name="conv")
    assert dict(g.nodes["conv"].attrs) == {"pads": (1, 1, 1, 1), "strides": (2, 2)}
    g.set_attrs("conv", strides=None, group=1)
    assert dict(g.nodes["conv"].attrs) == {"pads": (1, 1, 1, 1), "group": 1}
    assert [d.value() for d in y.shape or ()] == [1, 4, 8, 8]
    z = g.add("LeakyRelu", y, alpha=1)
    assert g.nodes[-1].attrs["alpha"] == 1.0
    assert isinstance(g.nodes[-1].attrs["alpha"], float)
    filled = g.add("ConstantOfShape", [2], value=np.array([3], np.int64))
    assert filled.dtype.name == "int64"
    with refused(g, r"node 'conv' \(Conv\): expected attributes of Conv \(auto_pad, .*\), got stride; did you mean 's"):
        g.set_attrs("conv", stride=[1, 1])
    with refused(g, r"node 'Cast' \(Cast\): expected attribute to, got none"):
        g.add("Cast", z)
    with refused(g, r"to: expected an element type, got 'flaot16'; did you mean 'float16'"):
        g.add("Cast", z, to="flaot16")
    with refused(g, r"node 'Conv' \(Conv\): pads: expected a number, text, array, element type, graph or list, got"):
        g.add("Conv", x, y, pads={1: 2})


def test_wrong_operators_and_operands() -> None:
    g = small()
    with refused(g, r"node 'Rellu' \(Rellu\): expected an operator of ONNX, or domain=, got 'Rellu'; did you mean 'Re"):
        g.add("Rellu", "x")
    with refused(g, r"node 'Relu' \(Relu\): expected the name of a value of graph 'g', got 'hbx'; did you mean 'hb'"):
        g.add("Relu", "hbx")
    with refused(g, r"node 'MatMul' \(MatMul\): .*"):
        g.add("MatMul", "x", "v")
    with refused(g, r"expected a new name, got 'relu', which a node of graph 'g' has"):
        g.add("Relu", "x", name="relu")
    with refused(g, r"expected a new name, got 'h', which a value of graph 'g' has"):
        g.add("Relu", "x", outputs="h")
    with refused(g, r"operand 1: expected numbers, got list"):
        g.add("Add", "x", [[1], [1, 2]])
    with refused(g, r"node 'Relu' \(Relu\): expected 1 inputs, got 2"):
        g.add("Relu", "x", "h")


def test_a_body() -> None:
    g = new_graph()
    x, flag = g.add_input("x", "float32", ("n",)), g.add_input("flag", "bool", ())
    bodies = {}
    for key, op in (("then_branch", "Neg"), ("else_branch", "Relu")):
        b = GraphBuilder(key)
        (out,) = b.ops(op, "x", outputs=[f"{key}_out"])
        bodies[key] = b.build(out, infer=False)
    g.add_output(g.add("If", flag, **bodies), "y")
    assert x.consumers == [g.nodes["If"]]
    feed = np.array([-1.0, 2.0], np.float32)
    np.testing.assert_array_equal(g.run({"x": feed, "flag": np.array(True)})["y"], [1, -2])
    np.testing.assert_array_equal(g.run({"x": feed, "flag": np.array(False)})["y"], [0, 2])


def test_names_in_bodies_are_apart() -> None:
    b = GraphBuilder("body")
    (out,) = b.ops("Neg", "x", outputs=["t"])
    body = b.build(out, infer=False)
    g = new_graph()
    flag = g.add_input("flag", "bool", ())
    g.add_input("x", "float32", ("n",))
    g.add_output(g.add("If", flag, then_branch=body, else_branch=body, name="choice"), "y")
    feed = {"x": np.array([1.0], np.float32), "flag": np.array(True)}
    np.testing.assert_array_equal(numbers(g, feed)["y"], [-1])
    b = GraphBuilder("body")
    (out,) = b.ops("Exp", "x", outputs=["t"])
    g.set_attrs("choice", then_branch=b.build(out, infer=False))
    np.testing.assert_allclose(numbers(g, feed)["y"], [np.e], rtol=1e-6)


# -- constants, inputs, outputs ------------------------------------------------------------------------------------
def test_constants() -> None:
    g = small()
    g.set_constant("b", np.zeros(64, np.float32))
    g.set_constant("v", np.ones((64, 1), np.float32))
    w, feed = g.values["w"].array, fed(g)
    assert w is not None
    np.testing.assert_allclose(numbers(g, feed)["y"], np.maximum(feed["x"] @ w, 0).sum(1, keepdims=True), rtol=1e-5)
    assert g.add_constant([1, 2]).dtype.name == "int64"
    assert g.add_constant(0.5).name == "constant_1"
    with refused(g, r"set_constant: expected the name of a constant \(w, b, v, .*\), got 'ww'; did you mean 'w'"):
        g.set_constant("ww", 1.0)
    with refused(g, r"node 'readout' \(MatMul\)"):
        g.set_constant("v", np.ones((63, 1), np.float32))


def test_inputs_and_constants_change_places() -> None:
    g = small()
    feed = fed(g)
    want = numbers(g, feed)["y"]
    bias = g.values["b"].array
    assert bias is not None
    g.free_constant("b")
    assert [v.name for v in g.inputs] == ["x", "b"]
    np.testing.assert_array_equal(numbers(g, {**feed, "b": bias})["y"], want)
    assert not np.array_equal(numbers(g, {**feed, "b": bias + 1})["y"], want)
    g.fix_input("b", bias)
    assert g.inputs.names == ("x",)
    np.testing.assert_array_equal(numbers(g, feed)["y"], want)
    g.fix_input("x", feed["x"])
    np.testing.assert_array_equal(numbers(g, {})["y"], want)


def test_what_does_not_fit_as_an_input() -> None:
    g = small()
    with refused(g, r"fix_input 'x': expected float32\[batch, 32\], got float64\[2, 32\]"):
        g.fix_input("x", np.ones((2, 32)))
    with refused(g, r"fix_input 'x': expected float32\[batch, 32\], got float32\[2, 31\]"):
        g.fix_input("x", np.ones((2, 31), np.float32))
    with refused(g, r"free_constant: expected the name of a constant \(w, b, v\), got 'x'"):
        g.free_constant("x")
    with refused(g, r"add_input: expected a new name, got 'h'"):
        g.add_input("h", "float32", (1,))
    with refused(g, r"input 'z': expected sizes in .*, got -1"):
        g.add_input("z", "float32", (-1,))
    with refused(g, r"input 'z': expected a list of sizes and names, got 'batch'"):
        g.add_input("z", "float32", "batch")


def test_outputs() -> None:
    g = small()
    want = g.run(fed(g), ["r", "y"])
    g.set_outputs("r", "y")
    got = numbers(g)
    assert list(got) == ["r", "y"]
    assert all(np.array_equal(got[k], want[k]) for k in want)
    g.remove_output("y")
    assert g.outputs.names == ("r",)
    assert len(g.nodes) == 4
    g.add_output("h", "before")
    assert g.nodes["bias"].inputs[0] == g.values["before"]
    with refused(g, r"remove_output: expected an output \(r, before\), got 'y'"):
        g.remove_output("y")
    with refused(g, r"set_outputs: expected at least one output, got none"):
        g.set_outputs()
    with refused(g, r"set_outputs: expected different outputs, got \['r', 'r'\]"):
        g.set_outputs("r", "r")


def test_overridable_constants() -> None:
    g = small()
    g.set_overridable(["w"])
    assert {i.name for i in g.to_onnx().graph.input} == {"x", "w"}
    g.set_overridable([])
    assert {i.name for i in g.to_onnx().graph.input} == {"x"}
    with refused(g, r"set_overridable: expected the name of a constant \(w, b, v\), got 'x'"):
        g.set_overridable(["x"])


# -- batches -------------------------------------------------------------------------------------------------------
def test_in_a_batch_what_is_between_need_not_fit() -> None:
    g = small()
    w = g.values["w"].array
    assert w is not None
    with refused(g, r"node 'bias' \(Add\)"):
        g.set_constant("w", w[:, :32])
    with g.batch():
        g.set_constant("w", w[:, :32])
        g.set_constant("b", np.zeros(32, np.float32))
        g.set_constant("v", np.ones((32, 2), np.float32))
    feed = fed(g)
    np.testing.assert_allclose(numbers(g, feed)["y"][:, 0], np.maximum(feed["x"] @ w[:, :32], 0).sum(1), rtol=1e-5)


def test_a_batch_that_fails_changes_nothing() -> None:
    g = small()
    before = g.model

    def remove(*names: str) -> None:
        with g.batch(), g.batch():
            for name in names:
                g.remove(name)
            _ = 1 / 0

    for names, error in ((("relu", "nope"), InputError), (("relu",), ZeroDivisionError)):
        with pytest.raises(error):
            remove(*names)
        assert g.model is before
    g.remove("relu")  # it is not in a batch any more
    assert g.raw is g.graph


def test_types_are_there_in_a_batch() -> None:
    g = small()
    with g.batch():
        y = g.add("Concat", "x", "x", axis=0)
        assert str(y.type) == "float32[batch*2, 32]"


def test_building_a_long_chain_does_not_take_long() -> None:
    g: ModelGraph = new_graph()
    x = g.add_input("x", "float32", ("n",))
    for _ in range(300):
        x = g.add("Relu", x)
    g.add_output(x)
    assert len(g.nodes) == 300
    assert str(g.outputs[0].type) == "float32[n]"
