"""Other element types: of one input or output, of all floats; numbers are near, and onnxruntime takes the files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.edit.loading import load_graph, new_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.api.models import convolution
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small
from tilewright.tests.frontend.models import model_of


def dtypes(g: ModelGraph) -> dict[str, int]:
    found: dict[str, int] = {}
    for v in g.values:
        found[v.dtype.name] = found.get(v.dtype.name, 0) + 1
    return found


def test_of_an_input_and_an_output() -> None:
    g = small()
    feed = fed(g)
    want = numbers(g, feed)["y"]
    g.set_input_type("x", "float64")
    g.set_output_type("y", np.float16)
    assert (str(g.inputs["x"]), str(g.outputs["y"])) == ("x: float64[batch, 32]", "y: float16[batch, 10]")
    got = numbers(g, {"x": feed["x"].astype(np.float64)})["y"]
    np.testing.assert_array_equal(got, want.astype(np.float16))
    assert [n.op for n in g.nodes].count("Cast") == 2
    g.set_output_type("y", np.float16)  # nothing to do
    assert [n.op for n in g.nodes].count("Cast") == 2
    with refused(g, r"set_input_type: expected an input \(x\), got 'y'"):
        g.set_input_type("y", "float16")


@pytest.mark.parametrize(("to", "near"), [("float16", 1e-2), ("bfloat16", 8e-2), ("float64", 1e-6)])
def test_of_all_floats_behind_casts(to: str, near: float) -> None:
    g = load_graph(convolution())
    want = numbers(g)["y"]
    g.convert(to)
    assert (g.inputs["x"].dtype.name, g.outputs["y"].dtype.name) == ("float32", "float32")
    assert {c.dtype.name for c in g.constants} == {to}
    assert dtypes(g)["float32"] == 2
    np.testing.assert_allclose(numbers(g)["y"], want, atol=near)


def test_of_the_interface_too() -> None:
    g = small()
    feed = fed(g)
    want = numbers(g, feed)["y"]
    g.convert("float16", interface=True)
    assert dtypes(g) == {"float16": 8}
    assert "Cast" not in [n.op for n in g.nodes]
    np.testing.assert_allclose(numbers(g, {"x": feed["x"].astype(np.float16)})["y"], want, atol=3e-2)
    g.convert("float32", source="float16", interface=True)
    assert dtypes(g) == {"float32": 8}


def test_what_is_skipped_stays() -> None:
    g = small()
    g.convert("float16", skip=["relu", "Add"])
    types = {n.name: n.output.dtype.name for n in g.nodes}
    assert (types["hidden"], types["bias"], types["relu"], types["readout"]) == (
        "float16",
        *("float32",) * 2,
        "float16",
    )
    assert g.values["b"].dtype.name == "float32"
    numbers(g)
    h = small()
    h.convert("float16", skip=lambda n: n.op == "MatMul")
    assert [n.op for n in h.nodes if n.op != "Cast"] == ["MatMul", "Add", "Relu", "MatMul"]
    assert h.nodes["hidden"].output.dtype.name == "float32"
    with refused(h, r"convert: skip: expected an operator or the name of a node .*, got 'Conv'"):
        h.convert("float16", skip="Conv")
    with refused(h, r"convert: expected float types, got int8"):
        h.convert("int8")


def test_operands_that_the_standard_has_in_float32_stay() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n", 1, 2, 2))
    scales = g.add_constant(np.array([1, 1, 2, 2], np.float32), "scales")
    g.add_output(g.add("Resize", x, None, scales, mode="nearest", name="resize"), "y")
    want = numbers(g)["y"]
    g.convert("float16")
    assert (g.values["scales"].dtype.name, g.nodes["resize"].output.dtype.name) == ("float32", "float16")
    np.testing.assert_allclose(numbers(g)["y"], want, rtol=1e-3)


def test_types_that_nodes_name_change() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", ("n",))
    ones = g.add("ConstantOfShape", g.add("Shape", x), value=np.ones(1, np.float32), name="ones")
    g.add_output(g.add("Add", g.add("Cast", g.add("Cast", x, to="int32"), to="float32"), ones), "y")
    want = numbers(g)["y"]
    g.convert("float16")
    assert dtypes(g).keys() == {"float32", "float16", "int32", "int64"}
    assert g.nodes["ones"].output.dtype.name == "float16"
    np.testing.assert_array_equal(numbers(g)["y"], want)


def test_numbers_out_of_range() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (3,))
    g.add_output(g.add("Add", x, np.array([-3.4e38, 1e6, -np.inf], np.float32)), "y")
    g.convert("float16")
    (c,) = g.constants
    assert c.array is not None
    assert c.array.tolist() == [-65504.0, 65504.0, -np.inf]


def test_bodies_and_foreign_nodes_stay() -> None:
    g = new_graph()
    x, flag = g.add_input("x", "float32", ("n",)), g.add_input("flag", "bool", ())
    h = g.add("Neg", x, outputs="h")
    bodies = {}
    for key, op in (("then_branch", "Abs"), ("else_branch", "Relu")):
        b = GraphBuilder(key)
        (out,) = b.ops(op, h.name, outputs=[f"{key}_out"])
        bodies[key] = b.build(out, infer=False)
    chosen = g.add("If", flag, outputs="chosen", **bodies)
    g.add_output(g.add("Exp", chosen), "y")
    feed = {"x": np.array([-1.0, 2.0], np.float32), "flag": np.array(True)}
    want = g.run(feed)["y"]
    g.convert("float16")
    assert (g.values["h"].dtype.name, g.values["chosen"].dtype.name) == ("float16", "float32")
    np.testing.assert_allclose(g.run(feed)["y"], want, rtol=2e-3)
    node = helper.make_node("Twist", ["x"], ["t"], "twist", domain="com.acme")
    own = load_graph(
        model_of([node, helper.make_node("Neg", ["t"], ["y"])], {"x": [2]}, ["y"], domains={"com.acme": 1})
    )
    own.set_type("t", "float32", (2,))
    own.convert("float16")
    assert str(own.values["t"].type) == "float32[2]"
    assert [n.op for n in own.nodes] == ["Twist", "Cast", "Neg", "Cast"]


def test_what_reads_values_of_unknown_type_stays() -> None:
    nodes = [helper.make_node("Quantize", ["x"], ["q"], "quantize", domain="com.acme"),
             helper.make_node("DequantizeLinear", ["q", "scale"], ["y"], "dequantize")]  # fmt: skip
    scale = np.array(0.5, np.float32)
    g = load_graph(model_of(nodes, {"x": [2]}, ["y"], constants={"scale": scale}, domains={"com.acme": 1}))
    g.convert("float16")
    read = g.nodes["dequantize"].inputs[1]
    assert read is not None
    assert (str(g.values["q"].type), read.dtype.name, g.outputs["y"].dtype.name) == ("unknown", "float32", "float32")


def test_onnxruntime_takes_what_was_converted() -> None:
    ort = pytest.importorskip("onnxruntime")
    g = load_graph(convolution())
    feed = fed(g)
    want = numbers(g, feed)["y"]
    g.convert("float16", skip="Softmax")
    message = g.to_onnx()
    onnx.checker.check_model(message, full_check=True)
    got = ort.InferenceSession(message.SerializeToString()).run(None, feed)[0]
    np.testing.assert_allclose(got, want, atol=1e-2)
