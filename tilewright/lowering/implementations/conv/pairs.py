"""Convolutions of bfloat16 two channels at a time: ``acc[m, no, ni] += dot2(X2[pixel, taps, q], W2[no, taps, q, ni])``.

Sums are float32. The input is read in pairs where it lies so: channels last, no border to add and an even number of
channels in a group. Of an odd number the taps of a row are channels where they are no more pairs, read as they lie;
else a stage collects the pairs. The weight is packed at build time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_shape, with_bias
from tilewright.lowering.geometry.conv_weight import conv_weight, named, weight_columns, weight_rows
from tilewright.lowering.geometry.words import (
    PAIRS,
    Word,
    elements_of_image,
    in_fewer_words,
    padded_rows,
    words_of_image,
    words_of_row,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import plain_cost, useful_lanes
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.lowering.implementations.conv.tiles import (
    Count,
    Fold,
    add_columns,
    columns_cost,
    columns_refusal,
    in_tiles,
    shifted_panels,
    whole_words,
)
from tilewright.machine.vectors import share_of_pairs
from tilewright.tensor_ir.compute import Tensor, Val, constant, op

_COLLECTED = 1.3
"""How much longer it takes at least where pairs are put together from single elements."""


def _lower(sums: Sums, ctx: LowerContext, count: Count = PAIRS.count, fold: Fold | None = None) -> tuple[Tensor, ...]:
    """``count``: the words of so many channels; ``fold``: the geometry to compute with, of tiles."""
    shape = conv_shape(ctx)
    return with_bias(ctx, shape, pair_sums(ctx, sums, shape, fold, count, lambda w: w, "pairs", ROUNDED))


def _lower_columns(ctx: LowerContext) -> tuple[Tensor, ...]:
    whole = conv_shape(ctx)
    shape, count = whole.taps_as_columns(), whole_words(PAIRS)
    sums = pair_sums(
        ctx, partial(shifted_panels, PAIRS), shape, lambda same: same, count, weight_columns, "pairs_columns", ROUNDED
    )
    return with_bias(ctx, whole, add_columns(whole, sums))


@dataclass(frozen=True, slots=True)
class Operands:
    """How elements become words: ``bits`` of one of the input, of type ``dtype``, ``elements`` of the weight."""

    word: Word
    dtype: DType
    bits: Callable[[Val], Val]
    elements: Callable[[np.ndarray], np.ndarray]


def pair_sums(
    ctx: LowerContext, sums: Sums, whole: ConvShape, fold: Fold | None, count: Count,
    oihw: Callable[[np.ndarray], np.ndarray], key: str, operands: Operands,
) -> Reader:  # fmt: skip
    """The sums of a convolution of that geometry, whose weight ``oihw``, called ``key``, makes of the node's. ``fold``:
    the geometry to compute with; None in vectors, which take that of fewer words."""
    word = operands.word
    shape = in_fewer_words(word, whole) if fold is None else fold(whole)
    in_pairs = dataclasses.replace(shape, channels=count(shape.depth) * shape.groups)
    zero, in_place = constant(0, dtypes.int32), fold is None and shape is not whole

    def pairs(w: np.ndarray) -> np.ndarray:
        taps = weight_rows(oihw(w), shape)
        return word.pack_oihw(operands.elements(_halved(taps) if in_place else taps), in_pairs.depth.value())

    rows = None
    if shape.of_pixel is not None and whole.needs_padding:
        rows = padded_rows(ctx, whole, constant(0.0, operands.dtype))
    if in_place:
        read = _pairs_of_rows(ctx, shape, operands.bits, rows)
    else:
        read = words_of_image(ctx, shape, in_pairs, word, operands.bits, lambda step: zero, True, rows)
    weight = conv_weight(
        ctx, in_pairs, dtypes.int32, pairs, named(f"{key}_halved" if in_place else key, shape), lambda *_: zero
    )
    return sums(ctx, in_pairs, dtypes.int32, read, weight, times=word.times)


def _pairs_of_rows(ctx: LowerContext, shape: ConvShape, bits: Callable[[Val], Val], rows: Tensor | None) -> Reader:
    """Pairs of an image of which the taps of a row are channels, as it lies in the input, or in ``rows``. The last of
    an odd number of elements makes a pair with the one before, which is in two pairs then (:func:`_halved`): what comes
    behind it in memory is another pixel's, and 0 times an infinity is not 0."""
    element, last = elements_of_image(ctx, shape, rows), shape.depth - PAIRS.per

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        first = minimum(c * PAIRS.per, last)
        return PAIRS.of([bits(element(n, first + j, at)) for j in range(PAIRS.per)])

    return read


def _halved(w: np.ndarray) -> np.ndarray:
    """The weight ``[OC, elements of a row, taps..., 1]`` of :func:`_pairs_of_rows`: with an even number of elements as
    it is, else with half of the last but one twice."""
    if w.shape[1] % PAIRS.per == 0:
        return w
    half = (w[:, -2:-1].astype(np.float32) / 2).astype(w.dtype)
    return np.concatenate([w[:, :-2], half, half, w[:, -1:]], axis=1)


def _bits(v: Val) -> Val:
    return op("bits", v)


ROUNDED = Operands(PAIRS, dtypes.bfloat16, _bits, lambda w: w.view(np.uint16))


def refusal(facts: NodeFacts) -> str | None:
    """Why a product is not one of bfloat16 with a constant."""
    kinds = [v.dtype for v in facts.input_values[:2] if v is not None]
    if kinds != [dtypes.bfloat16, dtypes.bfloat16]:
        return f"operands of type {' and '.join(map(str, kinds))}, expected bfloat16"
    if facts.constants[1] is None:
        return "the weight is not constant"
    return "an empty weight" if any(d == 0 for d in facts.input_shape(1)) else None


def _time(facts: NodeFacts) -> float:
    whole = conv_shape(facts)
    shape = in_fewer_words(PAIRS, whole)
    depth = whole.depth.value() or PAIRS.per
    longer = words_of_row(PAIRS, shape) * PAIRS.per / (depth * whole.kernel[-1])
    if shape is whole and depth % PAIRS.per:
        longer *= _COLLECTED
    return plain_cost(facts, share_of_pairs(facts.target), 0.5) * longer / useful_lanes(facts)


DOT_PRODUCT = (
    *by_pixels_and_rows("Conv", "dot_product", _lower, _time, conv_shape, refusal),
    *in_tiles("Conv", PAIRS, _lower, refusal),
    Implementation(
        "Conv",
        "dot_product_columns",
        _lower_columns,
        partial(columns_cost, PAIRS),
        lambda facts: refusal(facts) or columns_refusal(PAIRS, facts),
        family="dot_product",
    ),
)
