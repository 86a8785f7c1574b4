"""The structure of what is written: which tensors, which scales, shared by whom."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tilewright.quantization.calibration.calibrators import scale_of
from tilewright.quantization.calibration.histogram import Range
from tilewright.tests.quantization.models import model_of, normal, residual, run, samples, transformer, weights_of


def _quantize(model: onnx.ModelProto, **more: object) -> onnx.ModelProto:
    out = tilewright.quantize(model, samples(model), runtime="tilewright", **more)  # type: ignore[arg-type]
    onnx.checker.check_model(out, full_check=True)
    return out


def _source(model: onnx.ModelProto, name: str) -> str:
    """What a DequantizeLinear's result was before: a constant's or a tensor's name."""
    made = {o: n for n in model.graph.node for o in n.output}
    node = made[name]
    assert node.op_type == "DequantizeLinear", name
    q = made.get(node.input[0])
    return node.input[0].removesuffix("_quantized") if q is None else q.input[0]


def _reads(model: onnx.ModelProto) -> dict[str, list[str]]:
    """What each node that was there before reads: names with ``~`` in front where they are quantized."""
    made = {o: n.op_type for n in model.graph.node for o in n.output}
    return {
        n.name: [f"~{_source(model, i)}" if made.get(i) == "DequantizeLinear" else i for i in n.input]
        for n in model.graph.node
        if n.op_type not in ("QuantizeLinear", "DequantizeLinear")
    }


def test_residual_network() -> None:
    out = _quantize(residual())
    assert _reads(out) == {
        "conv1": ["~x", "~w1", "~b1"], "relu1": ["c1"], "conv2": ["~r1", "~w2", "~b2"], "add": ["~c2", "~r1"],
        "relu2": ["s"], "pool": ["~r2"], "mean": ["~p"], "flat": ["~a"], "fc": ["~f", "~w3", "~b3"],
    }  # fmt: skip
    quantized = [n.input[0] for n in out.graph.node if n.op_type == "QuantizeLinear"]
    assert quantized == ["x", "r1", "c2", "r2", "p", "a", "f"]  # each once
    assert sum(n.op_type == "DequantizeLinear" for n in out.graph.node) == len(quantized) + 6


def test_scales() -> None:
    model = residual()
    out = _quantize(model)
    w, f = weights_of(out), weights_of(model)
    for weight, axis in (("w1", 0), ("w2", 0), ("w3", 0)):
        others = tuple(k for k in range(f[weight].ndim) if k != axis)
        np.testing.assert_allclose(w[f"{weight}_scale"], np.abs(f[weight]).max(others) / 127, rtol=1e-6)
        assert w[f"{weight}_quantized"].dtype == np.int8
        assert np.abs(w[f"{weight}_quantized"].astype(int)).max() == 127
        assert not w[f"{weight}_zero_point"].any()
    for x, weight, bias in (("x", "w1", "b1"), ("r1", "w2", "b2"), ("f", "w3", "b3")):
        np.testing.assert_allclose(w[f"{bias}_scale"], w[f"{x}_scale"] * w[f"{weight}_scale"], rtol=1e-6)
        assert w[f"{bias}_quantized"].dtype == np.int32
        assert not w[f"{bias}_zero_point"].any()
        error = w[f"{bias}_quantized"] * w[f"{bias}_scale"].astype(np.float64) - f[bias]
        assert np.all(np.abs(error) <= 0.51 * w[f"{bias}_scale"])
    assert w["p_scale"] == w["r2_scale"]
    assert w["p_zero_point"] == w["r2_zero_point"]
    assert w["f_scale"] == w["a_scale"] != w["p_scale"]
    assert w["r1_zero_point"] == 0  # behind the Relu, not before
    assert set(f) & set(w) == set()  # no weight is there twice


def test_activations_have_their_range_on_the_data() -> None:
    model = residual()
    feeds = samples(model)
    w = weights_of(_quantize(model))
    s = scale_of(Range(float(min(f["x"].min() for f in feeds)), float(max(f["x"].max() for f in feeds))))
    assert (w["x_scale"], w["x_zero_point"]) == (s.scale, s.zero)


def test_per_tensor() -> None:
    w = weights_of(_quantize(residual(), per_tensor=True))
    assert w["w1_scale"].shape == ()
    assert w["b1_scale"].shape == ()


def test_clip_stays_with_its_convolution() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "a"),
        helper.make_node("Clip", ["c", "low", "high"], ["r"], "clip"),
        helper.make_node("Conv", ["r", "w"], ["y"], "b"),
    ]
    weights = {"w": 4 * normal(0, 4, 4, 1, 1), "low": np.zeros(()), "high": np.full((), 6.0)}
    out = _quantize(model_of(nodes, {"x": (1, 4, 5, 5)}, ["y"], weights))
    assert _reads(out) == {"a": ["~x", "~w"], "clip": ["c", "low", "high"], "b": ["~r", "~w"]}
    w = weights_of(out)
    assert w["r_scale"] == np.float32(6 / 255)
    assert [n for n in w if n.startswith("w_q")] == ["w_quantized"]  # one for both


def test_a_join_gives_its_scale_to_what_only_it_reads() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "a"),
        helper.make_node("Conv", ["x", "w2"], ["b"], "b"),
        helper.make_node("Concat", ["a", "b"], ["ab"], "join", axis=1),
        helper.make_node("Conv", ["ab", "w3"], ["c"], "c"),
        helper.make_node("Conv", ["b", "w1"], ["d"], "d"),
    ]
    weights = {"w1": normal(0, 4, 4, 1, 1), "w2": 9 * normal(1, 4, 4, 1, 1), "w3": normal(2, 4, 8, 1, 1)}
    out = _quantize(model_of(nodes, {"x": (1, 4, 5, 5)}, ["c", "d"], weights))
    assert _reads(out)["join"] == ["~a", "~b"]
    w = weights_of(out)
    assert w["a_scale"] == w["ab_scale"]
    assert [n.op_type for n in out.graph.node].count("QuantizeLinear") == 4


def test_transformers_keep_all_but_products_with_weights() -> None:
    reads = _reads(_quantize(transformer()))
    assert reads["query"] == ["~n", "~wq"]
    assert reads["key"] == ["~n", "~wk"]
    assert reads["key_bias"] == ["bk", "k0"]
    assert reads["product"] == ["q", "kt"]
    assert reads["mix"] == ["p", "q"]
    assert reads["out"] == ["~o", "~wo"]


def test_skipped_nodes_stay() -> None:
    reads = _reads(_quantize(residual(), skip="conv2"))
    assert reads["conv2"] == ["r1", "w2", "b2"]
    assert reads["add"] == ["c2", "r1"]  # what it adds is not made of integers
    assert reads["fc"] == ["~f", "~w3", "~b3"]


def test_metadata_and_names_stay() -> None:
    model = residual(opset=11)
    model.metadata_props.add(key="author", value="somebody")
    model.doc_string = "a network"
    before = model.SerializeToString()
    out = _quantize(model)
    assert model.SerializeToString() == before
    assert out.opset_import[0].version == 13
    assert [(p.key, p.value) for p in out.metadata_props] == [("author", "somebody")]
    assert out.doc_string == "a network"
    assert list(out.graph.input) == list(model.graph.input)
    assert [o.name for o in out.graph.output] == ["y"]
    names = {n.name for n in out.graph.node}
    assert {n.name for n in model.graph.node} <= names
    assert len(names) == len(out.graph.node)


def test_weights_of_zeros_and_nearly_zero() -> None:
    """A channel whose weights vanish beside its bias still has a bias of int32."""
    model = residual()
    w = next(i for i in model.graph.initializer if i.name == "w2")
    array = np.array(onnx.numpy_helper.to_array(w))
    array[0], array[1] = 0.0, 1e-12
    w.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
    feed = samples(model)[0]
    out = _quantize(model)
    np.testing.assert_allclose(run(out, feed)["y"], run(model, feed)["y"], atol=0.1)
    array[:] = 0.0
    w.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
    assert np.all(weights_of(_quantize(model))["w2_scale"] >= 1.0)


@pytest.mark.parametrize("calibrator", ["minmax", "percentile", "entropy", "mse"])
def test_results_are_near(calibrator: str) -> None:
    model = residual()
    feed = samples(model)[0]
    expected, got = run(model, feed)["y"], run(_quantize(model, calibrator=calibrator), feed)["y"]
    assert np.sqrt(np.square(got - expected).mean()) < 0.05 * expected.std()


@pytest.mark.parametrize("name", ["", "same"])
@pytest.mark.parametrize("correction", [False, True])
def test_nodes_without_a_name_of_their_own(name: str, correction: bool) -> None:
    model = transformer()
    for node in model.graph.node:
        node.name = name
    out = _quantize(model, bias_correction=correction)
    assert [n.op_type for n in out.graph.node].count("DequantizeLinear") == 5
    feed = samples(model)[0]
    expected = run(model, feed)["y"]
    assert np.sqrt(np.square(run(out, feed)["y"] - expected).mean()) < 0.1 * expected.std()


def _gated(*parts: onnx.NodeProto) -> onnx.ModelProto:
    """A convolution, ``parts`` from c1 to g, a convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1] * 4),
        *parts,
        helper.make_node("Conv", ["g", "w2"], ["y"], "conv2", kernel_shape=[1, 1]),
    ]
    weights = {"w1": normal(1, 8, 3, 3, 3), "w2": normal(2, 4, 8, 1, 1), "w3": normal(3, 8, 8, 1, 1)}
    used = {i for n in nodes for i in n.input}
    kept = {k: v for k, v in weights.items() if k in used}
    return model_of(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 4, 8, 8)}, kept)


def test_a_function_is_between_two_pairs() -> None:
    out = _quantize(_gated(helper.make_node("HardSwish", ["c1"], ["g"], "f")))
    assert _reads(out) == {"conv1": ["~x", "~w1"], "f": ["~c1"], "conv2": ["~g", "~w2"]}


def test_a_product_with_a_function_is_one_function() -> None:
    sigmoid = helper.make_node("Sigmoid", ["c1"], ["s"], "f")
    for operands in (["c1", "s"], ["s", "c1"]):
        out = _quantize(_gated(sigmoid, helper.make_node("Mul", operands, ["g"], "mul")))
        reads = _reads(out)
        assert reads["f"] == ["~c1"]
        assert reads["mul"] == ["~c1" if i == "c1" else i for i in operands]


def test_squeeze_and_excitation() -> None:
    parts = [
        helper.make_node("GlobalAveragePool", ["c1"], ["p"], "pool"),
        helper.make_node("Conv", ["p", "w3"], ["e"], "conv3", kernel_shape=[1, 1]),
        helper.make_node("Sigmoid", ["e"], ["s"], "f"),
        helper.make_node("Mul", ["c1", "s"], ["g"], "mul"),
    ]
    reads = _reads(_quantize(_gated(*parts)))
    assert reads["pool"] == ["~c1"]
    assert reads["f"] == ["~e"]
    assert reads["mul"] == ["~c1", "~s"]


def test_a_function_of_an_input_stays_in_float32() -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"], "f"),
        helper.make_node("Conv", ["s", "w1"], ["y"], "conv1", kernel_shape=[3, 3], pads=[1] * 4),
    ]
    out = _quantize(model_of(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 8, 8, 8)}, {"w1": normal(1, 8, 3, 3, 3)}))
    assert _reads(out)["f"] == ["x"]
