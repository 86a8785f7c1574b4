"""What one sees of a graph: nodes and values by place, name, operator, pattern; what is asked for by a wrong name."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import InputError
from tilewright.edit.loading import load_graph, new_graph
from tilewright.rules import C, P
from tilewright.tests.api.models import perceptron
from tilewright.tests.edit.by_numbers import small


def test_the_interface() -> None:
    g = small()
    assert [str(v) for v in g.inputs] == ["x: float32[batch, 32]"]
    assert [str(v) for v in g.outputs] == ["y: float32[batch, 10]"]
    assert g.constants.names == ("w", "b", "v")
    assert [n.name for n in g.nodes] == ["hidden", "bias", "relu", "readout"]
    assert g.values.names == ("x", "w", "b", "v", "h", "hb", "r", "y")
    assert (g.name, g.opset, g.dims) == ("g", 18, ("batch",))
    assert (len(g.nodes), g.nodes[0].name, g.nodes[-1].name) == (4, "hidden", "readout")
    assert repr(g) == "<ModelGraph 'g': 4 nodes, 1 inputs, 1 outputs>"
    assert "relu" in g.nodes
    assert g.nodes["relu"] in g.nodes
    assert "relo" not in g.nodes


def test_a_node() -> None:
    g = small()
    n = g.nodes["bias"]
    assert str(n) == "hb = Add(h, b)"
    assert (n.op, n.domain, dict(n.attrs)) == ("Add", "", {})
    assert [v.name for v in n.inputs if v] == ["h", "b"]
    assert n.output.name == "hb"
    assert [p.name for p in n.producers] == ["hidden"]
    assert [c.name for c in n.consumers] == ["relu"]


def test_a_value() -> None:
    g = small()
    h, b = g.values["h"], g.values["b"]
    assert (h.dtype.name, str(h.shape[0] if h.shape else ""), h.producer, h.array) == (
        "float32", "batch", g.nodes["hidden"], None,
    )  # fmt: skip
    assert [c.name for c in h.consumers] == ["bias"]
    assert (b.is_constant, b.is_input, b.producer) == (True, False, None)
    assert b.array is not None
    assert b.array.shape == (64,)
    assert g.inputs["x"].is_input
    assert g.values["y"].is_output


def test_views_show_the_graph_as_it_is() -> None:
    g = small()
    relu = g.nodes["relu"]
    g.insert_before("relu", "Neg")
    assert [p.op for p in relu.producers] == ["Neg"]
    g.remove("relu")
    with pytest.raises(InputError, match=r"^node: expected the name of a node of graph 'g', got 'relu'"):
        _ = relu.op


def test_finding() -> None:
    g = small()
    assert [n.name for n in g.find("MatMul")] == ["hidden", "readout"]
    assert [n.name for n in g.find(["Add", "Relu"])] == ["bias", "relu"]
    assert [n.name for n in g.find(name="re*")] == ["relu", "readout"]
    assert [n.name for n in g.find("MatMul", where=lambda n: bool(n.output.is_output))] == ["readout"]
    assert g.find(domain="com.acme") == []
    assert [v.name for v in g.find_values("h*")] == ["h", "hb"]
    assert [v.name for v in g.find_values(where=lambda v: v.is_constant and v.array.ndim == 1)] == ["b"]  # type: ignore[union-attr]


def test_matching() -> None:
    g = small()
    (found,) = g.match(P("Relu", P("Add", P("MatMul", "x", C("w"), at="product"), "b")))
    assert (found.root.name, found["x"].name, found["w"].name, found["b"].name) == ("relu", "x", "w", "b")
    assert [n.name for n in found.nodes] == ["hidden", "bias", "relu"]
    assert found.at["product"].name == "hidden"
    assert g.match(P("Tanh", "x")) == []
    with pytest.raises(InputError, match=r"found: expected a value of the pattern \(x, w, b\), got 'ww'; did you mean"):
        _ = found["ww"]
    with pytest.raises(InputError, match=r"match: expected a pattern P\(...\), got str"):
        g.match("Relu")  # type: ignore[arg-type]


def test_wrong_names_have_the_nearest_right_one() -> None:
    g = small()
    with pytest.raises(InputError, match=r"expected the name of a node of graph 'g', got 'rleu'; did you mean 'relu'"):
        g.nodes["rleu"]
    with pytest.raises(InputError, match=r"expected the name of a value of graph 'g', got 'hbb'; did you mean 'hb'"):
        g.values["hbb"]
    with pytest.raises(InputError, match=r"g: expected an input \(x\), got 'X'; did you mean 'x'"):
        g.inputs["X"]
    with pytest.raises(IndexError):
        g.nodes[9]


def test_a_copy_is_apart() -> None:
    g = small()
    h = g.copy()
    g.remove("relu")
    assert (len(g.nodes), len(h.nodes)) == (3, 4)
    before = h.graph
    h.rename({"h": "hidden_units"})
    assert "h" in before.values


def test_given_shapes() -> None:
    g = load_graph(perceptron(), {"batch": 5})
    assert str(g.outputs["y"]) == "y: float32[5, 10]"


def test_of_nothing() -> None:
    g = new_graph("made", opset=19)
    x = g.add_input("x", np.float32, ("n", 3))
    g.add_output(g.add("Relu", g.add("Sub", x, [1.0, 2.0, 3.0]), name="rectified"), "y")
    assert g.opset == 19
    np.testing.assert_array_equal(g.run({"x": np.full((2, 3), 2.5, np.float32)})["y"], [[1.5, 0.5, 0]] * 2)
    assert g.to_onnx().opset_import[0].version == 19
    with pytest.raises(InputError, match=r"opset: expected a version from 7 to \d+, got 3"):
        new_graph(opset=3)
