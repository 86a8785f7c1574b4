"""What the implementations of ``Conv`` are estimated to cost, in multiply-adds that fill a vector."""

from __future__ import annotations

import math

from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, computed_type, conv_shape
from tilewright.lowering.geometry.words import Word, in_fewer_words, words_of_row
from tilewright.lowering.implementations.base import assumed, share_of_lanes

_IMAGE = 224
"""Symbolic sizes count as those of one image of so many rows and columns."""


def result_sizes(shape: ConvShape) -> tuple[int, ...] | None:
    """Batch and spatial sizes of the result; None where they have no value for one image."""
    env = {v: _IMAGE for d in shape.out_spatial for v in d.free_vars()} | dict.fromkeys(shape.batch.free_vars(), 1)
    try:
        return shape.batch.evaluate(env), *(max(0, d.evaluate(env)) for d in shape.out_spatial)
    except ZeroDivisionError:
        return None


def plain_cost(facts: NodeFacts, share: float = 1.0, weight_size: float = 1.0) -> float:
    """The multiply-adds of the definition, and the weights read; a pixel's where the sizes have no value. ``share``:
    the time of a product, of that of a multiply-add of float32; ``weight_size``: of the bytes of a float32."""
    sizes = result_sizes(conv_shape(facts))
    pixels = 1 if sizes is None else max(1, math.prod(sizes))
    each = share * pixels + weight_size * facts.target.costs.weight_load
    return float(math.prod(int(d) for d in facts.input_shape(1)) * each)


def input_products(shape: ConvShape) -> int:
    """The products of a transposed convolution for each of its taps."""
    return assumed((shape.batch, *shape.spatial, shape.channels, shape.per_group), _IMAGE)


def lanes_of(facts: NodeFacts) -> int:
    return facts.target.lanes(computed_type(facts).itemsize)


def useful_lanes(facts: NodeFacts) -> float:
    """The share of the lanes that vectors along the output channels of a group fill."""
    return share_of_lanes(conv_shape(facts).per_group.value() or 0, lanes_of(facts))


def cost_in_words(facts: NodeFacts, word: Word, share: float) -> float:
    """The products of words along the channels, or along the taps of a row. ``share``: the time of a product of two
    elements, of that of a multiply-add of float32."""
    shape = conv_shape(facts)
    elements = (shape.depth.value() or word.per) * shape.kernel[-1]
    filled = elements / (words_of_row(word, in_fewer_words(word, shape)) * word.per)
    return share * plain_cost(facts) / filled / useful_lanes(facts)


def channel_vectors_refusal(facts: NodeFacts) -> str | None:
    """Why vectors cannot run along the input channels."""
    shape, lanes = conv_shape(facts), lanes_of(facts)
    if shape.groups > 1:
        return f"{shape.groups} groups, expected one"
    if facts.constants[1] is None:
        return "the weight is not constant"
    if not shape.channels.value() or not shape.out_channels.value() or lanes == 1:
        return "an unknown or empty number of channels, or vectors of one element"
    return f"{shape.channels} input channels are not whole vectors of {lanes}" if int(shape.channels) % lanes else None


def speed_along_channels(facts: NodeFacts) -> float:
    """The share of the best speed that vectors along the input channels reach: the rest is for the sum of the lanes of
    each result, at the end."""
    shape = conv_shape(facts)
    products = math.prod(shape.kernel) * int(shape.channels)
    return products / (products + facts.target.costs.lane_sum * lanes_of(facts))


def best_speed(facts: NodeFacts) -> float:
    """The share of the best speed at which the definition can be computed."""
    along_channels = 0.0 if channel_vectors_refusal(facts) is not None else speed_along_channels(facts)
    return max(useful_lanes(facts), along_channels)
