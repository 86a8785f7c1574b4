"""Products of matrices whose steps are words of narrow elements: the sums that their implementations share."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import Read, product_sizes
from tilewright.lowering.geometry.words import Word
from tilewright.tensor_ir.compute import Reduction, Val, compute, sum_over


def word_sums(
    ctx: LowerContext, word: Word, bits: Read, in_place: bool, elements: Callable[[np.ndarray], np.ndarray], key: str
) -> Read:
    """``acc(batch, row, column)``: the sums of ``word.times`` over the words of A and those of the constant B.

    ``bits(batch, row, depth)``: an element of A in the low bits of an int32. Where A's words are whole, and
    ``in_place``, they are put together where they are read; else by a stage. ``elements``: of the matrix B ``[k, n]``,
    as they are multiplied; ``key`` names that.
    """
    p = product_sizes(ctx)
    rows, inner, k = p.rows, p.row_extents, p.k
    width = panel_width(rows, p.n, ctx.target, dtypes.int32.itemsize)
    steps, panels = word.count(k), ceildiv(p.n, width)
    full_rows = whole_tiles(rows, width, ctx.target, dtypes.int32.itemsize)

    def of_row(row: IntExpr, step: IntExpr) -> Val:
        *bi, at = unflatten(clamped(row, rows), inner)
        return word.join(lambda depth: bits(bi, at, depth), step, k)

    left = of_row
    if not in_place or not word.is_whole(k):
        words = ctx.stage(compute(ctx.name("words"), (full_rows, steps), of_row, axis_names=["m", "q"]))
        left = lambda row, step: words[row, step]  # noqa: E731

    def transform(w: np.ndarray) -> np.ndarray:
        matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
        return pack_columns(word.pack(elements(matrix)), width, np.dtype(np.int32))

    right = ctx.packed(1, transform, (panels, steps, width), f"{key}_{width}", dtypes.int32)
    q = ctx.axis(steps, "q")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(word.times(left(row, q.index), right[no, q.index, ni]), q)

    acc = ctx.stage(compute(ctx.name("acc"), (full_rows, panels, width), formula, axis_names=["m", "no", "ni"]))
    return lambda bi, row, col: acc[flatten((*bi, row), inner), col // width, col % width]
