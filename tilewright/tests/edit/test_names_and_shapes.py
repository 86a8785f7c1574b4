"""Other names, and other shapes: of values, nodes, dimensions, inputs; one batch size made any."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.edit.loading import load_graph, new_graph
from tilewright.tests.api.models import perceptron, two_inputs
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small
from tilewright.tests.frontend.models import model_of


def test_rename_values() -> None:
    g = small()
    feed = fed(g)
    want = numbers(g, feed)["y"]
    g.rename({"x": "image", "y": "logits", "h": "hb", "hb": "h", "w": "weight"})
    assert (g.inputs.names, g.outputs.names) == (("image",), ("logits",))
    assert [str(n) for n in g.nodes] == [
        "hb = MatMul(image, weight)", "h = Add(hb, b)", "r = Relu(h)", "logits = MatMul(r, v)",
    ]  # fmt: skip
    np.testing.assert_array_equal(numbers(g, {"image": feed["x"]})["logits"], want)
    with refused(g, r"rename value 'h': expected a name that no value has, got 'r'"):
        g.rename({"h": "r"})
    with refused(g, r"rename value 'h': expected a name, got ''"):
        g.rename({"h": ""})
    with refused(g, r"rename: expected the name of a value of graph 'g', got 'imag'; did you mean 'image'"):
        g.rename({"imag": "x"})


def test_what_the_file_says_of_a_value_goes_with_its_name() -> None:
    model = perceptron()
    model.graph.input[0].doc_string = "an image"
    a = model.graph.quantization_annotation.add(tensor_name="h")
    a.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="b")
    g = load_graph(model)
    g.set_overridable(["b"])
    g.rename({"x": "image", "h": "hidden_units", "b": "offset"})
    out = g.to_onnx()
    assert [(i.name, i.doc_string) for i in out.graph.input] == [("image", "an image"), ("offset", "")]
    assert out.graph.quantization_annotation[0].tensor_name == "hidden_units"
    assert out.graph.quantization_annotation[0].quant_parameter_tensor_names[0].value == "offset"


def test_rename_nodes_and_the_graph() -> None:
    model = perceptron()
    model.graph.node[2].doc_string = "no less than 0"
    g = load_graph(model)
    g.rename_nodes({"relu": "rectify"})
    g.rename_graph("net")
    out = g.to_onnx()
    assert (out.graph.name, out.graph.node[2].name, out.graph.node[2].doc_string) == (
        "net",
        "rectify",
        "no less than 0",
    )
    with refused(g, r"rename node 'bias': expected a name that no node has, got 'hidden'"):
        g.rename_nodes({"bias": "hidden"})
    with refused(g, r"rename: expected the name of a node of graph 'net', got 'relu'"):
        g.rename_nodes({"relu": "r"})


def test_rename_a_dimension() -> None:
    g = small()
    g.rename_dim("batch", "batch size")
    assert g.dims == ("batch size",)
    assert str(g.outputs["y"].type) == "float32[batch_size, 10]"
    dims = [d.dim_param for d in g.to_onnx().graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["batch size", ""]
    numbers(g)
    with refused(g, r"rename_dim: expected a dimension of an input \(batch size\), got 'batch'"):
        g.rename_dim("batch", "n")
    two = load_graph(two_inputs())
    with refused(
        two, r"rename_dim 'n': expected a name that no dimension has, got 'm'; set_dim makes two dimensions one"
    ):
        two.rename_dim("n", "m")


# -- shapes --------------------------------------------------------------------------------------------------------
def test_a_dimension_becomes_a_number() -> None:
    g = small()
    g.set_dim("batch", 4)
    assert (str(g.inputs["x"]), str(g.outputs["y"]), g.dims) == ("x: float32[4, 32]", "y: float32[4, 10]", ())
    numbers(g)
    with refused(g, r"set_dim: expected a dimension of an input \(there is none\), got 'batch'"):
        g.set_dim("batch", 2)


def test_two_dimensions_become_one() -> None:
    g = load_graph(two_inputs())
    g.set_dim("m", "n")
    assert str(g.outputs["rows"].type) == "float32[n*2, n]"
    assert g.to_onnx().graph.input[0].type.tensor_type.shape.dim[1].dim_param == "n"
    with refused(g, r"set_dim 'n': expected a number or another dimension \(n\), got 'k'; rename_dim gives a new name"):
        g.set_dim("n", "k")


def test_a_shape() -> None:
    h = load_graph(perceptron(), {"batch": 2})
    assert str(h.outputs["y"].type) == "float32[2, 10]"
    h.set_shape("x", ("rows", 32))
    assert str(h.outputs["y"].type) == "float32[rows, 10]"
    h.set_shape("x", (None, 32))
    assert h.to_onnx().graph.input[0].type.tensor_type.shape.dim[0].WhichOneof("value") is None
    numbers(h)


def test_shapes_that_are_refused() -> None:
    g = small()
    with refused(
        g, r"set_shape 'y': expected an input \(x\) or the result of a foreign node, got a value that is comp"
    ):
        g.set_shape("y", (1, 10))
    with refused(g, r"node 'hidden' \(MatMul\)"):
        g.set_shape("x", ("batch", 31))
    with refused(g, r"set_shape 'x': expected 2 sizes, as of float32\[batch, 32\], got 3"):
        g.set_shape("x", ("batch", 7, 32))
    with refused(g, r"set_shape 'x': expected sizes in .*, got -1"):
        g.set_shape("x", (-1, 32))
    with refused(g, r"set_shape: expected the name of a value of graph 'g', got 'X'; did you mean 'x'"):
        g.set_shape("X", (1, 32))
    with refused(g, r"set_dim: expected a dimension of an input \(batch\), got 'bach'; did you mean 'batch'"):
        g.set_dim("bach", 1)
    with refused(g, r"set_dim 'batch': expected sizes in .*, got -1"):
        g.set_dim("batch", -1)


def test_a_size_that_the_graph_computes_is_none_of_an_input() -> None:
    g = new_graph()
    g.add_output(g.add("NonZero", g.add_input("x", "float32", ("n",))), "y")
    with refused(g, r"set_dim: expected a dimension of an input, got 'u0', which the graph computes"):
        g.set_dim("u0", 3)


# -- any batch -----------------------------------------------------------------------------------------------------
def one_at_a_time(reshape: list[int], size: int = 1) -> onnx.ModelProto:
    """x[size, 6, 4] @ w, reshaped to a constant shape, plus an Expand to the batch; as exported for one size."""
    constants = {
        "w": np.arange(20, dtype=np.float32).reshape(4, 5), "to": np.array(reshape, np.int64),
        "wide": np.array([size, 3, 6, 5], np.int64), "one": np.array([1], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("Reshape", ["h", "to"], ["y"], "reshape"),
        helper.make_node("Unsqueeze", ["h", "one"], ["u"], "unsqueeze"),
        helper.make_node("Expand", ["u", "wide"], ["z"], "expand"),
    ]
    return model_of(nodes, {"x": [size, 6, 4]}, ["y", "z"], 18, constants=constants)


@pytest.mark.parametrize(
    ("reshape", "size", "shape"),
    [([1, 30], 1, (3, 30)), ([1, -1], 1, (3, 30)), ([-1, 5], 1, (18, 5)), ([2, 2, 15], 2, (3, 2, 15)),
     ([6, 5], 1, (18, 5)), ([12, 5], 2, (18, 5))],
)  # fmt: skip
def test_any_batch(reshape: list[int], size: int, shape: tuple[int, ...]) -> None:
    g = load_graph(one_at_a_time(reshape, size))
    feed = fed(g)
    want = numbers(g, feed)
    g.free_batch("n")
    for k, x in numbers(g, feed).items():
        np.testing.assert_array_equal(x, want[k])
    three = np.random.default_rng(1).standard_normal((3, 6, 4)).astype(np.float32)
    got = g.run({"x": three})
    w = g.values["w"].array
    assert w is not None
    np.testing.assert_allclose(got["y"], (three @ w).reshape(shape), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["z"], np.broadcast_to((three @ w)[:, None], (3, 3, 6, 5)), rtol=1e-5, atol=1e-5)
    assert str(g.outputs["z"].type) == "float32[n, 3, 6, 5]"


def test_a_batch_that_is_flattened_with_others_and_comes_back() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (1, 6, 4))
    rows = g.add("MatMul", g.add("Reshape", x, [-1, 4]), np.ones((4, 5), np.float32))
    g.add_output(g.add("Reshape", rows, [1, -1, 5], name="back"), "y")
    g.free_batch("n")
    assert str(g.outputs["y"].type) == "float32[n, 6, 5]"
    three = np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)
    np.testing.assert_allclose(numbers(g, {"x": three})["y"], (three @ np.ones((4, 5), np.float32)), rtol=1e-5)


def test_what_is_there_once_is_repeated_for_all() -> None:
    """A token in front of all others, and the first state of a recurrent layer: constants for one element."""
    rng = np.random.default_rng(0)
    g = new_graph()
    x, token = g.add_input("x", "float32", (1, 4, 3)), rng.standard_normal((1, 1, 3)).astype(np.float32)
    g.add_output(g.add("Concat", token, x, axis=1), "tokens")
    w, r = (rng.standard_normal((1, 10, k)).astype(np.float32) for k in (3, 10))
    turned = g.add("Transpose", x, perm=[1, 0, 2])
    state = g.add_constant(rng.standard_normal((1, 1, 10)).astype(np.float32), "state")
    layer = g.add_node("RNN", turned, w, r, None, None, state, hidden_size=10, outputs=["all", "last"])
    g.add_output("last")
    assert layer.op == "RNN"
    once = g.copy()
    g.free_batch("n")
    assert [str(v.type) for v in g.outputs] == ["float32[n, 5, 3]", "float32[1, n, 10]"]
    three = rng.standard_normal((3, 4, 3)).astype(np.float32)
    got = numbers(g, {"x": three})
    for k in range(3):
        want = once.run({"x": three[k : k + 1]})
        np.testing.assert_allclose(got["tokens"][k : k + 1], want["tokens"], rtol=1e-6)
        np.testing.assert_allclose(got["last"][:, k : k + 1], want["last"], rtol=1e-5, atol=1e-6)


def test_a_node_that_takes_the_batch_for_a_number() -> None:
    g = new_graph()
    x = g.add_input("x", "float32", (2, 4))
    g.add_output(g.add("Add", x, np.ones((2, 4), np.float32), name="sum"), "y")
    with refused(
        g, r"free_batch: node 'sum' \(Add\) takes the batch to be 2, got float32\[batch, 4\], float32\[2, 4\]"
    ):
        g.free_batch()
    h = new_graph()
    h.add_output(h.add("Reshape", h.add_input("x", "float32", (2, 3, 4)), [3, 8], name="mixed"), "y")
    with refused(h, r"free_batch: node 'mixed' \(Reshape\) takes the batch to be 2, got float32\[batch, 3, 4\], int64"):
        h.free_batch()


def test_a_batch_that_does_not_come_through() -> None:
    g = load_graph(perceptron(), {"batch": 1})
    g.insert_after("y", "ReduceSum", [0], keepdims=1)
    with refused(g, r"free_batch: expected output 'y' to follow the batch, got float32\[1, 10\]: node 'ReduceSum'"):
        g.free_batch()


def test_no_batch() -> None:
    g = small()
    with refused(g, r"free_batch: expected one number as axis 0 of all inputs, got batch of 'x'; inputs= says which"):
        g.free_batch()
    two = new_graph()
    two.set_outputs(*(two.add("Relu", two.add_input(k, "float32", (n, 3))) for k, n in (("a", 2), ("b", 4))))
    with refused(two, r"free_batch: expected one number as axis 0 of all inputs, got 2 of 'a', 4 of 'b'"):
        two.free_batch()
    with refused(two, r"free_batch: expected an input \(a, b\), got 'c'"):
        two.free_batch(inputs=["c"])
