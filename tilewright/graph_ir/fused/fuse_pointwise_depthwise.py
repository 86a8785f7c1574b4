"""Which convolutions are computed together: a pointwise one and the depthwise one over its result.

Between them lies the largest tensor of a network of inverted residuals (Sandler et al., MobileNetV2, 2018), often far
larger than a cache: written once and read once. A channel of the second needs that channel of the first alone, so that
both can go over a panel of channels and a band of rows at a time, whose intermediate result stays in the cache.
"""

from __future__ import annotations

import math

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.rules.base import fixed_shape, int_attr, ints_attr, tensor_shape

HALO = "halo"
"""Attribute of a convolution whose result is computed with a border: as many positions before and behind each spatial
dimension as its reader pads. What lies there is of no meaning."""

_FEWEST_CHANNELS = 32


def halo_between(graph: Graph, first: Node, window: Node, kept_bytes: int) -> tuple[int, ...] | None:
    """The padding of ``window``, which reads what becomes of the result of ``first`` element by element; None if the
    two stay apart. ``kept_bytes``: a smaller result between the two is still in the cache."""
    if not _is_pointwise(graph, first) or not _is_depthwise(graph, window):
        return None
    between, result = graph.values[first.outputs[0]], graph.values[window.outputs[0]]
    shape = fixed_shape(tensor_shape(between))
    if shape is None or fixed_shape(tensor_shape(result)) is None or shape[-1] < _FEWEST_CHANNELS:
        return None
    large = math.prod(shape) * between.dtype.itemsize >= kept_bytes
    return (ints_attr(window, "pads") or (0,) * 4) if large else None


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """True for a 1x1 convolution with a constant weight, of stride 1 and without padding, computed in panels."""
    if not _is_image_conv(graph, node, "Conv", "ConvInteger") or int_attr(node, "group", 1) != 1:
        return False
    if node.attr("implementation") not in (None, "direct", "implicit_gemm", "dot_product", "dot_product_rows"):
        return False
    ones = {*(ints_attr(node, "strides") or ()), *graph.constants[node.inputs[1]].shape[2:]}
    return ones == {1} and not any(ints_attr(node, "pads") or ())


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """True for one filter per channel, constant, with vectors along the channels."""
    if not _is_image_conv(graph, node, "Conv") or node.attr("implementation") not in (None, "depthwise"):
        return False
    oc, ic = graph.constants[node.inputs[1]].shape[:2]
    return bool(ic == 1 and int_attr(node, "group", 1) == oc)


def _is_image_conv(graph: Graph, node: Node, *ops: str) -> bool:
    if node.op not in ops or node.domain or node.attr("data_layout") != "NHWC" or node.inputs[1] not in graph.constants:
        return False
    explicit = node.attr("auto_pad", "NOTSET") == "NOTSET"
    return explicit and len(graph.constants[node.inputs[1]].shape) == 4
