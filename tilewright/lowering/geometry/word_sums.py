"""Products of matrices whose steps are words of narrow elements: the sums that their implementations share."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import clamped, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import Read, from_panels, panel_sums, product_sizes
from tilewright.lowering.geometry.tile_sums import block_of, tile_sums, whole_steps
from tilewright.lowering.geometry.words import Word
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over
from tilewright.tensor_ir.intrinsics import SIDE


def word_sums(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, elements: Callable[[np.ndarray], np.ndarray], key: str
) -> Read:
    """``acc(batch, row, column)``: the sums of ``word.times`` over the words of A and those of the constant B.

    ``bits(batch, row, depth)``: an element of A in the low bits of an int32. Where A's words are whole, and
    ``in_place``, they are put together where they are read; else by a stage. ``elements``: of the matrix B ``[k, n]``,
    as they are multiplied; ``key`` names that.
    """
    p = product_sizes(ctx)
    rows, steps = p.rows, word.count(p.k)
    of_row = _words_of_rows(ctx, word, bits, steps)
    width = panel_width(rows, p.n, ctx.target, dtypes.int32.itemsize)

    def left(row: IntExpr, step: IntExpr) -> Val:
        return of_row(clamped(row, rows), step)

    if not in_place or not word.is_whole(p.k):
        full_rows = whole_tiles(rows, width, ctx.target, dtypes.int32.itemsize)
        words = ctx.stage(compute(ctx.name("words"), (full_rows, steps), left, axis_names=["m", "q"]))
        left = lambda row, step: words[row, step]  # noqa: E731
    right = _packed_words(ctx, word, elements, steps, width, key)
    q = ctx.axis(steps, "q")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(word.times(left(row, q.index), right[no, q.index, ni]), q)

    return panel_sums(ctx, width, dtypes.int32, formula)


def tile_word_sums(
    ctx: LowerContext, word: Word, bits: Read, elements: Callable[[np.ndarray], np.ndarray], key: str
) -> Read:
    """The same in matrix tiles (:mod:`tilewright.lowering.geometry.tile_sums`), for which a stage puts A's words
    together."""
    p = product_sizes(ctx)
    width, steps = block_of(p.n), whole_steps(word.count(p.k))
    of_row = _words_of_rows(ctx, word, bits, steps)
    right = _packed_words(ctx, word, elements, steps, width, key)
    acc = tile_sums(
        ctx, p.rows, (steps // SIDE,), right.shape[0], width,
        lambda row, step, q: of_row(row, step[0] * SIDE + q),
        lambda no, step, q, ni: right[no, step[0] * SIDE + q, ni],
        word.times,
    )  # fmt: skip
    return from_panels(p, width, acc)


def _words_of_rows(
    ctx: LowerContext, word: Word, bits: Read, steps: IntExpr
) -> Callable[[IntExpr, IntExpr], Val]:  # fmt: skip
    """``f(row, step)``: word ``step`` of ``steps`` of a row of A."""
    p = product_sizes(ctx)

    def of_row(row: IntExpr, step: IntExpr) -> Val:
        *bi, at = unflatten(row, p.row_extents)
        return word.join(lambda depth: bits(bi, at, depth), step, p.k, steps)

    return of_row


def _packed_words(
    ctx: LowerContext, word: Word, elements: Callable[[np.ndarray], np.ndarray], steps: IntExpr, width: int, key: str
) -> Tensor:
    """The constant B in panels ``[no, step, ni]`` of words."""

    def transform(w: np.ndarray) -> np.ndarray:
        matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
        return pack_columns(word.pack(elements(matrix), steps.value()), width, np.dtype(np.int32))

    shape = (ceildiv(product_sizes(ctx).n, width), steps, width)
    return ctx.packed(1, transform, shape, f"{key}_{width}", dtypes.int32)
