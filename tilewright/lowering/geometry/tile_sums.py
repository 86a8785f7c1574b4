"""Sums of products of words in matrix tiles, for the tensor intrinsics ``tiles_*``
(:mod:`tilewright.tensor_ir.intrinsics`).

``acc[m, no, ni] = sum over s, q of times(A[m // h, s, m % h, q], B[no, s, q, ni])``: blocks of ``h`` rows and ``ni``
columns, each one or two tiles, in steps of ``q`` words, a row of a tile. A stage puts A into such blocks. Whatever is
past the end of the sum is 0 in both; rows past the end repeat the last one and are never stored.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import LowerContext
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over
from tilewright.tensor_ir.intrinsics import SIDE


def block_of(extent: IntExpr) -> int:
    """Rows or columns of a block: those of two tiles, unless there are fewer. Four sums do not wait for each other, and
    what they win is more than what empty rows and columns cost."""
    n = extent.value()
    return 2 * SIDE if n is None or n >= 2 * SIDE else SIDE


def whole_steps(words: IntExpr) -> IntExpr:
    """``words``, rounded up to whole rows of a tile."""
    return ceildiv(words, SIDE) * SIDE


def tile_sums(
    ctx: LowerContext, rows: IntExpr, steps: IntExpr, panels: IntExpr, width: int,
    left: Callable[[IntExpr, IntExpr, IntExpr], Val], right: Callable[[IntExpr, IntExpr, IntExpr, IntExpr], Val],
    times: Callable[[Val, Val], Val],
) -> Tensor:  # fmt: skip
    """``acc[row, no, ni]``. ``left(row, step, q)``: a word of A; ``right(no, step, q, ni)``: one of B, packed so that
    its panels have ``width`` columns next to each other. ``steps``: of ``q`` words each."""
    height = block_of(rows)
    blocks = ceildiv(rows, height)

    def of_block(mo: IntExpr, s: IntExpr, mi: IntExpr, q: IntExpr) -> Val:
        row = mo * height + mi
        return left(row if (rows % height).value() == 0 else minimum(row, rows - 1), s, q)

    words = ctx.stage(
        compute(ctx.name("tiles"), (blocks, steps, height, SIDE), of_block, axis_names=["mo", "s", "mi", "q"])
    )
    s, q = ctx.axis(steps, "s"), ctx.axis(SIDE, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        a = words[m // height, s.index, m % height, q.index]
        return sum_over(times(a, right(no, s.index, q.index, ni)), s, q)

    full = (blocks * height, panels, width)
    return ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
