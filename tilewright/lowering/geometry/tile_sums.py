"""Sums of products of words in matrix tiles, for the tensor intrinsics ``tiles_*``
(:mod:`tilewright.tensor_ir.intrinsics`).

``acc[m, no, ni] = sum over s, q of times(A[m // h, s, m % h, q], B[no, s, q, ni])``: blocks of ``h`` rows and ``ni``
columns, each one or two tiles, in steps of ``q`` words, a row of a tile. A stage puts A into such blocks; there the
steps may have several dimensions (taps, and words of channels). Whatever is past the end of the sum is 0 in both; rows
past the end repeat the last one and are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.core.arith.expr import ONE, IntExpr, as_expr, ceildiv, product
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import unflatten
from tilewright.lowering.geometry.words import Word
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over
from tilewright.tensor_ir.intrinsics import SIDE

Place: TypeAlias = Sequence[IntExpr]
"""A step by dimension."""

BLOCK = 2 * SIDE
"""Rows and columns of a block."""


def block_of(extent: IntExpr) -> int:
    """Rows or columns of a block: those of two tiles, unless one has them all. Four sums do not wait for each other,
    and what they win is more than what empty rows and columns cost."""
    n = extent.value()
    return BLOCK if n is None or n > SIDE else SIDE


def whole_steps(words: IntExpr) -> IntExpr:
    """``words``, rounded up to whole rows of a tile."""
    return ceildiv(words, SIDE) * SIDE


def tile_sums(
    ctx: LowerContext, rows: IntExpr, steps: Sequence[IntExpr], panels: IntExpr, width: int,
    left: Callable[[IntExpr, Place, IntExpr], Val], right: Callable[[IntExpr, Place, IntExpr, IntExpr], Val],
    word: Word, used: IntExpr = ONE,
) -> Tensor:  # fmt: skip
    """``acc[row, no, ni]``. ``left(row, step, q)``: a word of A; ``right(no, step, q, ni)``: one of B, packed so that
    its panels have ``width`` columns next to each other. ``steps``: of ``q`` words of each plane, by dimension; ``q``
    goes over all planes. ``used``: 1, or 0 where nothing is summed."""

    def of_plane(row: IntExpr, step: Place, q: IntExpr) -> Val:
        return left(row, step, q) if word.planes == 1 else left(row, step[:-1], step[-1] * SIDE + q)

    planes = (as_expr(word.planes),) if word.planes > 1 else ()
    words, blocks, height = _blocks(ctx, rows, (*steps[:-1], steps[-1] * used, *planes), of_plane)
    s, q = ctx.axis(product(steps) * used, "s"), ctx.axis(SIDE, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        step = unflatten(s.index, steps[1:])

        def a(plane: int) -> Val:
            at = [as_expr(plane)] if planes else []
            return words[(m // height, *step, *at, m % height, q.index)]

        return sum_over(word.sum_of_planes(a, lambda plane: right(no, step, q.index + plane * SIDE, ni)), s, q)

    return ctx.stage(compute(ctx.name("acc"), (blocks * height, panels, width), formula, axis_names=["m", "no", "ni"]))


def _blocks(
    ctx: LowerContext, rows: IntExpr, steps: Sequence[IntExpr], left: Callable[[IntExpr, Place, IntExpr], Val]
) -> tuple[Tensor, IntExpr, int]:
    """A in blocks, how many there are, and the rows of one."""
    height = block_of(rows)
    blocks = ceildiv(rows, height)

    def of_block(mo: IntExpr, *at: IntExpr) -> Val:
        *step, mi, q = at
        row = mo * height + mi
        return left(row if (rows % height).value() == 0 else minimum(row, rows - 1), step, q)

    names = ["mo", *(f"s{n}" for n in range(len(steps))), "mi", "q"]
    full: tuple[IntExpr | int, ...] = (blocks, *steps, height, SIDE)
    return ctx.stage(compute(ctx.name("tiles"), full, of_block, axis_names=names)), blocks, height


def grouped_sums(
    ctx: LowerContext, rows: IntExpr, groups: IntExpr, parts: int, steps: int, panels: IntExpr, width: int,
    left: Callable[[IntExpr, Place, IntExpr], Val],
    right: Callable[[IntExpr, IntExpr, IntExpr, IntExpr, IntExpr], Val],
    scale: Callable[[IntExpr, IntExpr, IntExpr], Val], times: Callable[[Val, Val], Val],
) -> Tensor:  # fmt: skip
    """``acc[row, no, ni]``, the sum over ``groups`` of ``scale(no, g, ni)`` times the sums of their products. A is a
    sum of ``parts``: ``left(row, (g, part, step), q)``; B, which they share, is put into panels: ``right(no, g, step,
    q, ni)``. A group has ``steps`` of ``q`` words each."""
    words, blocks, height = _blocks(ctx, rows, (groups, as_expr(parts), as_expr(steps)), left)
    b = ctx.stage(
        compute(ctx.name("panels"), (panels, groups, steps, SIDE, width), right, axis_names=["no", "g", "s", "q", "ni"])
    )
    d, s, q, over = ctx.axis(parts, "d"), ctx.axis(steps, "s"), ctx.axis(SIDE, "q"), ctx.axis(groups, "g")

    def of_group(g: IntExpr, m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        a = words[m // height, g, d.index, s.index, m % height, q.index]
        return sum_over(times(a, b[no, g, s.index, q.index, ni]), d, s, q)

    full = (blocks * height, panels, width)
    sums = ctx.stage(compute(ctx.name("group"), (groups, *full), of_group, axis_names=["g", "m", "no", "ni"]))

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(sums[over.index, m, no, ni] * scale(no, over.index, ni), over)

    return ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))


LONGEST_RUN = 8 * SIDE
"""Rows that are computed together where only a call tells how many follow each other, at most."""


def rows_of_blocks(rows: IntExpr) -> IntExpr:
    """So many rows that a block which begins in any of ``rows`` has all of its own, in whole blocks; of a symbolic
    number, a run of blocks."""
    beyond = BLOCK - 1 if rows.is_const else LONGEST_RUN
    return ceildiv(rows + beyond, BLOCK) * BLOCK


def shifted_sums(
    ctx: LowerContext, image: Tensor, rows: IntExpr, taps: IntExpr, steps: IntExpr, panels: IntExpr, width: int,
    place: Callable[[IntExpr, IntExpr, IntExpr], tuple[IntExpr, IntExpr]],
    right: Callable[[IntExpr, IntExpr, IntExpr, IntExpr, IntExpr], Val], word: Word,
) -> Tensor:  # fmt: skip
    """``acc[row, no, ni]`` of rows that are neighbours in an ``image`` of words, read where they lie.

    ``place(tap, step, q)``: how far behind its row a word of a step lies, in rows and words; ``q`` goes over all planes
    of ``word``. Two strides reach all steps, one over ``taps`` and one over ``steps``. ``right(no, tap, step, q, ni)``:
    a word of B. There are :func:`rows_of_blocks` rows, all of which the image must have.
    """
    t, s, q = ctx.axis(taps, "t"), ctx.axis(steps, "s"), ctx.axis(SIDE, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        def a(plane: int) -> Val:
            down, along = place(t.index, s.index, q.index + plane * SIDE)
            return image[m + down, along]

        def b(plane: int) -> Val:
            return right(no, t.index, s.index, q.index + plane * SIDE, ni)

        return sum_over(word.sum_of_planes(a, b), t, s, q)

    full = (rows_of_blocks(rows), panels, width)
    return ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
