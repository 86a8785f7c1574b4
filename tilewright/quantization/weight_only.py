"""Weights of products in blocks of 8 or 4 bits, dequantized where they are used; all arithmetic stays float32.

Along the sum, ``block`` elements share a scale: w[k, n] ~ q[k, n] * scale[k // block, n] for a MatMul.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantization.gptq import gptq_weight, inverse_factor
from tilewright.quantization.integers import IntegerWeight, block_scale, rounded_weight
from tilewright.quantization.layers import Layer, find_layers
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.operators import MATRIX_PRODUCTS
from tilewright.quantization.options import QuantizeOptions


def weight_layers(editor: OnnxEditor, o: QuantizeOptions) -> tuple[Layer, ...]:
    """What is quantized: the products with constant weights, without those of ``skip``."""
    return find_layers(editor, MATRIX_PRODUCTS, o.skip)


def quantize_weights(
    editor: OnnxEditor, layers: tuple[Layer, ...], o: QuantizeOptions, hessians: Mapping[str, np.ndarray]
) -> None:
    """Write the weights of ``layers`` into the model in blocks. ``hessians``: of the operands, by name, for GPTQ."""
    kind = o.weight_only or "int8"
    dequantized: dict[tuple[str, int], str] = {}
    factor_of, factor = "", np.zeros(0, np.float32)
    for x in layers:
        key = (x.weight, x.in_axis)
        node = editor.producers[x.y]
        if key not in dequantized:
            w, block = editor.array(x.weight), min(o.block, editor.constants[x.weight].dims[x.in_axis])
            if o.gptq:
                if factor_of != x.x:  # products of one tensor follow each other
                    factor_of, factor = x.x, inverse_factor(x.x, hessians[x.x])
                stored = _by_gptq(w, x.in_axis, factor, block, kind)
            else:
                stored = rounded_weight(w, block_scale(w, x.in_axis, block, kind), x.in_axis, block, kind)
            dequantized[key] = _insert(editor, node, x, stored, kind)
        node.input[1] = dequantized[key]
    editor.save()


def _by_gptq(w: np.ndarray, axis: int, factor: np.ndarray, block: int, kind: str) -> IntegerWeight:
    if axis == 0:
        return gptq_weight(w, factor, block, kind)
    turned = gptq_weight(w.T, factor, block, kind)
    return IntegerWeight(turned.q.T, turned.scale.T, axis, block)


def _insert(editor: OnnxEditor, reader: onnx.NodeProto, x: Layer, w: IntegerWeight, kind: str) -> str:
    operands = (
        editor.add_tensor(f"{x.weight}_quantized", _tensor(w.q, kind)),
        editor.add_constant(f"{x.weight}_scale", w.scale),
        editor.add_tensor(f"{x.weight}_zero_point", _tensor(np.zeros(w.scale.shape, np.int8), kind)),
    )
    y = editor.fresh(f"{x.weight}_dequantized")
    editor.insert_before(reader, editor.node("DequantizeLinear", operands, y, axis=x.in_axis, block_size=w.block))
    return y


def _tensor(q: np.ndarray, kind: str) -> onnx.TensorProto:
    """An initializer of int8, or of int4 with two elements a byte, the first in the low bits."""
    if kind == "int8":
        return numpy_helper.from_array(np.ascontiguousarray(q))
    flat = np.append(q.reshape(-1), np.zeros(q.size % 2, np.int8)).view(np.uint8) & 15
    packed = (flat[0::2] | flat[1::2] << 4).astype(np.uint8)
    return helper.make_tensor("", onnx.TensorProto.INT4, q.shape, packed.tobytes(), raw=True)
