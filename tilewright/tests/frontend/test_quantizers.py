"""What onnxruntime's quantizers write from float models, in each of their formats, compiled and compared with it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.machine.vectors import share_of_paired_bytes
from tilewright.tests.frontend.against_ort import results
from tilewright.tests.frontend.float_models import MODELS, Feeds, feeds

quantization = pytest.importorskip("onnxruntime.quantization")
preparation = pytest.importorskip("onnxruntime.quantization.shape_inference")

pytestmark = pytest.mark.filterwarnings("ignore")  # the quantizers' own

TYPES, FORMAT = quantization.QuantType, quantization.QuantFormat
STATIC: dict[str, dict[str, Any]] = {
    "qoperator_u8s8": {"quant_format": FORMAT.QOperator, "activation_type": TYPES.QUInt8, "weight_type": TYPES.QInt8},
    "qoperator_s8s8": {"quant_format": FORMAT.QOperator, "activation_type": TYPES.QInt8, "weight_type": TYPES.QInt8,
                       "per_channel": True},
    "qdq_u8s8": {"quant_format": FORMAT.QDQ, "activation_type": TYPES.QUInt8, "weight_type": TYPES.QInt8,
                 "per_channel": True},
    "qdq_s16": {"quant_format": FORMAT.QDQ, "activation_type": TYPES.QInt16, "weight_type": TYPES.QInt8,
                "extra_options": {"UseQDQContribOps": True}},
    "qdq_s4": {"quant_format": FORMAT.QDQ, "activation_type": TYPES.QUInt8, "weight_type": TYPES.QInt4},
}  # fmt: skip
DYNAMIC: dict[str, dict[str, Any]] = {
    "dynamic_u8": {"weight_type": TYPES.QUInt8},
    "dynamic_s8": {"weight_type": TYPES.QInt8, "per_channel": True},
}
# operators that must be in what is written, so that the test means something
WRITTEN = {
    ("convnet", "qoperator_u8s8"): {"QLinearConv", "QGemm", "QLinearAdd", "QLinearGlobalAveragePool", "QLinearSoftmax"},
    ("branches", "qoperator_u8s8"): {"QLinearAveragePool", "QLinearConcat", "QLinearLeakyRelu", "QLinearMul",
                                     "QLinearSigmoid"},
    ("tokens", "qoperator_u8s8"): {"QLinearMatMul", "QLinearAdd", "QLinearSoftmax"},
    ("recurrent", "dynamic_s8"): {"DynamicQuantizeLSTM", "MatMulInteger"},
    ("transformer", "dynamic_s8"): {"QAttention", "QEmbedLayerNormalization", "SkipLayerNormalization", "BiasGelu"},
}  # fmt: skip


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    def __init__(self, given: Feeds) -> None:
        self._left = iter(given)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


@functools.cache
def _prepared(name: str, folder: Path) -> Path:
    source, prepared = folder / f"{name}.onnx", folder / f"{name}_prepared.onnx"
    onnx.save(MODELS[name][0](), source)
    preparation.quant_pre_process(source, prepared, skip_symbolic_shape=True)
    return prepared


def quantize(name: str, how: str, folder: Path) -> onnx.ModelProto:
    """A model of ``float_models`` as the quantizer writes it."""
    result = folder / f"{name}_{how}.onnx"
    if how in STATIC:
        quantization.quantize_static(_prepared(name, folder), result, _Reader(feeds(name)), **STATIC[how])
    else:
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantization.quantize_dynamic(_prepared(name, folder), result, **DYNAMIC[how], extra_options=options)
    model = onnx.load(result)
    assert WRITTEN.get((name, how), set()) <= {n.op_type for n in model.graph.node}
    return model


CASES = [(name, how) for name in MODELS for how in (*STATIC, *DYNAMIC)
         if not (name == "transformer" and how.startswith("qoperator"))]  # fmt: skip


SATURATES = share_of_paired_bytes(detect_host()) is not None
"""True on CPUs without VNNI, where onnxruntime's sums of products of unsigned and signed bytes saturate."""


@pytest.mark.parametrize(("name", "how"), CASES)
def test_quantized_models(name: str, how: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Equal, but for a few elements where a value lay next to halfway between two integers."""
    folder = tmp_path_factory.getbasetemp() / "quantized"
    folder.mkdir(exist_ok=True)
    model = quantize(name, how, folder)
    for feed in feeds(name, 1):
        found, expected = results(model, feed)
        if SATURATES and how.startswith(("dynamic", "qoperator_u8s8")):
            by_definition = interpret(from_onnx(model), feed)
            expected = [np.asarray(by_definition[o.name]) for o in model.graph.output]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            error = np.abs(ours.astype(np.float64) - theirs) / theirs.std()
            assert np.mean(error > 1e-5) <= 0.02
            assert np.sqrt(np.mean(error**2)) <= 0.01


def test_matmul_in_four_bits(tmp_path: Path) -> None:
    writer = pytest.importorskip("onnxruntime.quantization.matmul_bnb4_quantizer")
    for kind in (writer.MatMulBnb4Quantizer.FP4, writer.MatMulBnb4Quantizer.NF4):
        quantizer = writer.MatMulBnb4Quantizer(MODELS["tokens"][0](), kind, 16)
        quantizer.process()
        model = quantizer.model.model
        assert sum(n.op_type == "MatMulBnb4" for n in model.graph.node) == 4
        (ours,), (theirs,) = results(model, feeds("tokens", 1)[0])
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
