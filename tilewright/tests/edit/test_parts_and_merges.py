"""Parts of models, and two models as one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.core.errors import InputError
from tilewright.edit.loading import load_graph, merge_graphs, new_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.tests.api.models import convolution, perceptron, two_inputs
from tilewright.tests.edit.by_numbers import fed, numbers, refused, small
from tilewright.tests.frontend.models import model_of


def test_a_part() -> None:
    g = small()
    feed = fed(g)
    want = g.run(feed, ["h", "r"])
    part = g.extract(["h"], ["r"])
    assert [n.name for n in part.nodes] == ["bias", "relu"]
    assert (part.inputs.names, part.constants.names, part.dims) == (("h",), ("b",), ("batch",))
    np.testing.assert_array_equal(numbers(part, {"h": want["h"]})["r"], want["r"])
    assert len(g.nodes) == 4


def test_parts_put_together_are_the_whole() -> None:
    g = load_graph(convolution())
    feed = fed(g)
    want = numbers(g, feed)["y"]
    first, second = g.extract(None, "c2"), g.extract("c2", "y")
    assert first.inputs.names == ("x",)
    middle = numbers(first, feed)
    np.testing.assert_array_equal(numbers(second, middle)["y"], want)
    whole = merge_graphs(first, second, {"c2": "c2"})
    assert [n.name for n in whole.nodes] == [n.name for n in g.nodes]
    np.testing.assert_array_equal(numbers(whole, feed)["y"], want)


def test_cuts_that_do_not_hold() -> None:
    g = small()
    with refused(g, r"extract: the cut leaves inputs undefined: 'x', read by 'hidden' \(MatMul\)"):
        g.extract(["r"], ["y", "h"])
    with refused(g, r"extract: expected the name of a value of graph 'g', got 'rr'; did you mean 'r'"):
        g.extract(["rr"], ["y"])
    with refused(g, r"extract: expected at least one output, got none"):
        g.extract(["x"], [])
    with refused(g, r"extract: expected each name once"):
        g.extract(["x", "x"], ["y"])
    split = new_graph()
    split.add_node("Split", split.add_input("x", "float32", (4,)), outputs=["a", "b"], num_outputs=2, name="split")
    split.set_outputs("a", "b")
    with refused(split, r"extract: input 'a' is a result of 'split', another of which the cut needs; take all of them"):
        split.extract(["a", "x"], ["a", "b"])
    both = split.extract(["a", "b"], ["a"])
    assert len(both.nodes) == 0


def test_sizes_that_are_formulas_become_dimensions() -> None:
    g = load_graph(two_inputs())
    g.add_output(g.add("Neg", "rows", name="neg"), "z")
    part = g.extract(["rows"], ["z"])
    assert [str(d) for d in part.inputs["rows"].shape or ()] == ["rows_d0", "m"]
    assert str(part.outputs["z"].type) == "float32[rows_d0, m]"
    rows = np.ones((5, 2), np.float32)
    np.testing.assert_array_equal(numbers(part, {"rows": rows})["z"], -rows)


# -- two models ----------------------------------------------------------------------------------------------------
def head() -> ModelGraph:
    """p = softmax(scores) for scores[n, 10], and how many of x[n, 10] are above 0."""
    g = new_graph("head")
    s = g.add_input("scores", "float32", ("n", 10))
    g.add_output(g.add("Softmax", s, axis=1, name="prob"), "p")
    return g


def test_one_behind_the_other() -> None:
    g, h = small(), head()
    feed = fed(g)
    y = numbers(g, feed)["y"]
    m = merge_graphs(g, h, {"y": "scores"}, keep=["y"])
    assert (m.inputs.names, m.outputs.names) == (("x",), ("y", "p"))
    assert str(m.outputs["p"].type) == "float32[batch, 10]"
    got = numbers(m, feed)
    np.testing.assert_array_equal(got["y"], y)
    np.testing.assert_array_equal(got["p"], h.run({"scores": y})["p"])
    assert (len(g.nodes), len(h.nodes)) == (4, 1)


def test_append_and_prepend() -> None:
    g = small()
    feed = fed(g)
    y = numbers(g, feed)["y"]
    g.append(head())
    np.testing.assert_array_equal(numbers(g, feed)["p"], head().run({"scores": y})["p"])
    half = new_graph("half")
    half.add_output(half.add("Mul", half.add_input("x", "float32", ("rows", 32)), 0.5), "scaled")
    g.prepend(half, {"scaled": "x"})
    assert g.inputs.names == ("x",)
    assert g.dims == ("rows",)
    np.testing.assert_allclose(numbers(g, {"x": 2 * feed["x"]})["p"], head().run({"scores": y})["p"], rtol=1e-5)


def test_what_is_put_before_gets_the_prefix() -> None:
    g = small()
    model = g.model
    before = new_graph("before")
    x = before.add_input("x", "float32", ("n", 32))
    before.add_output(before.add("Relu", x, name="relu", outputs="h"))
    g.prepend(before)
    assert [(n.name, n.outputs[0].name if n.outputs[0] else "") for n in g.nodes][:2] == [
        ("first_relu", "first_h"),
        ("hidden", "h"),
    ]
    assert (g.inputs.names, g.outputs.names, g.dims) == (("x",), ("y",), ("n",))
    feed = fed(g)
    want = load_graph(perceptron()).run({"x": np.maximum(feed["x"], 0)})["y"]
    np.testing.assert_array_equal(numbers(g, feed)["y"], want)
    assert model.graph.inputs == ("x",)


def test_names_that_both_have_get_the_prefix() -> None:
    a, b = small(), load_graph(perceptron(seed=1))
    with b.batch():
        b.set_constant("w", np.ones((10, 64), np.float32))
        b.set_shape("x", ("batch", 10))
    m = merge_graphs(a, b, {"y": "x"}, prefix="b/")
    assert m.inputs.names == ("x",)
    assert m.outputs.names == ("b/y",)
    assert [n.name for n in m.nodes][-2:] == ["b/relu", "b/readout"]
    feed = fed(a)
    np.testing.assert_array_equal(numbers(m, feed)["b/y"], b.run({"x": a.run(feed)["y"]})["y"])


def test_side_by_side_one_dimension_is_one_size() -> None:
    a, b = small(), small()
    m = merge_graphs(a, b, {})
    assert (m.inputs.names, m.outputs.names, m.dims) == (("x", "second_x"), ("y", "second_y"), ("batch",))
    numbers(m)


def test_one_output_for_two_inputs() -> None:
    g = small()
    m = merge_graphs(g, load_graph(two_inputs()), {"y": ["a", "b"]})
    assert m.inputs.names == ("x",)
    assert str(m.outputs["rows"].type) == "float32[batch*2, 10]"
    feed = fed(g)
    np.testing.assert_array_equal(numbers(m, feed)["total"], 2 * g.run(feed)["y"])
    with pytest.raises(InputError, match=r"merge: expected each input once, got 'a' for 'y' and 'r'"):
        merge_graphs(g, load_graph(two_inputs()), {"y": "a", "r": "a"})


def test_sizes_without_names_are_apart() -> None:
    a, b = (load_graph(model_of([helper.make_node("Relu", ["x"], ["y"], "r")], {"x": [None]}, ["y"])) for _ in range(2))
    m = merge_graphs(a, b, {})
    assert len({str(v.type) for v in m.inputs}) == 2
    x, z = np.ones(2, np.float32), np.ones(3, np.float32)
    assert [v.shape for v in numbers(m, {"x": x, "second_x": z}).values()] == [(2,), (3,)]


def test_connections_that_do_not_fit() -> None:
    g, h = small(), head()
    with pytest.raises(
        InputError, match=r"merge: 'r' -> 'scores': expected float32\[n, 10\], got float32\[batch, 64\]"
    ):
        merge_graphs(g, h, {"r": "scores"})
    with pytest.raises(
        InputError, match=r"an input of the second model \(scores\), got 'score'; did you mean 'scores'"
    ):
        merge_graphs(g, h, {"y": "score"})
    with pytest.raises(
        InputError, match=r"merge: first model: expected the name of a value of graph 'g', got 'logits'"
    ):
        merge_graphs(g, h, {"logits": "scores"})
    h.set_input_type("scores", "float64")
    with pytest.raises(
        InputError, match=r"merge: 'y' -> 'scores': expected float64\[n, 10\], got float32\[batch, 10\]"
    ):
        merge_graphs(g, h, {"y": "scores"})
    with pytest.raises(InputError, match=r"merge: expected connections, or as many outputs as inputs, got \['y'\] and"):
        merge_graphs(g, load_graph(two_inputs()))
    with pytest.raises(InputError, match=r"merge: keep: expected an output of the first model \(y\), got 'z'"):
        merge_graphs(g, head(), {"y": "scores"}, keep=["z"])


def test_opsets_are_reconciled() -> None:
    g, h = small(), new_graph(opset=21)
    h.add_output(h.add("Relu", h.add_input("scores", "float32", ("n", 10))), "p")
    assert merge_graphs(g, h, {"y": "scores"}).to_onnx().opset_import[0].version == 21
    own = helper.make_node("Twist", ["x"], ["y"], "twist", domain="com.acme")
    a, b = (model_of([own], {"x": [2]}, ["y"], domains={"com.acme": version}) for version in (1, 2))
    with pytest.raises(InputError, match=r"merge: expected one version of domain 'com.acme', got 1 and 2"):
        merge_graphs(load_graph(a), load_graph(b), {})
    both = merge_graphs(load_graph(a), load_graph(a), {"y": "x"}).to_onnx()
    assert {(o.domain, o.version) for o in both.opset_import} == {("", 21), ("com.acme", 1)}
    assert [n.domain for n in both.graph.node] == ["com.acme"] * 2


def test_functions_of_both() -> None:
    def model(alpha: float) -> onnx.ModelProto:
        body = [helper.make_node("LeakyRelu", ["a"], ["b"], alpha=alpha)]
        f = helper.make_function("com.acme", "Leaky", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
        node = helper.make_node("Leaky", ["x"], ["y"], "leaky", domain="com.acme")
        return model_of([node], {"x": [2]}, ["y"], domains={"com.acme": 1}, functions=[f])

    m = merge_graphs(load_graph(model(0.5)), load_graph(model(0.5)), {"y": "x"})
    assert len(m.to_onnx().functions) == 1
    np.testing.assert_array_equal(m.run({"x": np.array([-4, 4], np.float32)})["second_y"], [-1, 4])
    with pytest.raises(InputError, match=r"merge: expected one function com.acme::Leaky, got two that differ"):
        merge_graphs(load_graph(model(0.5)), load_graph(model(0.25)), {"y": "x"})


def test_what_the_files_say_is_kept() -> None:
    a, b = perceptron(), perceptron()
    a.metadata_props.add(key="author", value="a")
    b.metadata_props.add(key="author", value="b")
    b.metadata_props.add(key="licence", value="none")
    a.graph.output[0].doc_string = "logits"
    m = merge_graphs(load_graph(a), load_graph(b), {}).to_onnx()
    assert {p.key: p.value for p in m.metadata_props} == {"author": "a", "licence": "none"}
    assert [o.doc_string for o in m.graph.output] == ["logits", ""]
