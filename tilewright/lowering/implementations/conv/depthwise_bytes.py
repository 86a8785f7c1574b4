"""Depthwise convolutions of bytes, four rows of the image at a time, or two where CPUs multiply int16 in pairs.

A sum over the taps of one channel has no neighbouring channels to make words of, so four rows of a pixel are one:
``words[ho, q, w, c]`` holds rows ``4 q`` to ``4 q + 3`` of those that a group of ``R`` rows of the result reaches into,
and ``acc[ho, r, w, c] += dot4(words[ho, q, w s + j, c], taps[r, q, j, c])``: where a row of the result has no tap in a
word's row, the weight has a 0. So a word serves all rows of the group; of a 3x3 window with stride 1 two rows share one
word a column, of 5x5 four rows two. Words of two rows, widened to int16, are twice as many, and their products
(``dot2i``) one instruction each where those of bytes are widened at each use.

Weights have no zero point (the rule ``centred_conv_weight`` takes it off). That of the input is taken off the sums
(:mod:`tilewright.lowering.geometry.quads`); where there is a border, it holds the zero point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_result, conv_shape
from tilewright.lowering.geometry.quads import is_zero, known_zero, moved_a, sums_of_b, zero_point
from tilewright.lowering.geometry.words import BYTES, SHORTS, Word
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import plain_cost
from tilewright.machine.target import Target
from tilewright.machine.vectors import share_of_bytes, share_of_shorts
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, select, sum_over

_MADE = {BYTES.per: 8, SHORTS.per: 5}
"""Making a word of so many rows, in multiply-adds of float32."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """How rows of the result share words: ``rows`` of them reach into ``words`` words of rows of the input."""

    word: Word
    rows: int
    words: int
    stride: int

    @property
    def step(self) -> int:
        """Rows of the input from one group to the next."""
        return self.rows * self.stride


def row_groups(word: Word, taps: int, stride: int) -> RowGroups:
    """As many rows as need no more words than one does."""
    words = word.rows(taps)
    return RowGroups(word, 1 + (word.per * words - taps) // stride, words, stride)


def _lower(word: Word, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape = conv_shape(ctx)
    moved = moved_a(ctx.input(0).dtype)
    known = known_zero(ctx, 2, moved)
    zero = zero_point(ctx.input(2), lambda t: ctx.scalar(2), moved) if known is None else constant(known, dtypes.int32)
    groups = row_groups(word, shape.kernel[0], shape.strides[0])
    words = _words(ctx, shape, groups, moved, zero)
    columns, step = shape.kernel[1], shape.strides[1]
    full: tuple[IntExpr | int, ...] = (groups.rows, groups.words, columns, shape.out_channels)
    key = f"rows_{groups.stride}" + ("" if word == BYTES else "_shorts")
    taps = ctx.packed(1, lambda w: _shifted_taps(w, groups), full, key, dtypes.int32)
    q, kw = ctx.axis(groups.words, "q"), ctx.axis(columns, "kw")

    def formula(n: IntExpr, ho: IntExpr, r: IntExpr, w: IntExpr, c: IntExpr) -> Reduction:
        at = w * step + kw.index * shape.dilations[1]
        return sum_over(word.times(words[n, ho, q.index, at, c], taps[r, q.index, kw.index, c]), q, kw)

    high, wide = shape.out_spatial
    over = (shape.batch, ceildiv(high, groups.rows), groups.rows, wide, shape.out_channels)
    acc = ctx.stage(compute(ctx.name("acc"), over, formula, axis_names=["n", "ho", "r", "w", "c"]))
    of_channels = sums_of_b(ctx, (shape.out_channels,), lambda w: w.reshape(len(w), -1).sum(1, dtype=np.int32))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        total, taken = acc[n, at[0] // groups.rows, at[0] % groups.rows, at[1], c], of_channels(c, zero)
        return total if taken is None else total - taken

    return conv_result(ctx, shape, result)


def _words(ctx: LowerContext, shape: ConvShape, groups: RowGroups, moved: int, zero: Val) -> Tensor:
    """``[n, ho, q, w, c]``: the words of the padded input."""
    wide = shape.pads_begin[1] + shape.spatial[1] + shape.pads_end[1]
    reach = (groups.rows - 1) * groups.stride + shape.kernel[0]
    read = _padded(ctx, shape, moved, zero)

    def formula(n: IntExpr, ho: IntExpr, q: IntExpr, w: IntExpr, c: IntExpr) -> Val:
        first = ho * groups.step + q * groups.word.per
        return groups.word.of([read(n, c, (first + j, w)) for j in range(min(groups.word.per, reach))])

    full = (shape.batch, ceildiv(shape.out_spatial[0], groups.rows), groups.words, wide, shape.channels)
    return ctx.stage(compute(ctx.name("words"), full, formula, axis_names=["n", "ho", "q", "w", "c"]))


def _padded(ctx: LowerContext, shape: ConvShape, moved: int, zero: Val) -> Reader:
    """Bytes of the padded input; rows behind its end, which meet weights of 0 alone, are its last one."""
    x = ctx.input(0)
    high = shape.pads_begin[0] + shape.spatial[0] + shape.pads_end[0]

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        place = [p - b for p, b in zip((minimum(at[0], high - 1), at[1]), shape.pads_begin, strict=True)]
        value = x[(n, *place, c)].cast(dtypes.int32)
        value = value + moved if moved else value
        inside = shape.inside(place)
        return value if inside is None else select(inside, value, zero)

    return read


def _shifted_taps(w: np.ndarray, groups: RowGroups) -> np.ndarray:
    """``[C, 1, KH, KW]`` of int8 to words ``[rows, words, KW, C]``."""
    channels, _, high, wide = w.shape
    word, kind = groups.word, np.int8 if groups.word == BYTES else np.int16
    elements = np.zeros((groups.rows, groups.words * word.per, wide, channels), kind)
    for r in range(groups.rows):
        elements[r, r * groups.stride : r * groups.stride + high] = w[:, 0].transpose(1, 2, 0)
    packed = [word.pack(rows, groups.words) for rows in elements]
    return np.ascontiguousarray(packed)


def _applies(facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    if shape.rank != 2 or not shape.channels_last:
        return "not an image with channels last"
    if shape.groups == 1 or shape.depth != 1 or shape.per_group != 1:
        return "not one filter for each channel"
    if shape.dilations[0] != 1:
        return f"rows {shape.dilations[0]} apart"
    weight = facts.constants[1]
    if weight is None or weight.size == 0 or weight.dtype != np.int8:
        return "not a constant weight of int8"
    return None if is_zero(facts, 3) else "the weight has a zero point"


def _time(word: Word, share: Callable[[Target], float], facts: NodeFacts) -> float:
    shape = conv_shape(facts)
    groups = row_groups(word, shape.kernel[0], shape.strides[0])
    used = word.per * groups.words / shape.kernel[0]
    made = groups.words / groups.rows * shape.strides[1] * _MADE[word.per]
    return plain_cost(facts, share(facts.target)) * used + made * plain_cost(facts) / math.prod(shape.kernel)


DEPTHWISE = (
    Implementation("ConvInteger", "depthwise", partial(_lower, BYTES), partial(_time, BYTES, share_of_bytes), _applies),
    Implementation(
        "ConvInteger", "depthwise_shorts", partial(_lower, SHORTS), partial(_time, SHORTS, share_of_shorts), _applies
    ),
)
