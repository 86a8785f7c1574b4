"""The whole way: files, runtimes, sensitivity, the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli import main
from tilewright.core.errors import InputError
from tilewright.inspect.ort import is_installed
from tilewright.quantization.accuracy.compare import Noise, compare_models
from tilewright.quantization.options import QuantizeOptions
from tilewright.quantization.quantize import quantize_model
from tilewright.tests.quantization.models import residual, samples, transformer

ORT = pytest.mark.skipif(not is_installed(), reason="needs onnxruntime")


@ORT
@pytest.mark.parametrize("build", [residual, transformer])
@pytest.mark.parametrize(
    "options",
    [{}, {"calibrator": "entropy", "bias_correction": True}, {"per_tensor": True, "equalize": True, "smooth": 0.5}],
)
def test_both_runtimes_have_the_same_error(build: type, options: dict[str, object]) -> None:
    model = build()
    feeds = samples(model)
    out = tilewright.quantize(model, feeds, **options)  # type: ignore[arg-type]
    ours, theirs = (
        next(d.noise for d in compare_models(model, out, feeds, 1) if d.runtime == r)
        for r in ("tilewright", "onnxruntime")
    )
    assert 0 < ours.relative < 0.08
    assert ours.relative == pytest.approx(theirs.relative, rel=0.1)


@ORT
def test_calibration_by_either_runtime_gives_the_same_model() -> None:
    model = residual()
    one = tilewright.quantize(model, samples(model), runtime="onnxruntime")
    two = tilewright.quantize(model, samples(model), runtime="tilewright")
    for a, b in zip(one.graph.initializer, two.graph.initializer, strict=True):
        np.testing.assert_allclose(
            onnx.numpy_helper.to_array(a).astype(np.float64), onnx.numpy_helper.to_array(b), rtol=1e-5, atol=1
        )


def test_products_run_on_integers() -> None:
    model = residual()
    text = tilewright.compile(tilewright.quantize(model, samples(model), runtime="tilewright")).explain()
    assert "fired integer_conv x2: conv1, conv2" in text
    assert "fired quantized_gemm x1: fc" in text
    assert "fired integer_matmul x1" in text


def test_noise() -> None:
    n = Noise()
    assert (n.relative, n.decibels) == (0.0, float("inf"))
    n.add(np.full(4, 10.0), np.full(4, 11.0))
    assert (n.relative, n.decibels) == pytest.approx((0.1, 20.0))
    m = Noise()
    m.add(np.zeros(2), np.ones(2))
    assert (m.relative, m.decibels) == (float("inf"), float("-inf"))


# -- sensitivity ---------------------------------------------------------------------------------------------------
def test_the_layer_with_the_outlier_is_the_worst() -> None:
    model = transformer()
    o = QuantizeOptions(runtime="tilewright", per_tensor=True)
    rows = quantize_model(model, samples(model), o, sensitivity=True).sensitivity
    assert [r.layer.name for r in rows] == ["query", "key", "out"]
    assert all(10 < r.noise.decibels < 80 for r in rows)
    worst = min(rows, key=lambda r: r.noise.decibels)
    second = sorted(r.noise.decibels for r in rows)[1]
    done = quantize_model(model, samples(model), QuantizeOptions(**_fields(o), skip_worse_than=second - 1e-6))
    assert done.skipped == (worst.layer.name,)
    assert done.layers == tuple(r.layer.name for r in rows if r is not worst)
    with pytest.raises(InputError, match=r"skip_worse_than: expected at most the best layer's .* got 200: nothing"):
        quantize_model(model, samples(model), QuantizeOptions(**_fields(o), skip_worse_than=200))


def _fields(o: QuantizeOptions) -> dict[str, object]:
    return {"runtime": o.runtime, "per_tensor": o.per_tensor}


# -- the command ---------------------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, model in (("cnn", residual()), ("transformer", transformer())):
        onnx.save(model, str(tmp_path / f"{name}.onnx"))
        np.savez(tmp_path / f"{name}.npz", x=np.concatenate([f["x"] for f in samples(model)]))
    return tmp_path


def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", str(folder / "cnn.onnx"), "--calibration", str(folder / "cnn.npz"), "--threads", "1"]
    out = folder / "cnn.int8.onnx"
    assert main([*words, "-o", str(out), "--sensitivity", "--skip", "fc", "--bias-correction", "--equalize"]) == 0
    text = capsys.readouterr().out
    assert "SQNR dB" in text
    assert "2 layers on integers, 4 samples" in text
    assert "0 pairs of convolutions equalized" in text
    assert "times smaller" in text
    onnx.checker.check_model(onnx.load(str(out)))
    assert main(["run", str(out)]) == 0
    assert main([*words, "-o", str(out)]) == 0  # ours may be replaced
    assert main(["quantize", str(out), "-o", str(folder / "again.onnx"), "--weight-only", "int8"]) == 2
    assert "the model is quantized already" in capsys.readouterr().err


def test_command_for_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", str(folder / "transformer.onnx"), "-o", str(folder / "y.onnx"), "--weight-only", "int4"]
    assert main(words) == 0
    assert "3 layers weights of int4, 0 samples" in (text := capsys.readouterr().out)
    assert "not compared with the original: no calibration data" in text
    assert main([*words, "--gptq", "--calibration", str(folder / "transformer.npz"), "--block", "8"]) == 0
    assert "relative RMS" in capsys.readouterr().out
    assert main([*words, "--gptq"]) == 2
    assert "calibration: expected samples of the model's inputs, got none" in capsys.readouterr().err
    assert main([*words, "--sensitivity", "--calibration", str(folder / "transformer.npz")]) == 2
    assert "sensitivity: expected without weight_only" in capsys.readouterr().err


def test_a_model_of_somebody_elses_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "cnn.onnx"
    before = place.read_bytes()
    words = ["quantize", str(place), "--calibration", str(folder / "cnn.npz"), "-o", str(place)]
    assert main(words) == 2
    assert "expected a model that tilewright quantized or no file" in capsys.readouterr().err
    assert place.read_bytes() == before
