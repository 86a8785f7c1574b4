"""Convolutions in matrix tiles: all pixels of the batch are rows of one product, and taps times words of channels its
steps. A stage copies what the taps of each pixel read; each tap has whole rows of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import mul
from typing import TypeAlias

from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.dtypes import DType
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_shape
from tilewright.lowering.geometry.conv_weight import Weight
from tilewright.lowering.geometry.packing import flatten, unflatten
from tilewright.lowering.geometry.tile_sums import block_of, tile_sums, whole_steps
from tilewright.lowering.geometry.words import Word
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import result_sizes
from tilewright.lowering.implementations.conv.direct import Times, row_panels
from tilewright.lowering.implementations.tiles import cost, refusal
from tilewright.tensor_ir.compute import Tensor, Val
from tilewright.tensor_ir.intrinsics import SIDE

Count: TypeAlias = Callable[[IntExpr], IntExpr]
"""The words that so many channels have."""


def whole_words(word: Word) -> Count:
    """As many words as rows of a tile hold."""
    return lambda depth: whole_steps(word.count(depth))


def tile_panels(
    ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
    width: int | None = None, times: Times = mul,
) -> Reader:  # fmt: skip
    """The sums over all pixels (:class:`tilewright.lowering.implementations.conv.direct.Sums`), for one group; a result
    with a border, which no single row axis has, is computed row by row in vectors."""
    if ctx.attr_ints(HALO) is not None:
        return row_panels(ctx, shape, dtype, read, weight, width, times)
    width = width or block_of(shape.out_channels)
    packed = weight(width)
    each = shape.depth // SIDE

    def place(step: IntExpr, q: IntExpr) -> tuple[tuple[IntExpr, ...], IntExpr]:
        """The tap and the word of its channels."""
        return unflatten(step // each, tuple(const(k) for k in shape.kernel[1:])), step % each * SIDE + q

    def left(row: IntExpr, step: IntExpr, q: IntExpr) -> Val:
        n, *at = unflatten(row, shape.out_spatial)
        taps, channel = place(step, q)
        return read(
            n, channel, [p * s + t * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        )

    def right(no: IntExpr, step: IntExpr, q: IntExpr, ni: IntExpr) -> Val:
        taps, channel = place(step, q)
        return packed[(no, *taps, channel, ni)]

    rows, steps = product((shape.batch, *shape.out_spatial)), product(shape.kernel) * each
    acc = tile_sums(ctx, rows, steps, packed.shape[0], width, left, right, times)
    return lambda n, c, at: acc[(flatten((n, *at), shape.out_spatial), c // width, c % width)]


def in_tiles(
    op: str, word: Word, lower: Callable[[LowerContext], tuple[Tensor, ...]], applies: Callable[[NodeFacts], str | None]
) -> Implementation:
    """The implementation ``dot_product_tiles`` of ``op``."""
    return Implementation(
        op, "dot_product_tiles", lower, partial(_cost, word),
        lambda facts: applies(facts) or _refusal(word, facts), family="dot_product",
    )  # fmt: skip


def _refusal(word: Word, facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    if shape.groups > 1:
        return f"{shape.groups} groups, expected one"
    return refusal(facts.target, word, product((shape.batch, *shape.out_spatial)), shape.out_channels, shape.depth)


def _cost(word: Word, facts: NodeFacts) -> float:
    shape = conv_shape(facts)
    rows = math.prod(max(1, n) for n in result_sizes(shape) or ())
    return cost(facts.target, word, rows, shape.out_channels.value() or 0, math.prod(shape.kernel), shape.depth)
