"""Bias correction: what rounding a weight does to the mean of each output channel is taken off the bias.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, section 4.2.
For weights off by ``e``, output channel ``o`` is off by ``sum_i mean(x_i) e_oi`` on average. The means are those of
float32 activations on the calibration data; a border that a convolution pads with zeros counts as if it had them too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.quantization.calibration.statistics import Channels
from tilewright.quantization.integers import IntegerWeight
from tilewright.quantization.layers import Layer
from tilewright.quantization.onnx_editor import OnnxEditor


def expected_error(layer: Layer, weight: np.ndarray, rounded: IntegerWeight, mean: np.ndarray) -> np.ndarray:
    """The mean error of each output channel, float64 [outputs], for channels of ``x`` with these means [inputs]."""
    error = layer.by_input(rounded.dequantized.astype(np.float64) - weight)
    return np.asarray(np.einsum("oik,i->o", error, mean))


def correct_biases(
    editor: OnnxEditor, layers: tuple[Layer, ...], weights: Mapping[str, IntegerWeight], x: Mapping[str, Channels]
) -> None:
    """Take the expected errors off the biases. A layer without a bias gets one; for a product it is in an Add behind
    it, where one with a constant may stand already. Values keep their names."""
    for layer in layers:
        error = expected_error(layer, editor.array(layer.weight), weights[layer.y], x[layer.x].mean)
        if layer.op == "MatMul":
            _correct_sum(editor, layer, error)
        elif layer.is_plain and (not layer.bias or editor.is_weight(layer.bias)):
            node = editor.producers[layer.y]
            bias = editor.array(layer.bias) if layer.bias else np.zeros(len(error), np.float32)
            del node.input[2:]
            node.input.append(
                editor.add_constant(f"{layer.bias or layer.weight}_corrected", np.asarray(bias - error, np.float32))
            )
    editor.save()


def _correct_sum(editor: OnnxEditor, layer: Layer, error: np.ndarray) -> None:
    reader = editor.only_reader(layer.y)
    if reader is not None and reader.op_type == "Add":
        k = 1 if reader.input[0] == layer.y else 0
        if editor.is_weight(reader.input[k]) and len(editor.constants[reader.input[k]].dims) <= 1:
            bias = np.asarray(editor.array(reader.input[k]) - error, np.float32)
            reader.input[k] = editor.add_constant(f"{reader.input[k]}_corrected", bias)
            return
    bias_name = editor.add_constant(f"{layer.weight}_correction", np.asarray(-error, np.float32))
    product = editor.producers[layer.y]
    product.output[0] = editor.fresh(f"{layer.y}_product")
    editor.insert_after(layer.y, editor.node("Add", (product.output[0], bias_name), layer.y))
