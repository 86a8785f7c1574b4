"""Convolutions in matrix tiles: all pixels of the batch are rows of one product, and taps times words of channels its
steps. A stage copies what the taps of each pixel read; each tap has whole rows of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add, mul
from typing import TypeAlias

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.dtypes import DType
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_shape
from tilewright.lowering.geometry.conv_weight import Weight
from tilewright.lowering.geometry.packing import flatten, unflatten
from tilewright.lowering.geometry.tile_sums import (
    BLOCK,
    Place,
    block_of,
    rows_of_blocks,
    shifted_sums,
    tile_sums,
    whole_steps,
)
from tilewright.lowering.geometry.words import PAIRS, Word
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import result_sizes
from tilewright.lowering.implementations.conv.direct import Sums, Times, row_panels
from tilewright.lowering.implementations.tiles import cost, refusal
from tilewright.machine.target import Target
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, select
from tilewright.tensor_ir.intrinsics import SIDE

Count: TypeAlias = Callable[[IntExpr], IntExpr]
"""The words that so many channels have."""

_PLANE = 2
"""Dimensions of an image."""

Fold: TypeAlias = Callable[[ConvShape], ConvShape]
"""The geometry that a convolution is computed with."""


def whole_words(word: Word) -> Count:
    """As many words as rows of a tile hold."""
    return lambda depth: whole_steps(word.count(depth))


def folded(word: Word, shape: ConvShape) -> ConvShape:
    """``shape``, or if that takes fewer steps, the same with the taps of a row as channels: of an image with three
    channels each tap would fill a small part of a tile's row."""
    rows, count = shape.rows_as_channels(), whole_words(word)
    if rows is None or not shape.depth.is_const:
        return shape
    return rows if int(count(rows.depth)) < int(count(shape.depth)) * shape.kernel[-1] else shape


def _folded_into_one(word: Word, shape: ConvShape) -> ConvShape:
    """The same if the taps of a row take one step then, in rows of known length: each pixel has all of them. Not of
    bytes, four of which make a word that begins anywhere."""
    rows = folded(word, shape)
    fits = shape.out_spatial[-1].is_const and whole_words(word)(rows.depth) == SIDE * word.planes
    return rows if fits and word.per == PAIRS.per else shape


def tile_panels(
    word: Word, ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
    width: int | None = None, times: Times = mul,
) -> Reader:  # fmt: skip
    """The sums over all pixels (:class:`tilewright.lowering.implementations.conv.direct.Sums`) of words, for one group;
    a result with a border, which no single row axis has, is computed row by row in vectors."""
    if ctx.attr_ints(HALO) is not None:
        return row_panels(ctx, shape, dtype, read, weight, width, times)
    width = width or block_of(shape.out_channels)
    packed, alone, of_step = weight(width), (shape.batch == 1), SIDE * word.planes

    def left(row: IntExpr, step: Place, q: IntExpr) -> Val:
        n, *at = (const(0), *unflatten(row, shape.out_spatial[1:])) if alone else unflatten(row, shape.out_spatial)
        *taps, each = step
        where = zip(at, shape.strides, taps, shape.dilations, strict=True)
        return read(n, each * of_step + q, [p * s + t * d for p, s, t, d in where])

    def right(no: IntExpr, step: Place, q: IntExpr, ni: IntExpr) -> Val:
        *taps, each = step
        return packed[(no, *taps, each * of_step + q, ni)]

    steps = (*(const(k) for k in shape.kernel), shape.depth // of_step)
    rows = product((shape.batch, *shape.out_spatial))
    acc = tile_sums(ctx, rows, steps, packed.shape[0], width, left, right, word)
    return lambda n, c, at: acc[(flatten((n, *at), shape.out_spatial), c // width, c % width)]


def shifted_panels(
    word: Word, ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
    width: int | None = None, times: Times = mul,
) -> Reader:  # fmt: skip
    """The same with rows of the product that are neighbours in the padded image, those at its edges too: what a tap
    reads is the image as it lies, some pixels further on. One copy of the image in whole rows of tiles is enough."""
    width = width or block_of(shape.out_channels)
    packed, (down, across) = weight(width), (shape.kernel[0], shape.kernel[1])
    high, wide = (o + (k - 1) * d for o, k, d in zip(shape.out_spatial, shape.kernel, shape.dilations, strict=True))
    of_step = SIDE * word.planes
    each, pixels = shape.depth // of_step, shape.batch * high * wide

    def of_pixel(p: IntExpr, q: IntExpr) -> Val:
        n, *at = unflatten(p, (high, wide)) if shape.batch != 1 else (const(0), *unflatten(p, (wide,)))
        return select(index_value(p) < index_value(pixels), read(n, q, at), constant(0, dtypes.int32))

    reach = (down - 1) * shape.dilations[0] * wide + across - 1
    full = (rows_of_blocks(pixels) + reach, shape.depth)
    image = ctx.stage(compute(ctx.name("image"), full, of_pixel, axis_names=["p", "q"]))

    def place(tap: IntExpr, step: IntExpr, q: IntExpr) -> tuple[IntExpr, IntExpr]:
        return tap * (wide * shape.dilations[0]) + step // each, step % each * of_step + q

    def right(no: IntExpr, tap: IntExpr, step: IntExpr, q: IntExpr, ni: IntExpr) -> Val:
        return packed[(no, tap, step // each, step % each * of_step + q, ni)]

    acc = shifted_sums(ctx, image, pixels, const(down), across * each, packed.shape[0], width, place, right, word)
    return lambda n, c, at: acc[((n * high + at[0]) * wide + at[1], c // width, c % width)]


def add_columns(shape: ConvShape, columns: Reader) -> Reader:
    """The sums of ``shape`` from those of :meth:`ConvShape.taps_as_columns`."""

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        *before, last = at
        each = (columns(n, c + shape.out_channels * k, (*before, last + k)) for k in range(shape.kernel[-1]))
        return reduce(add, each)

    return read


def columns_refusal(word: Word, facts: NodeFacts) -> str | None:
    """Why taps of a row are no columns."""
    shape = conv_shape(facts)
    if shape.kernel[-1] == 1:
        return "rows of one tap, expected several"
    if not shape.out_spatial[-1].is_const:
        return f"rows of {shape.out_spatial[-1]} pixels, expected a constant"
    if (columns := (shape.out_channels * shape.kernel[-1]).value() or BLOCK + 1) > BLOCK:
        return f"{columns} channels and taps of a row, expected at most {BLOCK}"
    return _shifted_refusal(word, facts, shape)


def columns_cost(word: Word, facts: NodeFacts) -> float:
    """What it takes with taps of a row as columns."""
    return _shifted_cost(word, facts.target, conv_shape(facts).taps_as_columns())


def in_tiles(
    op: str, word: Word, lower: Callable[[Sums, LowerContext, Count, Fold], tuple[Tensor, ...]],
    applies: Callable[[NodeFacts], str | None], summed: Callable[[NodeFacts], ConvShape] = conv_shape,
    spreads: bool = False,
) -> tuple[Implementation, ...]:  # fmt: skip
    """The implementations ``dot_product_tiles`` and ``dot_product_shifted`` of ``op``.

    ``lower(sums, ctx, count, fold)``: ``count`` the words of so many channels, ``fold`` the geometry to compute with.
    ``summed``: the convolution that is summed.
    """
    count = whole_words(word)
    return (
        Implementation(
            op, "dot_product_tiles", lambda ctx: lower(partial(tile_panels, word), ctx, count, partial(folded, word)),
            lambda facts: _cost(word, facts.target, summed(facts)),
            lambda facts: applies(facts) or _refusal(word, facts.target, summed(facts)), family="dot_product",
            spreads=spreads,
        ),
        Implementation(
            op, "dot_product_shifted",
            lambda ctx: lower(partial(shifted_panels, word), ctx, count, partial(_folded_into_one, word)),
            lambda facts: _shifted_cost(word, facts.target, summed(facts)),
            lambda facts: applies(facts) or _shifted_refusal(word, facts, summed(facts)), family="dot_product",
            spreads=spreads,
        ),
    )  # fmt: skip


def _refusal(word: Word, target: Target, shape: ConvShape) -> str | None:
    if shape.groups > 1:
        return f"{shape.groups} groups, expected one"
    return refusal(target, word, product((shape.batch, *shape.out_spatial)), shape.out_channels, shape.depth)


def _shifted_refusal(word: Word, facts: NodeFacts, shape: ConvShape) -> str | None:
    if not shape.channels_last or shape.rank != _PLANE or facts.attr_ints(HALO) is not None:
        return "no image with channels last"
    if all(k == 1 for k in shape.kernel):
        return "one tap, expected several"
    if any(s != 1 for s in shape.strides) or shape.dilations[-1] != 1:
        return f"strides {_shown(shape.strides)} and dilations {_shown(shape.dilations)}, expected 1 along a row"
    return _refusal(word, facts.target, shape)


def _shown(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


def _shifted_cost(word: Word, target: Target, whole: ConvShape) -> float:
    shape = _folded_into_one(word, whole)
    reach = [(k - 1) * d for k, d in zip(shape.kernel, shape.dilations, strict=True)]
    n, h, w = result_sizes(shape) or (1, 1, 1)
    pixels = n * (h + reach[0]) * (w + reach[1])
    is_run = not all(d.is_const for d in shape.out_spatial)  # blocks begin with a row of the image
    rows = n * h * (-(-w // BLOCK) * BLOCK if is_run else w + reach[1])
    columns, taps = shape.out_channels.value() or 0, math.prod(shape.kernel)
    return cost(target, word, rows, columns, taps, shape.depth, put=pixels)


def _cost(word: Word, target: Target, whole: ConvShape) -> float:
    rows = math.prod(max(1, n) for n in result_sizes(whole) or ())
    shape = folded(word, whole)
    return cost(target, word, rows, shape.out_channels.value() or 0, math.prod(shape.kernel), shape.depth)
