"""What is refused, in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.quantization.calibration.data import read_samples
from tilewright.quantization.options import QuantizeKeywords, QuantizeOptions
from tilewright.tests.quantization.models import model_of, normal, residual, samples, transformer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibrator": "minmaxx"}, "calibrator: expected one of minmax, percentile, entropy, mse, got 'minmaxx'"),
        ({"percentile": 101}, "percentile: expected a finite number from 50 to 100, got 101"),
        ({"smooth": 1.5}, "smooth: expected a finite number from 0 to 1, got 1.5"),
        ({"block": 1}, "block: expected a whole number of at least 2, got 1"),
        ({"per_tensor": 1}, "per_tensor: expected True or False, got 1"),
        ({"weight_only": "int2"}, "weight_only: expected one of int8, int4, got 'int2'"),
        ({"gptq": True}, "gptq: expected with weight_only, got it without"),
        ({"weight_only": "int8", "equalize": True}, "weight_only: expected without equalize, which are about"),
        ({"skip": [3]}, "skip: expected names, got 3"),
        ({"runtime": "tvm"}, "runtime: expected one of onnxruntime, tilewright, got 'tvm'"),
        ({"threads": 0}, "threads: expected a whole number of at least 1, got 0"),
        ({"skip_worse_than": -1}, "skip_worse_than: expected a finite number of at least 0, got -1"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        QuantizeOptions(**options)


def test_unknown_options_and_keywords_of_type_checkers() -> None:
    model = residual()
    with pytest.raises(InputError, match=r"quantize: unknown option calibrater; .*did you mean 'calibrator'"):
        tilewright.quantize(model, samples(model), calibrater="mse")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="quantize: expected QuantizeOptions, got dict"):
        tilewright.quantize(model, samples(model), {"calibrator": "mse"})  # type: ignore[arg-type]
    assert list(QuantizeKeywords.__annotations__) == list(QuantizeOptions.__dataclass_fields__)


# -- calibration data ----------------------------------------------------------------------------------------------
def _x(*shape: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {"x": np.zeros(shape, dtype)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "calibration: expected at least one sample, got none"),
        ({"y": np.zeros(3)}, r"calibration\[0\]: expected arrays \['x'\], got \['y'\]"),
        ([_x(1, 4, 8, 8), {}], r"calibration\[1\]: expected arrays \['x'\], got \[\]"),
        (_x(1, 4, 8, 8, dtype=np.float64), r"expected float32\[1, 4, 8, 8\] or several of them .*got float64"),
        (_x(1, 4, 8, 7), r"expected float32\[1, 4, 8, 8\] or several of them along axis 0, got float32\[1, 4, 8, 7\]"),
        (_x(4, 8, 8), r"got float32\[4, 8, 8\]"),
        (_x(0, 4, 8, 8), r"got float32\[0, 4, 8, 8\]"),
        (7, "calibration: expected .npz files or dicts of arrays, got 7"),
        ([7], r"calibration\[0\]: expected an .npz file or a dict of arrays, got 7"),
        (None, "calibration: expected samples of the model's inputs, got none"),
    ],
)
def test_calibration(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.quantize(residual(), given)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("hello", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.npz: expected an \.npz file of arrays"):
        tilewright.quantize(residual(), tmp_path / "x.npz")
    with pytest.raises(FileNotFoundError):
        tilewright.quantize(residual(), str(tmp_path / "y.npz"))


def test_samples_are_cut_along_axis_0(tmp_path: Path) -> None:
    x = normal(0, 6, 4, 8, 8)
    np.savez(tmp_path / "x.npz", x=x)
    cut = read_samples(residual(), [tmp_path / "x.npz", {"x": x[:1]}])
    assert len(cut) == 7
    np.testing.assert_array_equal(cut[5]["x"], x[5:])
    assert len(read_samples(transformer(), {"x": normal(0, 3, 6, 16)})) == 3
    wide = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3), "z": (4, 3)}, ["y"], {})
    assert [f["z"].shape for f in read_samples(wide, {"x": normal(0, 6, 3), "z": normal(0, 12, 3)})] == [(4, 3)] * 3
    with pytest.raises(InputError, match=r"expected the same number of samples in each array, got .'x': 3, 'z': 1"):
        read_samples(wide, {"x": normal(0, 6, 3), "z": normal(0, 4, 3)})
    with pytest.raises(InputError, match=r"expected float32\[2, 3\] or several"):
        read_samples(wide, {"x": normal(0, 5, 3), "z": normal(0, 4, 3)})


# -- models --------------------------------------------------------------------------------------------------------
def test_quantized_already() -> None:
    model = residual()
    once = tilewright.quantize(model, samples(model), runtime="tilewright")
    with pytest.raises(ModelError, match="expected a model of float32, got QuantizeLinear: the model is quantized"):
        tilewright.quantize(once, samples(model))


def test_nothing_to_quantize() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {})
    with pytest.raises(ModelError, match="expected a Conv, Gemm or MatMul with a constant weight of float32"):
        tilewright.quantize(model, samples(model))
    with pytest.raises(ModelError, match="expected a Gemm or MatMul with a constant weight of float32"):
        tilewright.quantize(model, weight_only="int8")


def test_no_model() -> None:
    with pytest.raises(ModelError, match="model is not an ONNX model"):
        tilewright.quantize(b"hello", [])


def test_unknown_nodes_to_skip() -> None:
    model = residual()
    with pytest.raises(InputError, match="skip: the model has no node 'conv3'; did you mean 'conv2'"):
        tilewright.quantize(model, samples(model), skip=["conv3"])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(bad: float) -> None:
    model = residual()
    w = next(i for i in model.graph.initializer if i.name == "w2")
    array = np.array(numpy_helper.to_array(w))
    array[3, 1] = bad
    w.CopyFrom(numpy_helper.from_array(array, "w2"))
    with pytest.raises(ModelError, match="constant 'w2': expected finite numbers, got NaN or infinity"):
        tilewright.quantize(model, samples(model), runtime="tilewright")


def test_activations_that_are_not_finite() -> None:
    model = residual()
    feed = samples(model)[0]
    feed["x"][0, 0, 0, 0] = np.nan
    with pytest.raises(ModelError, match=r"activation '(x|r1)': expected finite numbers on the calibration data"):
        tilewright.quantize(model, feed, runtime="tilewright")


def test_an_opset_that_cannot_be_converted() -> None:
    model = residual(opset=11)
    model.graph.node[0].ClearField("name")
    model.graph.node.insert(
        0, onnx.helper.make_node("Upsample", ["x", "twice"], ["unused"], mode="nearest")
    )  # gone since opset 10
    with pytest.raises((ModelError, tilewright.UnsupportedError)):
        tilewright.quantize(model, samples(model))
