"""What is done to graphs as wholes: cleaned, folded, sorted, run in part; functions; foreign nodes; onnx-ir."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.core import dtypes
from tilewright.core.errors import InputError, UnsupportedError
from tilewright.edit.exchange import from_ir, to_ir
from tilewright.edit.loading import load_graph, new_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import TensorType
from tilewright.tests.api.models import perceptron
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small
from tilewright.tests.frontend.models import model_of


def test_cleanup() -> None:
    g = small()
    want = numbers(g)["y"]
    g.add("Neg", g.add("Add", "h", 1))
    g.add_input("unused", "float32", (1,))
    g.add_constant([1.0], "lonely")
    g.cleanup()
    assert len(g.nodes) == 4
    assert g.constants.names == ("w", "b", "v")
    assert g.inputs.names == ("x", "unused")
    g.cleanup(unused_inputs=True)
    assert g.inputs.names == ("x",)
    np.testing.assert_array_equal(numbers(g)["y"], want)
    with refused(g, r"unused_inputs: expected True or False, got 'yes'"):
        g.cleanup("yes")  # type: ignore[arg-type]


def test_fold() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n", 3))
    scale = g.add("Exp", g.add_constant([0.0, 1.0, 2.0]))
    size = g.add("Gather", g.add("Shape", x), 1)
    g.add_output(g.add("Mul", g.add("Mul", x, scale), g.add("Cast", size, to="float32")), "y")
    want = numbers(g)["y"]
    log = g.fold()
    assert [n.op for n in g.nodes] == ["Mul", "Mul"]
    assert {f.what for f in log.fired} >= {"fold_constants"}
    np.testing.assert_array_equal(numbers(g)["y"], want)


def test_share() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n",))
    g.add_output(g.add("Add", g.add("Exp", x), g.add("Exp", x)), "y")
    want = numbers(g)["y"]
    g.share()
    assert [n.op for n in g.nodes] == ["Exp", "Add"]
    np.testing.assert_array_equal(numbers(g)["y"], want)


def test_sort() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n",))
    a, b = g.add("Exp", x, name="a"), g.add("Neg", x, name="b")
    g.add_output(g.add("Add", g.add("Abs", b, name="c"), g.add("Relu", a, name="d"), name="e"), "y")
    want = numbers(g)["y"]
    assert [n.name for n in g.nodes] == ["a", "b", "c", "d", "e"]
    g.sort()
    assert [n.name for n in g.nodes] == ["b", "c", "a", "d", "e"]
    np.testing.assert_array_equal(numbers(g)["y"], want)
    with g.batch():  # in whatever order nodes are added
        late = g.add("Exp", x, name="late")
        g.set_input("a", 0, late)
    names = [n.name for n in g.nodes]
    assert names.index("late") < names.index("a")


# -- runs ----------------------------------------------------------------------------------------------------------
def test_a_range_of_nodes() -> None:
    g = small()
    feed = fed(g)
    all_ = g.run(feed, ["h", "hb", "r", "y"])
    assert list(all_) == ["h", "hb", "r", "y"]
    np.testing.assert_array_equal(g.run({"h": all_["h"]}, "r")["r"], all_["r"])
    np.testing.assert_array_equal(g.run({"r": all_["r"]})["y"], all_["y"])
    np.testing.assert_array_equal(g.run({"x": feed["x"].tolist()})["y"], all_["y"])
    (r,) = g.run_node("relu", all_["hb"])
    np.testing.assert_array_equal(r, all_["r"])
    (h,) = g.run_node(g.nodes["hidden"], feed["x"])
    np.testing.assert_array_equal(h, all_["h"])


def test_what_cannot_be_run() -> None:
    g = small()
    x = np.ones((2, 32), np.float32)
    with refused(g, r"extract: the cut leaves inputs undefined: 'x', read by 'hidden' \(MatMul\)"):
        g.run({})
    with refused(g, r"run: expected the name of a value of graph 'g', got 'X'; did you mean 'x'"):
        g.run({"X": x})
    with refused(g, r"run: 'x': expected float32\[batch, 32\], got float64\[2, 32\]"):
        g.run({"x": x.astype(np.float64)})
    with refused(g, r"run: 'x': expected float32\[batch, 32\], got float32\[32\]"):
        g.run({"x": x[0]})
    with refused(g, r"run_node 'bias' \(Add\): expected 1 arrays \(h\), got 2"):
        g.run_node("bias", x, x)
    with refused(g, r"run: expected a dict by name, got list"):
        g.run([x])  # type: ignore[arg-type]


# -- functions, and nodes of other domains -------------------------------------------------------------------------
def attention() -> ModelGraph:
    """softmax(q k' / 2) v."""
    body = new_graph("body")
    q, k, v = (body.add_input(name, "float32", ("rows", "width")) for name in "qkv")
    scores = body.add("Mul", body.add("MatMul", q, body.add("Transpose", k)), 0.5)
    body.add_output(body.add("MatMul", body.add("Softmax", scores), v), "o")
    return body


def test_a_function() -> None:
    g = new_graph("net", opset=18)
    x = g.add_input("x", "float32", ("n", 4))
    g.define_function("Attend", "com.acme", attention())
    y = g.add("Attend", x, x, x, domain="com.acme")
    assert str(y.type) == "float32[n, 4]"
    g.add_output(g.add("Attend", y, x, x, domain="com.acme", name="second"), "z")
    feed = fed(g)
    first = attention().run({"q": feed["x"], "k": feed["x"], "v": feed["x"]})["o"]
    want = attention().run({"q": first, "k": feed["x"], "v": feed["x"]})["o"]
    np.testing.assert_allclose(numbers(g, feed)["z"], want, rtol=1e-6)
    message = g.to_onnx()
    assert [f.name for f in message.functions] == ["Attend"]
    assert [n.op_type for n in message.graph.node] == ["Attend", "Attend"]
    np.testing.assert_allclose(tilewright.compile(message).run(feed)["z"], want, rtol=1e-5)
    with refused(g, r"define_function 'Attend': expected a new name, got one that domain 'com.acme' has"):
        g.define_function("Attend", "com.acme", attention())
    with refused(g, r"define_function 'F': expected a domain of your own, got ''"):
        g.define_function("F", "", attention())


def test_a_foreign_node() -> None:
    g = small()
    g.insert_after("r", "Twist", domain="com.acme", angle=0.5, types=("float32", ("batch", 64)))
    assert str(g.nodes["Twist"]) == "Twist_out = com.acme::Twist(r)"
    assert str(g.values["Twist_out"].type) == "float32[batch, 64]"
    assert {o.domain: o.version for o in g.to_onnx().opset_import} == {"": 18, "com.acme": 1}
    g.set_attrs("Twist", angle=0.25)
    g.rename({"r": "rectified"})
    g.set_dim("batch", 3)
    assert str(g.values["Twist_out"].type) == "float32[3, 64]"
    assert g.find(domain="com.acme") == [g.nodes["Twist"]]
    g.set_type("Twist_out", "float32", None)
    assert str(g.values["Twist_out"].type) == "float32[?]"
    g.set_type("Twist_out", "float32", (3, 64))
    with pytest.raises(UnsupportedError, match="Twist"):
        g.run(fed(g))
    part = g.run(fed(g), "rectified")["rectified"]
    assert part.shape == (3, 64)
    g.remove("Twist")
    numbers(g)
    with refused(g, r"set_type 'h': expected an input or the result of a foreign node, got what is computed by 'hidd"):
        g.set_type("h", "float32", (1, 64))


def test_a_foreign_node_of_unknown_type() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (2,))
    y = g.add("Twist", x, domain="com.acme")
    g.add_output(g.add("Relu", y), "z")
    assert (str(y.type), str(g.outputs["z"].type)) == ("unknown", "unknown")
    g.set_type(y, "float32", (2,))
    assert str(g.outputs["z"].type) == "float32[2]"
    with refused(g, r"add 'Relu_1' \(Relu\): expected types of 1 results of a node of another domain, got 1"):
        g.add("Relu", x, types=("float32", (2,)))


def test_a_plugin_in_the_domain_of_onnx() -> None:
    nodes = [helper.make_node("PluginNMS", ["x"], ["n", "boxes"], "nms", score=0.5),
             helper.make_node("Neg", ["boxes"], ["y"], "negate")]  # fmt: skip
    g = load_graph(model_of(nodes, {"x": ["n", 4]}, ["y"], 13))
    assert (g.nodes["nms"].domain, str(g.values["boxes"].type)) == ("ai.onnx", "unknown")
    g.set_type("boxes", "float32", ("n", 4))
    assert str(g.outputs["y"].type) == "float32[n, 4]"
    g.insert_after("x", "Abs")
    for opset in (13, 21):
        message = g.to_onnx(opset)
        assert [(n.op_type, n.domain) for n in message.graph.node] == [("Abs", ""), ("PluginNMS", ""), ("Neg", "")]
        assert message.opset_import[0].version == opset
    with pytest.raises(UnsupportedError, match="PluginNMS"):
        tilewright.compile(message)


def test_an_operator_that_onnx_makes_of_others() -> None:
    g = new_graph(opset=18)
    x = g.add_input("x", "float32", ("n",))
    g.add_output(g.add("Relu", x), "y")
    g.set_opset(21)
    assert g.to_onnx().opset_import[0].version == 21
    g.set_opset(3, "com.acme")
    assert {o.domain: o.version for o in g.to_onnx().opset_import}["com.acme"] == 3


def test_bodies_are_renamed_and_kept() -> None:
    b = GraphBuilder("body")
    b.input("i", "int64", ())
    going, carried = b.input("going", "bool", ()), b.typed_input("carried", TensorType(dtypes.float32, None))
    (out,) = b.ops("Add", carried, "step", outputs=["next"])
    body = b.build(going, out, infer=False)
    g = new_graph()
    x, step = g.add_input("x", "float32", ("n",)), g.add_input("step", "float32", ("n",))
    assert step.name == "step"
    g.add_output(g.add("Loop", g.add_constant(np.array(3)), None, x, body=body, name="loop"), "y")
    feed = fed(g)
    want = numbers(g, feed)["y"]
    np.testing.assert_allclose(want, feed["x"] + 3 * feed["step"], rtol=1e-5)
    g.rename({"step": "delta", "next": "following"})
    np.testing.assert_array_equal(g.run({"x": feed["x"], "delta": feed["step"]})["y"], want)


# -- onnx-ir -------------------------------------------------------------------------------------------------------
def test_onnx_ir_and_back() -> None:
    ir = pytest.importorskip("onnx_ir")
    g = small()
    want = numbers(g)["y"]
    model = to_ir(g)
    assert isinstance(model, ir.Model)
    assert [n.op_type for n in model.graph] == ["MatMul", "Add", "Relu", "MatMul"]
    model.graph.node("relu").op_type = "Neg"
    back = from_ir(model)
    assert [n.op for n in back.nodes] == ["MatMul", "Add", "Neg", "MatMul"]
    np.testing.assert_array_equal(numbers(from_ir(to_ir(g)))["y"], want)
    with pytest.raises(InputError, match=r"from_ir: expected an onnx_ir.Model, got ModelProto"):
        from_ir(perceptron())


def test_without_onnx_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    with pytest.raises(InputError, match=r"expected the package onnx-ir, .* pip install 'tilewright\[ir\]'"):
        to_ir(small())


def test_graphs_of_the_ir_and_compiled_models() -> None:
    g = small()
    g.replace("relu", "Tanh")
    feed = fed(g)
    want = numbers(g, feed)["y"]
    np.testing.assert_allclose(tilewright.compile(g.graph).run(feed)["y"], want, rtol=1e-4, atol=1e-5)
    again = load_graph(g.graph)
    np.testing.assert_array_equal(numbers(again, feed)["y"], want)


def test_models_of_other_messages() -> None:
    node = helper.make_node("Upsample", ["x", "s"], ["y"], "up", mode="nearest")
    model = model_of([node], {"x": [1, 1, 2, 2]}, ["y"], 9, constants={"s": np.array([1, 1, 2, 2], np.float32)})
    g = load_graph(model)
    assert g.nodes[0].op == "Resize"  # operators are the newest version's
    assert g.to_onnx().opset_import[0].version >= 9
