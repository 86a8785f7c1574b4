"""Rewrites of the float32 model keep what it computes, and make it easier to quantize."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.quantization.bias_correction import correct_biases, expected_error
from tilewright.quantization.calibration.statistics import collect_channels, collect_hessians
from tilewright.quantization.integers import rounded_weight, weight_scale
from tilewright.quantization.layers import find_layers
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.opset import with_opset
from tilewright.quantization.quantize import QuantizeOptions, quantize_model
from tilewright.quantization.rewrites.equalize import equalize
from tilewright.quantization.rewrites.fold_batch_norm import fold_batch_norm
from tilewright.quantization.rewrites.smooth_quant import smooth_quant
from tilewright.tests.quantization.models import model_of, normal, residual, run, samples, transformer, weights_of


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def _same(model: onnx.ModelProto, changed: onnx.ModelProto) -> None:
    onnx.checker.check_model(changed)
    for feed in samples(model, 2):
        expected, got = run(model, feed), run(changed, feed)
        for name, y in expected.items():
            np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-5 * float(np.abs(y).max()))


def _normalized(bias: bool, training: int = 0) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], "conv", group=2),
        helper.make_node("BatchNormalization", ["c", "s", "h", "m", "v"], ["n"], "norm", epsilon=0.01),
        helper.make_node("Relu", ["n"], ["y"], "relu"),
    ]
    weights = {
        "w": normal(0, 6, 2, 3, 3), "b": normal(1, 6), "s": normal(2, 6), "h": normal(3, 6), "m": normal(4, 6),
        "v": np.square(normal(5, 6)),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 4, 6, 6)}, ["y"], weights)


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm_is_folded(bias: bool) -> None:
    model = _normalized(bias)
    changed = _copy(model)
    assert fold_batch_norm(changed) == 1
    assert [n.op_type for n in changed.graph.node] == ["Conv", "Relu"]
    assert len(changed.graph.initializer) == 2
    _same(model, changed)


def test_batch_norm_that_something_else_reads_past_is_not() -> None:
    model = _normalized(True)
    model.graph.output.append(onnx.ValueInfoProto(name="c"))
    assert fold_batch_norm(model) == 0


def _chain() -> onnx.ModelProto:
    """Conv, Relu, depthwise Conv, Conv; a tail that is read twice."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "one"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "two", group=6),
        helper.make_node("Conv", ["c2", "w3"], ["c3"], "three"),
        helper.make_node("Conv", ["c3", "w4"], ["c4"], "four"),
        helper.make_node("Add", ["c3", "c4"], ["y"]),
    ]
    spread = 10.0 ** np.linspace(-2, 1, 6, dtype=np.float32)
    weights = {
        "w1": normal(0, 6, 3, 1, 1) * spread.reshape(-1, 1, 1, 1), "b1": normal(1, 6), "w2": normal(2, 6, 1, 3, 3),
        "b2": normal(3, 6), "w3": normal(4, 5, 6, 1, 1), "w4": normal(5, 5, 5, 1, 1),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 3, 7, 7)}, ["y"], weights)


def test_equalized_channels_have_equal_ranges() -> None:
    model = _chain()
    changed = _copy(model)
    assert equalize(changed) == 2
    _same(model, changed)
    w = weights_of(changed)
    one = np.abs(w["w1_equalized"]).max((1, 2, 3))
    two = np.abs(w["w2_equalized"]).max((1, 2, 3))
    three = np.abs(w["w3_equalized"]).max((0, 2, 3))
    np.testing.assert_allclose(one, two, rtol=0.02)
    np.testing.assert_allclose(two, three, rtol=0.02)
    assert "w4" in w
    before = weights_of(model)["w1"]
    assert np.ptp(np.log(one)) < 0.5 * np.ptp(np.log(np.abs(before).max((1, 2, 3))))


@pytest.mark.parametrize("opset", [17, 13])
def test_smoothing_keeps_results_and_evens_channels(opset: int) -> None:
    model = transformer() if opset == 17 else _decomposed()
    changed = _copy(model)
    largest = collect_channels([_values(model, "n")], {"n": -1})["n"].largest
    assert smooth_quant(changed, 0.5, {"n": largest}) == 1
    _same(model, changed)
    after = collect_channels([_values(changed, "n")], {"n": -1})["n"].largest
    assert after.max() / after.min() < 0.3 * largest.max() / largest.min()
    assert [n.op_type for n in changed.graph.node] == [n.op_type for n in model.graph.node]


def _decomposed() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["d"]),
        helper.make_node("Mul", ["d", "scale"], ["m"]),
        helper.make_node("Add", ["m", "shift"], ["n"]),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    scale = 10.0 ** np.linspace(-1, 1, 16)
    return model_of(
        nodes, {"x": (5, 16)}, ["y"], {"scale": scale, "shift": normal(0, 16) / 9, "w": normal(1, 16, 4)}, 13
    )


def test_a_norm_that_others_read_is_not_smoothed() -> None:
    model = transformer()
    model.graph.output.append(helper.make_tensor_value_info("n", onnx.TensorProto.FLOAT, None))
    assert smooth_quant(model, 0.5, {}) == 0


def _values(model: onnx.ModelProto, name: str) -> dict[str, np.ndarray]:
    watched = _copy(model)
    watched.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return run(watched, samples(model)[0])


# -- bias correction -----------------------------------------------------------------------------------------------
def test_expected_error_is_the_mean_of_what_is_off() -> None:
    """Exact for a convolution without padding of windows of 1."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", group=2)]
    model = model_of(nodes, {"x": (1, 6, 5, 5)}, ["y"], {"w": normal(0, 4, 3, 1, 1)})
    (layer,) = find_layers(OnnxEditor(model), ("Conv",))
    w = weights_of(model)["w"]
    rounded = rounded_weight(w, weight_scale(w, None, "int4"), kind="int4")
    feed = {"x": normal(1, 1, 6, 5, 5) + 2}
    exact = run(model, feed)["y"].mean((0, 2, 3))
    next(iter(model.graph.initializer)).CopyFrom(onnx.numpy_helper.from_array(rounded.dequantized, "w"))
    off = run(model, feed)["y"].mean((0, 2, 3)) - exact
    found = expected_error(layer, w, rounded, collect_channels([feed], {"x": 1})["x"].mean)
    np.testing.assert_allclose(found, off, rtol=1e-3, atol=1e-5)


def test_correction_is_where_the_bias_is_or_behind_a_product() -> None:
    model = transformer()
    editor = OnnxEditor(model)
    layers = find_layers(editor, ("MatMul",))
    weights = {x.y: rounded_weight(editor.array(x.weight), np.float32(0.2)) for x in layers}
    means = collect_channels([{**_values(model, "n"), **_values(model, "o")}], {"n": -1, "o": -1})
    correct_biases(editor, layers, weights, means)
    onnx.checker.check_model(model)
    reads = {n.name: list(n.input) for n in model.graph.node}
    assert reads["key_bias"] == ["bk_corrected", "k0"]
    assert reads["q"] == ["q_product", "wq_correction"]
    assert reads["y"] == ["y_product", "wo_correction"]
    assert [n.output[0] for n in model.graph.node if n.name == "query"] == ["q_product"]
    assert reads["mix"] == ["p", "q"]


def _perceptron() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "one"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "two"),
    ]
    return model_of(nodes, {"x": (20, 32)}, ["y"], {"w1": normal(0, 32, 24) / 5, "w2": normal(1, 24, 8) / 5})


@pytest.mark.parametrize("build", [residual, _perceptron])
def test_bias_correction_makes_the_mean_error_smaller(build: type) -> None:
    """Of the model's result on the samples, with weights that lie between two integers."""
    model = build()
    feeds = [{"x": f["x"] + 1} for f in samples(model, 6)]
    for w in model.graph.initializer:
        if w.name.startswith("w"):
            array = np.array(onnx.numpy_helper.to_array(w))
            step = np.abs(array).max() / 127
            array[:] = (np.clip(np.rint(array / step), -126, 126) + 0.4) * step  # all round the same way
            array.flat[0] = 127 * step
            w.CopyFrom(onnx.numpy_helper.from_array(array, w.name))
    expected = [run(model, f)["y"] for f in feeds]

    def mean_error(corrected: bool) -> float:
        o = QuantizeOptions(bias_correction=corrected, per_tensor=True, runtime="tilewright")
        out = quantize_model(model, feeds, o).model
        onnx.checker.check_model(out)
        off = [run(out, f)["y"] - e for f, e in zip(feeds, expected, strict=True)]
        return float(np.abs(np.mean([d.reshape(-1, d.shape[-1]).mean(0) for d in off], axis=0)).mean())

    assert mean_error(True) < 0.5 * mean_error(False)


# -- statistics and opsets -----------------------------------------------------------------------------------------
def test_statistics_by_channel() -> None:
    parts = [normal(k, 2, 3, 4, 4) for k in range(3)]
    found = collect_channels([{"x": p} for p in parts], {"x": 1})["x"]
    x = np.concatenate(parts)
    np.testing.assert_allclose(found.mean, x.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_array_equal(found.largest, np.abs(x).max((0, 2, 3)))
    rows = [p.reshape(-1, 4) for p in parts]
    hessian = collect_hessians([{"x": p} for p in parts], ["x"])["x"]
    np.testing.assert_allclose(hessian, 2 * sum(r.T @ r for r in rows), rtol=1e-4)


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_a_softmax_of_old_opsets_stays_one_node(axis: int) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], "softmax", axis=axis)]
    model = model_of(nodes, {"x": (2, 3, 4)}, ["y"], {}, opset=11)
    out = with_opset(_copy(model), 13, {"x": 3})
    assert ([n.op_type for n in out.graph.node] == ["Softmax"]) == (axis != 1)
    _same(model, out)
