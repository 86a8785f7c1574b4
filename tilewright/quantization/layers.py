"""The products of a model with constant weights, which are what is worth quantizing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.quantization.onnx_editor import OnnxEditor, attribute, key_of
from tilewright.quantization.operators import SCALED_WEIGHTS


@dataclass(frozen=True, slots=True)
class Layer:
    """``name``: the node's, or of its first result. ``x``, ``weight``, ``bias`` ("" for none), ``y``: values.

    ``out_axis``, ``in_axis``: axes of the weight that belong to channels of ``y`` and of ``x``. ``groups``: of a
    convolution. ``channel_axis``: the axis of channels of ``x``. ``is_plain``: the bias is added as it is (a Gemm may
    scale it or the product).
    """

    name: str
    op: str
    x: str
    weight: str
    bias: str
    y: str
    out_axis: int
    in_axis: int
    groups: int
    channel_axis: int
    is_plain: bool

    def by_input(self, weight: np.ndarray) -> np.ndarray:
        """The weight as ``[outputs, inputs, rest]``, float64; inputs of other groups are 0 there.

        For a convolution of g groups the weight is [outputs, inputs / g, ...].
        """
        w = np.moveaxis(weight.astype(np.float64), (self.out_axis, self.in_axis), (0, 1))
        w = w.reshape(w.shape[0], w.shape[1], -1)
        if self.groups == 1:
            return w
        outputs, inputs = w.shape[0] // self.groups, w.shape[1]
        wide = np.zeros((w.shape[0], inputs * self.groups, w.shape[2]))
        for g in range(self.groups):
            rows = slice(g * outputs, (g + 1) * outputs)
            wide[rows, g * inputs : (g + 1) * inputs] = w[rows]
        return wide

    def scale_outputs(self, weight: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The weight times a factor an output channel."""
        shape = [1] * weight.ndim
        shape[self.out_axis] = -1
        return np.asarray(weight * factors.reshape(shape), np.float32)

    def scale_inputs(self, weight: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The weight times a factor an input channel, ``factors`` [inputs]."""
        shape = [1] * weight.ndim
        if self.groups == 1:
            shape[self.in_axis] = -1
            return np.asarray(weight * factors.reshape(shape), np.float32)
        of_group = factors.reshape(self.groups, -1)
        rows = np.repeat(of_group, weight.shape[0] // self.groups, axis=0)
        return np.asarray(weight * rows.reshape(*rows.shape, *shape[2:]), np.float32)


def find_layers(editor: OnnxEditor, operators: Collection[str], skip: Sequence[str] = ()) -> tuple[Layer, ...]:
    """The layers of a model in order, without those of ``skip``. Raises InputError for a name there that no node has,
    ModelError for weights that are not finite."""
    known = [n.name or key_of(n) for n in editor.nodes]
    for name in skip:
        if name not in set(known):
            raise InputError(f"skip: the model has no node {name!r}{did_you_mean(name, known)}")
    found = (_layer(editor, n) for n in editor.nodes if n.op_type in operators and not n.domain)
    return tuple(layer for layer in found if layer is not None and layer.name not in skip)


def _layer(editor: OnnxEditor, node: onnx.NodeProto) -> Layer | None:
    """None for a product of two activations, one that a weight comes first in, or of other types than float32."""
    x, weight = node.input[:2]
    if not editor.is_weight(weight) or x in editor.constants or attribute(node, "transA", 0):
        return None
    array = editor.array(weight)
    if array.size == 0 or (array.ndim != 2 if node.op_type != "Conv" else array.ndim < 3):
        return None
    out_axis, in_axis = SCALED_WEIGHTS[node.op_type]
    if attribute(node, "transB", 0):
        out_axis, in_axis = in_axis, out_axis
    bias = node.input[2] if len(node.input) > 2 else ""
    return Layer(
        node.name or key_of(node), node.op_type, x, weight, bias, node.output[0], out_axis, in_axis,
        int(attribute(node, "group", 1)), 1 if node.op_type == "Conv" else -1,
        attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0,
    )  # fmt: skip
