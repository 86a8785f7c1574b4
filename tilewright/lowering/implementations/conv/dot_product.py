"""Convolutions of bytes four channels at a time: ``acc[m, no, ni] += dot4(X4[pixel, taps, q], W4[no, taps, q, ni])``.

The input is read in fours where it lies so: unsigned, channels last, no border to add and whole fours of channels in a
group. Else a stage collects them, borders of the zero point with it; of an image without whole fours of channels the
taps of a row are channels where they are no more fours, and the stage copies the image as it lies. The weight is packed
at build time, zero points are taken off the sums (:mod:`tilewright.lowering.geometry.quads`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import lower_conv_integer
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_result, conv_shape, spatial_names
from tilewright.lowering.geometry.conv_weight import conv_weight, named, weight_rows
from tilewright.lowering.geometry.quads import (
    ONES,
    is_zero,
    moved_a,
    moved_b,
    signed,
    sums_of_b,
    without_zero_points,
    zero_point,
)
from tilewright.lowering.geometry.words import BYTES, in_fewer_words, padded_rows, words_of_image, words_of_rows
from tilewright.lowering.implementations.base import ONE_BY_ONE, Implementation
from tilewright.lowering.implementations.conv.cost import cost_in_words, plain_cost
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.lowering.implementations.conv.tiles import Count, Fold, in_tiles
from tilewright.machine.vectors import share_of_bytes
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, index_value, select, sum_over


def _lower(sums: Sums, ctx: LowerContext, count: Count = BYTES.count, fold: Fold | None = None) -> tuple[Tensor, ...]:
    """``count``: the words of so many channels; ``fold``: the geometry to compute with, of tiles."""
    whole = conv_shape(ctx)
    shape = in_fewer_words(BYTES, whole) if fold is None else fold(whole)
    by_rows = fold is None and shape is not whole
    a_by, b_by = moved_a(ctx.input(0).dtype), moved_b(ctx.input(1).dtype)
    za = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), a_by)
    in_fours = dataclasses.replace(shape, channels=count(shape.depth) * shape.groups)

    def border(step: IntExpr) -> Val:
        return BYTES.join(lambda _: za, step, shape.depth, in_fours.depth)

    def bits(v: Val) -> Val:
        return v.cast(dtypes.int32) + a_by

    if by_rows:
        read = words_of_rows(
            ctx, whole, in_fours, BYTES, za.cast(dtypes.uint8), lambda v: bits(v).cast(dtypes.uint8),
            lambda v: v.cast(dtypes.int32),
        )  # fmt: skip
    else:
        folds = shape.of_pixel is not None and whole.needs_padding
        rows = padded_rows(ctx, whole, (za - a_by).cast(ctx.input(0).dtype)) if folds else None
        in_place = not a_by or shape.of_pixel is not None
        read = words_of_image(ctx, shape, in_fours, BYTES, bits, border, in_place, rows)
    weight = conv_weight(
        ctx, in_fours, dtypes.int32,
        lambda w: BYTES.pack_oihw(weight_rows(signed(w), shape), in_fours.depth.value()), named("quads", shape),
        lambda *_: constant(0, dtypes.int32),
    )  # fmt: skip
    acc = sums(ctx, in_fours, dtypes.int32, read, weight, times=BYTES.times)
    of_channels = sums_of_b(ctx, (shape.out_channels,), lambda w: w.reshape(len(w), -1).sum(1, dtype=np.int32))
    last = int(shape.depth) % BYTES.per if by_rows else 0
    of_windows = None if is_zero(ctx, 3, b_by) else _window_sums(ctx, in_fours, read, last)
    depth = shape.depth * math.prod(shape.kernel)

    def group_of(c: IntExpr) -> IntExpr:
        return c // shape.per_group if shape.groups > 1 else const(0)

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        return without_zero_points(
            acc(n, c, at),
            za,
            zero_point(ctx.optional(3), lambda t: ctx.scalar(3) if _is_single(t) else t[c], -b_by),
            of_channels(c, za),
            None if of_windows is None else of_windows[(n, *at, group_of(c))],
            depth,
        )

    return conv_result(ctx, whole, result)


def _is_single(t: Tensor) -> bool:
    return t.ndim == 0 or all(s == 1 for s in t.shape)


def _window_sums(ctx: LowerContext, shape: ConvShape, read: Reader, last: int) -> Tensor:
    """The sum of the input over the window of each pixel, ``[n, out..., group]``. ``last``: the bytes of the last word
    of a row that are the window's, if not all; those of others are 0 but there."""
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    q = ctx.axis(shape.depth, "q")

    def formula(*i: IntExpr) -> Reduction:
        steps = zip(i[1:-1], shape.strides, taps, shape.dilations, strict=True)
        where = [p * s + t.index * d for p, s, t, d in steps]
        channel = i[-1] * shape.depth + q.index if shape.groups > 1 else q.index
        ones = constant(ONES, dtypes.int32)
        if last:
            some = constant(ONES & ((1 << 8 * last) - 1), dtypes.int32)
            ones = select(index_value(q.index) < index_value(shape.depth - 1), ones, some)
        return sum_over(BYTES.times(read(i[0], channel, where), ones), *taps, q)

    full: tuple[IntExpr | int, ...] = (shape.batch, *shape.out_spatial, shape.groups)
    names = ["n", *spatial_names(shape.rank), "g"]
    return ctx.stage(compute(ctx.name("window_sums"), full, formula, axis_names=names))


def _applies(facts: NodeFacts) -> str | None:
    if facts.constants[1] is None:
        return "the weight is not constant"
    return "an empty weight" if any(d == 0 for d in facts.input_shape(1)) else None


def _time(facts: NodeFacts) -> float:
    return cost_in_words(facts, BYTES, share_of_bytes(facts.target))


DOT_PRODUCT = (
    *by_pixels_and_rows("ConvInteger", "dot_product", _lower, _time, conv_shape, _applies),
    *in_tiles("ConvInteger", BYTES, _lower, _applies),
)
LOOPS = Implementation("ConvInteger", "loops", lower_conv_integer, lambda facts: ONE_BY_ONE * plain_cost(facts))
