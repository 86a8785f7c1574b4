"""Cross-layer equalization: two convolutions get weights whose channels have equal ranges.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, section 4.1.
Relu(f x) = f Relu(x) for f > 0, so that a channel between two convolutions may be divided by ``f`` in the first and
multiplied by it in the second. With ``f = sqrt(r1 / r2)`` for the ranges of its weights, both become sqrt(r1 r2).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from tilewright.quantization.layers import Layer, find_layers
from tilewright.quantization.onnx_editor import OnnxEditor

_ROUNDS = 20
"""At most: chains of layers settle after some."""
_SETTLED = 1e-3
"""The largest change of a factor that does not ask for another round."""


def equalize(model: onnx.ModelProto) -> int:
    """Equalize each pair of convolutions with nothing, or a Relu, between them that something else reads; how many."""
    editor = OnnxEditor(model)
    layers = find_layers(editor, ("Conv",))
    layers = tuple(x for x in layers if all(_is_own(editor, n) for n in (x.weight, x.bias) if n))
    pairs = _pairs(editor, {x.x: x for x in layers}, layers)
    arrays = {n: editor.array(n) for pair in pairs for x in pair for n in (x.weight, x.bias) if n}
    for _ in range(_ROUNDS):
        if max((_equalize_pair(arrays, *pair) for pair in pairs), default=0.0) < _SETTLED:
            break
    changed = {n: editor.add_constant(f"{n}_equalized", a) for n, a in arrays.items()}
    for layer in layers:
        node = editor.producers[layer.y]
        for k, name in enumerate(node.input):
            if k and name in changed:
                node.input[k] = changed[name]
    if pairs:
        editor.save()
    return len(pairs)


def _is_own(editor: OnnxEditor, name: str) -> bool:
    return editor.is_weight(name) and len(editor.readers[name]) == 1


def _pairs(editor: OnnxEditor, by_input: Mapping[str, Layer], layers: tuple[Layer, ...]) -> list[tuple[Layer, Layer]]:
    out = []
    for first in layers:
        reader, between = editor.only_reader(first.y), first.y
        if reader is not None and reader.op_type == "Relu":
            between = reader.output[0]
            reader = editor.only_reader(between)
        second = by_input.get(between)
        if reader is not None and second is not None and reader.output[0] == second.y:
            out.append((first, second))
    return out


def _equalize_pair(arrays: dict[str, np.ndarray], first: Layer, second: Layer) -> float:
    """Scale the weights of a pair; the largest change of a factor."""
    one, two = arrays[first.weight], arrays[second.weight]
    r1 = np.abs(one.reshape(one.shape[0], -1)).max(1).astype(np.float64)
    r2 = np.abs(second.by_input(two)).max((0, 2))
    used = (r1 > 0) & (r2 > 0)
    factors = np.ones_like(r1)
    factors[used] = np.sqrt(r1[used] / r2[used])
    arrays[first.weight] = first.scale_outputs(one, 1 / factors)
    if first.bias:
        arrays[first.bias] = np.asarray(arrays[first.bias] / factors, np.float32)
    arrays[second.weight] = second.scale_inputs(two, factors)
    return float(np.abs(factors - 1).max(initial=0.0))
