"""Batch normalization folded into the convolution before it, as it is at inference: one product and one sum a channel.

Conv(x, w, b) then BatchNormalization(scale, shift, mean, variance) --> Conv(x, w f, (b - mean) f + shift) with
f = scale / sqrt(variance + epsilon).
"""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.quantization.layers import find_layers
from tilewright.quantization.onnx_editor import OnnxEditor, attribute


def fold_batch_norm(model: onnx.ModelProto) -> int:
    """Fold each BatchNormalization that alone reads a convolution's result and has constant operands; how many."""
    editor, folded = OnnxEditor(model), 0
    for layer in find_layers(editor, ("Conv",)):
        norm = editor.only_reader(layer.y)
        if norm is None or norm.op_type != "BatchNormalization" or not _is_foldable(editor, norm):
            continue
        if layer.bias and not editor.is_weight(layer.bias):
            continue
        scale, shift, mean, variance = (editor.array(n).astype(np.float64) for n in norm.input[1:])
        factor = scale / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
        bias = editor.array(layer.bias).astype(np.float64) if layer.bias else np.zeros_like(mean)
        conv = editor.producers[layer.y]
        weight = layer.scale_outputs(editor.array(layer.weight), factor)
        names = (
            editor.add_constant(f"{layer.weight}_folded", weight),
            editor.add_constant(f"{layer.bias or layer.y}_folded", ((bias - mean) * factor + shift).astype(np.float32)),
        )
        del conv.input[1:]
        conv.input.extend(names)
        conv.output[0] = norm.output[0]
        editor.remove(norm)
        folded += 1
    if folded:
        editor.save()
    return folded


def _is_foldable(editor: OnnxEditor, norm: onnx.NodeProto) -> bool:
    constant = all(editor.is_weight(n) for n in norm.input[1:])
    return constant and not attribute(norm, "training_mode", 0) and sum(map(bool, norm.output)) == 1
