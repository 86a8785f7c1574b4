"""Weights in blocks: within half a step, the same in every runtime, better with GPTQ."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright
from tilewright.core.errors import ModelError
from tilewright.inspect.ort import is_installed, open_session
from tilewright.quantization.gptq import gptq_weight, inverse_factor
from tilewright.quantization.integers import block_scale, rounded_weight
from tilewright.quantization.options import WeightOnly
from tilewright.tests.quantization.models import normal, residual, run, samples, transformer, weights_of

STEPS = {"int8": 127, "int4": 7}


def _stored(model: onnx.ModelProto, name: str) -> np.ndarray:
    tensor = next(i for i in model.graph.initializer if i.name == name)
    return numpy_helper.to_array(tensor).astype(np.float64)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("block", [4, 16, 5, 32])
def test_within_half_a_step(kind: WeightOnly, block: int) -> None:
    model = transformer()
    out = tilewright.quantize(model, weight_only=kind, block=block)
    before, block = weights_of(model), min(block, 16)
    for name in ("wq", "wk", "wo"):
        scale = _stored(out, f"{name}_scale")
        assert scale.shape == (-(-16 // block), before[name].shape[1])
        spread = np.repeat(scale, block, axis=0)[:16]
        q = _stored(out, f"{name}_quantized")
        assert np.abs(q).max() <= STEPS[kind]
        assert np.all(np.abs(q * spread - before[name]) <= 0.5001 * spread)
        node = next(n for n in out.graph.node if n.input[0] == f"{name}_quantized")
        assert {a.name: a.i for a in node.attribute} == {"axis": 0, "block_size": block}
    assert out.opset_import[0].version == 21


def test_an_int4_tensor_holds_two_elements_a_byte() -> None:
    out = tilewright.quantize(transformer(), weight_only="int4")
    tensor = next(i for i in out.graph.initializer if i.name == "wo_quantized")
    assert tensor.data_type == onnx.TensorProto.INT4
    assert len(tensor.raw_data) == 16 * 12 // 2
    assert numpy_helper.to_array(tensor).dtype == ml_dtypes.int4


def test_a_turned_weight_has_blocks_along_its_sum() -> None:
    out = tilewright.quantize(residual(), weight_only="int8", block=4)
    w = weights_of(out)
    assert w["w3_scale"].shape == (5, 2)
    assert [n.op_type for n in out.graph.node if n.op_type == "QuantizeLinear"] == []


@pytest.mark.skipif(not is_installed(), reason="needs onnxruntime")
@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("block", [8, 16])
def test_both_runtimes_agree(kind: WeightOnly, block: int) -> None:
    model = transformer()
    out = tilewright.quantize(model, weight_only=kind, block=block)
    feed = samples(model)[0]
    session = open_session(out, 1, optimize=False)  # optimized, it rounds the other operand too
    assert session is not None
    expected = session.run(["y"], feed)[0]
    np.testing.assert_allclose(run(out, feed)["y"], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("block", [16, 24, 200])
def test_gptq_has_the_smaller_error_of_the_product(block: int) -> None:
    mixing = normal(0, 160, 160) / 8
    x = normal(1, 600, 160) @ (mixing + np.eye(160, dtype=np.float32))
    w = normal(2, 160, 24)
    nearest = rounded_weight(w, block_scale(w, 0, block, "int4"), 0, block, "int4")
    found = gptq_weight(w, inverse_factor("x", 2 * x.T @ x), block, "int4")
    assert found.q.shape == w.shape
    assert found.scale.shape == nearest.scale.shape
    assert np.abs(found.q).max() <= 7

    def error(v: np.ndarray) -> float:
        return float(np.square(x @ (v - w)).mean())

    assert error(found.dequantized) < 0.7 * error(nearest.dequantized)


def test_gptq_of_independent_inputs_is_rounding() -> None:
    """Nothing makes up for an error where no other input is like this one."""
    w = normal(0, 64, 8)
    found = gptq_weight(w, inverse_factor("x", np.eye(64)), 32, "int8")
    expected = rounded_weight(w, block_scale(w, 0, 32, "int8"), 0, 32, "int8")
    np.testing.assert_array_equal(found.q, expected.q)


def test_gptq_of_a_model() -> None:
    model = transformer()
    out = tilewright.quantize(model, samples(model), weight_only="int4", gptq=True, runtime="tilewright")
    feed = samples(model)[0]
    expected = run(model, feed)["y"]
    assert np.sqrt(np.square(run(out, feed)["y"] - expected).mean()) < 0.3 * expected.std()


def test_inverse_factor() -> None:
    x = normal(0, 50, 9)
    h = 2 * (x.T @ x).astype(np.float64)
    h[4], h[:, 4] = 0, 0  # an input that is always 0
    u = inverse_factor("x", h)
    assert np.all(np.tril(u, -1) == 0)
    h[4, 4] = 1
    damped = h + 0.01 * np.diag(h).mean() * np.eye(9)
    np.testing.assert_allclose(u.T @ u, np.linalg.inv(damped), atol=1e-6)
    with pytest.raises(ModelError, match="x: expected inputs with a positive definite Hessian"):
        inverse_factor("x", -np.eye(3))
