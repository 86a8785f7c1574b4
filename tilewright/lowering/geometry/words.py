"""Neighbours along a sum as one int32, the operands of dot products: two bfloat16, two int16 or four bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, spatial_names
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, index_value, op, select

Element = Callable[[IntExpr], Val]
"""An element at a position along the sum, as the low bits of an int32 whose other bits are 0."""


@dataclass(frozen=True, slots=True)
class Word:
    """``per`` elements in 32 bits. ``product``: the scalar operation on two words. ``planes``: so many rows of words,
    one behind the other, stand for the same elements, and their sums take ``products`` of two rows."""

    product: str
    per: int
    planes: int = 1
    products: int = 1

    def times(self, a: Val, b: Val) -> Val:
        return op(self.product, a, b)

    def sum_of_planes(self, a: Callable[[int], Val], b: Callable[[int], Val]) -> Val:
        """The products of what two operands have in their planes: all but those of two low parts."""
        if self.planes == 1:
            return self.times(a(0), b(0))
        return self.times(a(0), b(0)) + self.times(a(1), b(0)) + self.times(a(0), b(1))

    def count(self, depth: IntExpr) -> IntExpr:
        """:meth:`rows` of a size that may be symbolic."""
        return ceildiv(depth, self.per)

    def rows(self, depth: int) -> int:
        """Words that hold ``depth`` elements."""
        return -(-depth // self.per)

    def is_whole(self, depth: IntExpr) -> bool:
        """True if ``depth`` elements are whole words."""
        return bool((depth % self.per).value() == 0)

    def join(self, element: Element, step: IntExpr, depth: IntExpr, steps: IntExpr | None = None) -> Val:
        """The word of the elements from ``per * step`` on, 0 past ``depth``. ``steps``: how many words there are, if
        more than hold elements."""
        whole, zero = self.is_whole(depth), constant(0, dtypes.int32)
        parts = []
        for j in range(self.per):
            at = step * self.per + j
            v = element(at)
            parts.append(v if whole else select(index_value(at) < index_value(depth), v, zero))
        word = self.of(parts)
        if not whole or steps is None or steps == self.count(depth):
            return word
        return select(index_value(step) < index_value(self.count(depth)), word, zero)

    def of(self, elements: Sequence[Val]) -> Val:
        """The word of at most ``per`` elements, each the low bits of an int32; 0 in the place of others."""
        width = 32 // self.per
        return reduce(lambda x, y: op("bit_or", x, y), [shifted(v, width * j) for j, v in enumerate(elements)])

    def pack(self, w: np.ndarray, steps: int | None = None) -> np.ndarray:
        """``[k, ...]`` of elements to ``[steps, ...]`` of int32, zeros past the end; ``steps``: None for as many words
        as hold elements."""
        k, *rest = w.shape
        padded = np.zeros(((steps or self.rows(k)) * self.per, *rest), w.dtype)
        padded[:k] = w
        words = np.ascontiguousarray(np.moveaxis(padded.reshape(-1, self.per, *rest), 1, -1))
        found: np.ndarray = words.view("<i4")[..., 0]
        return found

    def pack_oihw(self, w: np.ndarray, steps: int | None = None) -> np.ndarray:
        """``[OC, IC, taps...]`` of elements to ``[OC, steps, taps...]`` of int32, as :meth:`pack`."""
        found: np.ndarray = np.moveaxis(self.pack(np.moveaxis(w, 1, 0), steps), 0, 1)
        return found


def shifted(word: Val, by: int) -> Val:
    """``word`` with its bits ``by`` places higher, or lower."""
    if by == 0:
        return word
    return op("shift_left" if by > 0 else "shift_right", word, constant(abs(by), dtypes.int32))


BYTES = Word("dot4", 4)
PAIRS = Word("dot2", 2)
SHORTS = Word("dot2i", 2)


def words_of_row(word: Word, shape: ConvShape) -> int:
    """The words that a pixel of the result reads of a row of the image."""
    return word.rows(shape.depth.value() or word.per) * shape.kernel[-1]


def in_fewer_words(word: Word, shape: ConvShape) -> ConvShape:
    """``shape``, or the same with the taps of a row as channels where those of a pixel are no whole words and the row
    is no more words: then the elements may be read as they lie."""
    rows = shape.rows_as_channels()
    if rows is None or not shape.depth.is_const or word.is_whole(shape.depth) or shape.kernel[-1] == 1:
        return shape
    return rows if words_of_row(word, rows) <= words_of_row(word, shape) else shape


def padded_rows(
    ctx: LowerContext, shape: ConvShape, border: Val, element: Callable[[Val], Val] = lambda v: v, room: int = 0
) -> Tensor:
    """A stage of the padded image with channels last, each row of it one dimension. ``element``: what is kept of each;
    ``room``: so many elements of a border behind a row."""
    x, channels = ctx.input(0), shape.channels
    before, size = shape.pads_begin[-1] * channels, shape.spatial[-1] * channels

    def formula(n: IntExpr, *at: IntExpr) -> Val:
        *outer, e = at
        there, row = [p - b for p, b in zip(outer, shape.pads_begin[:-1], strict=True)], e - before
        sizes = (*zip(there, shape.spatial[:-1], strict=True), (row, size))
        inside = reduce(lambda a, b: a & b, (in_range(p, 0, extent) for p, extent in sizes))
        return select(inside, element(x[(n, *there, row // channels, row % channels)]), border)

    *outer, last = shape.unpadded.spatial
    full = (shape.batch, *outer, last * channels + room)
    return ctx.stage(compute(ctx.name("rows"), full, formula, axis_names=["n", *spatial_names(shape.rank)]))


def words_of_rows(
    ctx: LowerContext, whole: ConvShape, words: ConvShape, word: Word, border: Val,
    element: Callable[[Val], Val], bits: Callable[[Val], Val],
) -> Reader:  # fmt: skip
    """``read(n, c, at)`` of word ``c`` of an image of which the taps of a row are channels (:func:`in_fewer_words`), as
    it lies in a copy of :func:`padded_rows`; ``bits``: of an element of that. Behind the last tap a word has what comes
    next there, which zeros of the weight meet.

    ``whole``, ``words``: the geometry as it is, and with a row's taps as channels, counted in words.
    """
    pixel = whole.channels
    room = int(words.depth) * word.per - int(pixel) * whole.kernel[-1]
    rows = padded_rows(ctx, whole, border, element, room)

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        *outer, last = at
        return word.join(lambda d: bits(rows[(n, *outer, last * pixel + d)]), c, words.depth * word.per)

    return read


def elements_of_image(ctx: LowerContext, shape: ConvShape, rows: Tensor | None) -> Reader:
    """``read(n, c, at)`` of the input, or of ``rows`` in its place (:func:`padded_rows`)."""
    x = ctx.input(0)

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        if rows is None or shape.of_pixel is None:
            return x[shape.element(n, c, at)]
        return rows[(n, *at[:-1], at[-1] * shape.of_pixel + c)]

    return read


def words_of_image(
    ctx: LowerContext, shape: ConvShape, words: ConvShape, word: Word, bits: Callable[[Val], Val],
    border: Callable[[IntExpr], Val], in_place: bool, rows: Tensor | None = None,
) -> Reader:  # fmt: skip
    """``read(n, c, at)`` of word ``c`` of the padded input of a convolution.

    ``words``: the geometry with channels counted in words, each group's its own; ``bits``: of an element;
    ``border(step)``: what a word outside the image holds. Where nothing is to be added and whole words of channels lie
    together, and ``in_place``, the input is read as it lies; else a stage collects the words. ``rows``: read instead of
    the input (:func:`padded_rows`).
    """
    element = elements_of_image(ctx, shape, rows)

    def group_and_step(c: IntExpr) -> tuple[IntExpr, IntExpr]:
        return (c // words.depth, c % words.depth) if shape.groups > 1 else (const(0), c)

    def of_pixel(n: IntExpr, c: IntExpr, at: tuple[IntExpr, ...]) -> Val:
        g, step = group_and_step(c)
        return word.join(lambda d: bits(element(n, g * shape.depth + d, at)), step, shape.depth, words.depth)

    whole = word.is_whole(shape.depth) or shape.of_pixel is not None
    if shape.channels_last and not shape.needs_padding and in_place and whole:
        return lambda n, c, at: of_pixel(n, c, tuple(at))
    extents = [b + s + e for b, s, e in zip(shape.pads_begin, shape.spatial, shape.pads_end, strict=True)]

    def formula(*i: IntExpr) -> Val:
        at = tuple(p - b for p, b in zip(i[1:-1], shape.pads_begin, strict=True))
        value = of_pixel(i[0], i[-1], at)
        inside = shape.inside(at)
        return value if inside is None else select(inside, value, border(group_and_step(i[-1])[1]))

    full = (shape.batch, *extents, words.channels)
    stage = ctx.stage(compute(ctx.name("words"), full, formula, axis_names=["n", *spatial_names(shape.rank), "q"]))
    return lambda n, c, at: stage[(n, *at, c)]
