"""A plan carried out: QuantizeLinear and DequantizeLinear around tensors, integers in the place of weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from tilewright.quantization.calibration.calibrators import Scale
from tilewright.quantization.integers import IntegerWeight, rounded_bias, rounded_weight, weight_scale, with_bias_room
from tilewright.quantization.layers import Layer
from tilewright.quantization.onnx_editor import OnnxEditor, key_of
from tilewright.quantization.plan import Plan


def integer_weights(
    editor: OnnxEditor, layers: tuple[Layer, ...], scales: Mapping[str, Scale], per_tensor: bool
) -> dict[str, IntegerWeight]:
    """The weight of each layer, by the layer's result; layers that share a weight share its scale.

    A bias that is large beside its channel's weight (of a channel that is nearly 0) widens the weight's scale.
    """
    shared: dict[tuple[str, int], np.ndarray] = {}
    for x in layers:
        w = editor.array(x.weight)
        scale = shared.get((x.weight, x.out_axis), weight_scale(w, None if per_tensor else x.out_axis))
        if has_integer_bias(editor, x):
            scale = with_bias_room(scale, editor.array(x.bias), scales[x.x].scale)
        shared[x.weight, x.out_axis] = scale
    done: dict[tuple[str, int], IntegerWeight] = {}
    for x in layers:
        key = (x.weight, x.out_axis)
        if key not in done:
            done[key] = rounded_weight(editor.array(x.weight), shared[key], x.out_axis)
    return {x.y: done[x.weight, x.out_axis] for x in layers}


def has_integer_bias(editor: OnnxEditor, layer: Layer) -> bool:
    """True for a constant bias with an element for each output channel."""
    if not layer.bias or not layer.is_plain or not editor.is_weight(layer.bias):
        return False
    return list(editor.constants[layer.bias].dims) == [editor.constants[layer.weight].dims[layer.out_axis]]


def insert_qdq(
    editor: OnnxEditor, plan: Plan, scales: Mapping[str, Scale], weights: Mapping[str, IntegerWeight]
) -> None:
    """Write the plan into the model. ``scales``: by tensor; ``weights``: by the layer's result."""
    readable = {t: _quantized_tensor(editor, t, scales[t]) for t in plan.tensors}
    parameters: dict[tuple[str, int], str] = {}
    for x in plan.layers:
        node, w = editor.producers[x.y], weights[x.y]
        key = (x.weight, x.out_axis)
        if key not in parameters:
            parameters[key] = _dequantized_constant(editor, node, x.weight, w.q, w.scale, x.out_axis)
        if has_integer_bias(editor, x):
            scale = np.asarray(scales[x.x].scale * w.scale, np.float32)
            scale = np.maximum(scale, np.finfo(np.float32).tiny)
            q = rounded_bias(editor.array(x.bias), scale)
            node.input[2] = _dequantized_constant(editor, node, x.bias, q, scale, 0)
        node.input[1] = parameters[key]
    for node in editor.nodes:
        for k in plan.reads.get(key_of(node), ()):
            node.input[k] = readable[node.input[k]]
    editor.save()


def _quantized_tensor(editor: OnnxEditor, tensor: str, s: Scale) -> str:
    """A pair behind a tensor; its result."""
    scale = editor.add_constant(f"{tensor}_scale", np.asarray(s.scale, np.float32))
    zero = editor.add_constant(f"{tensor}_zero_point", np.asarray(s.zero, np.uint8))
    q, y = editor.fresh(f"{tensor}_quantized"), editor.fresh(f"{tensor}_dequantized")
    editor.insert_after(
        tensor,
        editor.node("QuantizeLinear", (tensor, scale, zero), q),
        editor.node("DequantizeLinear", (q, scale, zero), y),
    )
    return y


def _dequantized_constant(
    editor: OnnxEditor, reader: onnx.NodeProto, name: str, q: np.ndarray, scale: np.ndarray, axis: int
) -> str:
    """A DequantizeLinear of a new constant in front of its first reader; its result."""
    operands = (
        editor.add_constant(f"{name}_quantized", q),
        editor.add_constant(f"{name}_scale", scale),
        editor.add_constant(f"{name}_zero_point", np.zeros(scale.shape, q.dtype)),
    )
    y = editor.fresh(f"{name}_dequantized")
    attributes = {"axis": axis} if scale.ndim else {}
    editor.insert_before(reader, editor.node("DequantizeLinear", operands, y, **attributes))
    return y
