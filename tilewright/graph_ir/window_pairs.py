"""Which convolutions are computed together: a pointwise one and the depthwise one over its result.

Between them lies the largest tensor of a network of inverted residuals (Sandler et al., MobileNetV2, 2018), often far
larger than a cache: written once and read once. A channel of the second needs that channel of the first alone, so that
both can go over a panel of channels and a band of rows at a time, whose intermediate result stays in the cache.
"""

from __future__ import annotations

import math

from tilewright.graph_ir.ir import Graph, Node, TensorType

HALO = "halo"
"""Attribute of a convolution whose result is computed with a border: as many positions before and behind each spatial
dimension as its reader pads. What lies there is of no meaning."""

_LARGE = 2 << 20
"""Bytes of the result between the two from which on one kernel is faster: a smaller one is still in the cache."""

_FEWEST_CHANNELS = 32


def halo_between(graph: Graph, first: Node, window: Node) -> tuple[int, ...] | None:
    """The padding of ``window``, which reads what becomes of the result of ``first`` element by element; None if the
    two stay apart."""
    if not _is_pointwise(graph, first) or not _is_depthwise(graph, window):
        return None
    shape = _known_shape(graph, first.outputs[0])
    if shape is None or _known_shape(graph, window.outputs[0]) is None or shape[-1] < _FEWEST_CHANNELS:
        return None
    if math.prod(shape) * graph.values[first.outputs[0]].dtype.itemsize < _LARGE:
        return None
    pads = window.attr("pads") or (0,) * 4
    return tuple(int(p) for p in pads)  # type: ignore[union-attr]


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """True for a direct 1x1 convolution with a constant weight, of stride 1 and without padding."""
    if not _is_image_conv(graph, node) or node.attr("group", 1) != 1 or node.attr("algorithm") is not None:
        return False
    ones = {*_ints(node, "strides", 1), *graph.constants[node.inputs[1]].array.shape[2:]}
    return ones == {1} and set(_ints(node, "pads", 0)) == {0}


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """True for one filter a channel, constant."""
    if not _is_image_conv(graph, node):
        return False
    oc, ic = graph.constants[node.inputs[1]].array.shape[:2]
    return bool(ic == 1 and node.attr("group", 1) == oc)


def _is_image_conv(graph: Graph, node: Node) -> bool:
    if node.op != "Conv" or node.domain or node.attr("data_layout") != "NHWC" or node.inputs[1] not in graph.constants:
        return False
    explicit = node.attr("auto_pad", "NOTSET") == "NOTSET"
    return explicit and graph.constants[node.inputs[1]].array.ndim == 4


def _ints(node: Node, name: str, default: int) -> tuple[int, ...]:
    value = node.attr(name)
    return value if isinstance(value, tuple) and value else (default,)  # type: ignore[return-value]


def _known_shape(graph: Graph, name: str) -> tuple[int, ...] | None:
    v = graph.values[name]
    if not isinstance(v.type, TensorType) or v.type.shape is None:
        return None
    sizes = [n for d in v.type.shape if (n := d.value()) is not None]
    return tuple(sizes) if len(sizes) == len(v.type.shape) else None
