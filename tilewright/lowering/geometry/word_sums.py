"""Products of matrices whose steps are words of narrow elements: the sums that their implementations share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE, IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import pack_columns, panel_width
from tilewright.lowering.geometry.product import (
    LEAST_ROWS,
    Read,
    few_or_many,
    from_panels,
    panel_sums,
    place_of_row,
    product_sizes,
    rows_one_by_one,
)
from tilewright.lowering.geometry.split_pairs import split_row_sums
from tilewright.lowering.geometry.tile_sums import block_of, tile_sums, whole_steps
from tilewright.lowering.geometry.words import BYTES, Word
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over
from tilewright.tensor_ir.intrinsics import SIDE

Elements: TypeAlias = Callable[[np.ndarray], np.ndarray]
Right: TypeAlias = Callable[[], Tensor]
"""B in panels of words; packed when it is asked for, behind the stages that put A's words together."""


def word_sums(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, elements: Elements, key: str, by_rows: bool = False
) -> Read:
    """``acc(batch, row, column)``: the sums of ``word.times`` over the words of A and those of the constant B.

    ``bits(batch, row, depth)``: an element of A in the low bits of an int32. Where A's words are whole, and
    ``in_place``, they are put together where they are read; else by a stage. ``elements``: of the matrix B ``[k, n]``,
    as they are multiplied; ``key`` names that. ``by_rows``: few rows are summed one by one.
    """
    p = product_sizes(ctx)
    steps = word.count(p.k)
    width = panel_width(p.rows, p.n, ctx.target, dtypes.int32.itemsize)

    def sums(many: IntExpr, right: Right) -> Read:
        return panel_sums(
            ctx, width, dtypes.int32, _row_sums(ctx, word, bits, in_place, p.rows * many, steps * many, right)
        )

    pack = partial(_packed_words, ctx, word, elements, steps, width, key)
    if not by_rows:
        return sums(ONE, pack)
    packed = pack()
    return _by_rows(ctx, word, bits, in_place, packed, width, LEAST_ROWS, lambda many: sums(many, lambda: packed))


def tile_word_sums(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, elements: Elements, key: str, by_rows: bool = False
) -> Read:
    """The same in matrix tiles (:mod:`tilewright.lowering.geometry.tile_sums`), for which a stage puts A's words
    together. ``in_place``: of rows that are summed one by one."""
    p = product_sizes(ctx)
    width, steps = block_of(p.n), whole_steps(word.count(p.k))
    of_row = _words_of_rows(ctx, word, bits, steps)
    packed = _packed_words(ctx, word, elements, steps, width, key)

    def sums(many: IntExpr) -> Read:
        of_step = SIDE * word.planes
        acc = tile_sums(
            ctx, p.rows, (steps // of_step,), packed.shape[0], width,
            lambda row, step, q: of_row(row, step[0] * of_step + q),
            lambda no, step, q, ni: packed[no, step[0] * of_step + q, ni],
            word, many,
        )  # fmt: skip
        return from_panels(p, width, acc)

    if not by_rows:
        return sums(ONE)
    costs = ctx.target.costs
    if word.planes > 1:
        return few_or_many(ctx, width, costs.split_rows, split_row_sums(ctx, packed), sums)
    least = costs.byte_rows if word.per == BYTES.per else costs.pair_rows
    return _by_rows(ctx, word, bits, in_place, packed, width, least, sums)


def _by_rows(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, packed: Tensor, width: int,
    least: int, sums: Callable[[IntExpr], Read],
) -> Read:  # fmt: skip
    """``sums(1)`` of at least ``least`` rows; of fewer row by row, from the same ``packed`` words of B."""
    p = product_sizes(ctx)
    few = _row_sums(ctx, word, bits, in_place, rows_one_by_one(p, least), word.count(p.k), lambda: packed)
    return few_or_many(ctx, width, least, few, sums)


def _row_sums(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, rows: IntExpr, depth: IntExpr, right: Right
) -> Callable[[IntExpr, IntExpr, IntExpr], Reduction]:  # fmt: skip
    """The formula of a sum of ``depth`` steps for a row, a panel and a column. ``rows``: how many are asked for."""
    p = product_sizes(ctx)
    steps = word.count(p.k)
    left = _words_of_rows(ctx, word, bits, steps)
    if not in_place or not word.is_whole(p.k):
        words = ctx.stage(compute(ctx.name("words"), (rows, steps), left, axis_names=["m", "q"]))
        left = lambda row, step: words[row, step]  # noqa: E731
    b, q = right(), ctx.axis(depth, "q")
    return lambda row, no, ni: sum_over(word.times(left(row, q.index), b[no, q.index, ni]), q)


def _words_of_rows(
    ctx: LowerContext, word: Word, bits: Read, steps: IntExpr
) -> Callable[[IntExpr, IntExpr], Val]:  # fmt: skip
    """``f(row, step)``: word ``step`` of ``steps`` of a row of A."""
    p = product_sizes(ctx)

    def of_row(row: IntExpr, step: IntExpr) -> Val:
        bi, at = place_of_row(p, row)
        return word.join(lambda depth: bits(bi, at, depth), step, p.k, steps)

    return of_row


def _packed_words(ctx: LowerContext, word: Word, elements: Elements, steps: IntExpr, width: int, key: str) -> Tensor:
    """The constant B in panels ``[no, step, ni]`` of words."""

    def transform(w: np.ndarray) -> np.ndarray:
        matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
        return pack_columns(word.pack(elements(matrix), steps.value()), width, np.dtype(np.int32))

    shape = (ceildiv(product_sizes(ctx).n, width), steps, width)
    return ctx.packed(1, transform, shape, f"{key}_{width}", dtypes.int32)
