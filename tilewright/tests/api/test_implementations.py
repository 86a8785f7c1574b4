"""What a user says about implementations: names, own values, errors that say why, and what ``explain`` tells."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.core.errors import InputError
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.direct import DIRECT


def conv_model(size: int = 24, batch: int | str = 1) -> onnx.ModelProto:
    """A convolution that Winograd's algorithms suit, with a ReLU, and a product."""
    rng = np.random.default_rng(5)
    w = rng.standard_normal((32, 32, 3, 3)).astype(np.float32) / 17
    m = rng.standard_normal((size, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "m"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 32, size, 8])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(m, "m")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def implementation(model: onnx.ModelProto, node: str, **options: object) -> object:
    graph = tilewright.compile(model, stop_after="passes", **options)  # type: ignore[call-overload]
    assert isinstance(graph, Graph)
    return next(n.attr("implementation") for n in graph.nodes if n.name == node)


@pytest.mark.parametrize("name", ["direct", "implicit_gemm", "winograd2", "winograd3"])
def test_a_pinned_implementation_computes_the_node(name: str) -> None:
    proto = conv_model()
    x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)
    model = tilewright.compile(proto, implementations={"conv": name}, threads=1)
    assert f"conv (Conv): {name}, by user" in model.explain()
    want = tilewright.compile(proto, opt_level="none", threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", ["none", "extended"])
def test_a_pin_holds_at_every_level(level: str) -> None:
    assert implementation(conv_model(), "conv", opt_level=level, implementations={"conv": "winograd2"}) == "winograd2"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"convv": "direct"}, "no node 'convv' after its graph passes; did you mean 'conv'"),
        ({"conv": "winograd5"}, r"node 'conv' \(Conv\): unknown implementation 'winograd5', expected one of depth"),
        ({"conv": "depthwise"}, r"node 'conv' \(Conv\): implementation 'depthwise': groups of 32 input channels"),
        ({"conv": "winograd2_stride2"}, "implementation 'winograd2_stride2': strides 1, expected 2"),
        ({"relu": "direct"}, r"node 'relu' \(Relu\): it is computed in one way"),
        ({"product": DIRECT}, r"node 'product' \(MatMul\): unknown implementation 'direct'"),
        ({"conv": 3}, "expected names of nodes and names of implementations"),
        ("direct", "expected a mapping from nodes to implementations, got 'direct'"),
        ({"conv": Implementation("Conv", "direct", DIRECT.lower, DIRECT.cost)}, "Conv already has an implementation"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_why(wanted: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(conv_model(), implementations=wanted, stop_after="passes")  # type: ignore[call-overload]


def test_a_pin_needs_the_pass() -> None:
    with pytest.raises(InputError, match="the pass choose_implementation is among those of disabled_pass"):
        tilewright.compile(conv_model(), implementations={"conv": "direct"}, disabled_pass="choose_implementation")


def test_an_implementation_of_a_user_computes_a_node() -> None:
    own = Implementation("Conv", "mine", DIRECT.lower, lambda facts: 1e-3, measured=True)
    assert implementation(conv_model(), "conv", implementations={"product": "packed_gemm"}) == "winograd4"
    model = tilewright.compile(conv_model(), implementations={"conv": own}, threads=1)
    assert "conv (Conv): mine, by user\n    mine 1e-09 (only by a record or a user), " in model.explain()
    x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)
    want = tilewright.compile(conv_model(), implementations={"conv": "direct"}, threads=1).run({"x": x})["y"]
    np.testing.assert_array_equal(model.run({"x": x})["y"], want)


def test_the_account_has_costs_errors_and_reasons() -> None:
    text = tilewright.compile(conv_model(), threads=1).explain()
    account = text[text.index("implementations (") :]
    assert "\n  conv (Conv): winograd4, by estimate\n    winograd4 " in account
    assert "(error " in account
    assert "not depthwise (groups of 32 input channels, expected one), merged_groups (no two groups fit" in account
    assert "winograd2_stride2 (strides 1, expected 2)" in account
    assert "\n  product (MatMul): packed_gemm, by estimate\n    packed_gemm " in account


def test_the_version_that_broadcasts_has_the_pins_that_apply_there() -> None:
    proto = conv_model(batch="n")
    model = tilewright.compile(proto, implementations={"conv": "direct"}, broadcasting="ahead", threads=1)
    assert "conv (Conv): direct, by user" in model.explain()
