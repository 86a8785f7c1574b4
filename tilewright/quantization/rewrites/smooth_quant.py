"""SmoothQuant: outliers among a norm's channels are moved into the weights of the products behind it.

Source: Xiao et al., SmoothQuant, ICML 2023, equations 3 and 4. Channel ``j`` of the activations is divided by
``s_j = max|x_j|^alpha / max|w_j|^(1 - alpha)`` and row ``j`` of the weights multiplied by it. The division is in the
norm's own scale and shift, so that the model has no node more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.quantization.layers import Layer, find_layers
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.operators import MATRIX_PRODUCTS

_LEAST = 1e-5
"""The smallest factor, and the smallest range that counts."""


@dataclass(frozen=True, slots=True)
class Site:
    """A norm's result ``x``, the constants that scale and shift it (node, position of the operand), and the products
    that alone read it."""

    x: str
    constants: tuple[tuple[onnx.NodeProto, int], ...]
    layers: tuple[Layer, ...]


def find_sites(editor: OnnxEditor) -> list[Site]:
    """Norms that only products with constant weights read: a LayerNormalization, or a product with a vector and a sum
    with one, as it was exported before opset 17."""
    by_input: dict[str, list[Layer]] = {}
    for layer in find_layers(editor, MATRIX_PRODUCTS):
        by_input.setdefault(layer.x, []).append(layer)
    out = []
    for x, layers in by_input.items():
        constants = _norm(editor, x)
        if constants and len(layers) == len(editor.readers[x]) and x not in editor.kept:
            out.append(Site(x, constants, tuple(layers)))
    return out


def smooth_quant(model: onnx.ModelProto, alpha: float, largest: Mapping[str, np.ndarray]) -> int:
    """Scale each site by the largest magnitudes of its channels (``largest``: [channels] by name); how many."""
    editor = OnnxEditor(model)
    sites = find_sites(editor)
    for site in sites:
        weights = {x.weight: (x, editor.array(x.weight)) for x in site.layers}
        rows = np.max([np.abs(x.by_input(w)).max((0, 2)) for x, w in weights.values()], axis=0)
        factors = np.maximum(largest[site.x], _LEAST) ** alpha / np.maximum(rows, _LEAST) ** (1 - alpha)
        factors = np.maximum(factors, _LEAST)
        for node, k in site.constants:
            vector = np.asarray(editor.array(node.input[k]) / factors, np.float32)
            node.input[k] = editor.add_constant(f"{node.input[k]}_smooth", vector)
        scaled = {n: editor.add_constant(f"{n}_smooth", x.scale_inputs(w, factors)) for n, (x, w) in weights.items()}
        for layer in site.layers:
            editor.producers[layer.y].input[1] = scaled[layer.weight]
    if sites:
        editor.save()
    return len(sites)


def _norm(editor: OnnxEditor, x: str) -> tuple[tuple[onnx.NodeProto, int], ...]:
    """The constants [channels] that scale and shift ``x``; none if it is no norm's."""
    node = editor.producers.get(x)
    if node is None:
        return ()
    if node.op_type == "LayerNormalization":
        used = sum(map(bool, node.output)) == 1
        places = tuple((node, k) for k in range(1, len(node.input)) if node.input[k])
        return places if used and all(_is_vector(editor, n, k) for n, k in places) else ()
    if node.op_type != "Add":
        return ()
    shift = next((k for k in (0, 1) if _is_vector(editor, node, k)), None)
    if shift is None or editor.only_reader(node.input[1 - shift]) is None:
        return ()
    product = editor.producers.get(node.input[1 - shift])
    if product is None or product.op_type != "Mul":
        return ()
    scale = next((k for k in (0, 1) if _is_vector(editor, product, k)), None)
    return () if scale is None else ((product, scale), (node, shift))


def _is_vector(editor: OnnxEditor, node: onnx.NodeProto, k: int) -> bool:
    return editor.is_weight(node.input[k]) and len(editor.constants[node.input[k]].dims) == 1
