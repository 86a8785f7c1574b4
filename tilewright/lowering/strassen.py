"""Strassen's algorithm, one level of it: seven products of half the size in each direction instead of eight.

A tile is a pair of neighbouring rows. The columns of the left operand are cut in halves, and so are rows and columns of
the weight. ``V`` are sums of quarters of the left operand, ``M`` its products with sums of quarters of the weight,
which are made and packed at build time, ``Y`` the sums of those. The factors are in :mod:`tilewright.core.strassen`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.core.strassen import LEFT, PRODUCTS, RESULT, combined_weight, signed_sum
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import pack_columns, panel_width
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import Reduction, Val, compute, sum_over


def strassen_product(
    ctx: LowerContext, batch: int, rows: int, depth: int, columns: int, dtype: DType,
    read: Callable[[IntExpr, IntExpr, IntExpr], Val],
) -> Callable[[IntExpr, IntExpr, IntExpr], Val]:  # fmt: skip
    """``acc(b, row, column)`` of the products of ``read(b, row, k)`` with the constant input 1, ``[depth, columns]``.

    ``depth`` is even, ``columns`` a multiple of twice the lanes of a vector. A single last row is a pair with itself.

    Raises UnsupportedError for other columns.
    """
    pairs, half_depth, half = -(-rows // 2), depth // 2, columns // 2
    tiles = const(batch * pairs)

    def left(t: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        b, first = p // pairs, p % pairs * 2
        at = (first, first + 1 if rows % 2 == 0 else minimum(first + 1, const(rows - 1)))
        quarters = [read(b, row, c + start) for row in at for start in (0, half_depth)]
        return _one_of(t, LEFT, quarters)

    v = ctx.stage(compute(ctx.name("V"), (const(PRODUCTS), tiles, const(half_depth)), left))
    lanes = ctx.target.lanes(dtype.itemsize)
    best = panel_width(tiles, const(half), ctx.target, dtype.itemsize)
    width = next((w for w in range(best, 0, -lanes) if half % w == 0), 0)
    if width == 0:
        raise ctx.unsupported(f"Strassen's algorithm for {columns} columns, expected a multiple of {2 * lanes}")

    def pack(w: np.ndarray) -> np.ndarray:
        return np.stack([pack_columns(part, width, dtype.numpy) for part in combined_weight(w)], axis=1)

    panels = const(half // width)
    packed = ctx.packed(
        1, pack, (panels, const(PRODUCTS), const(half_depth), const(width)), f"strassen_{width}", dtype
    )
    k = ctx.axis(const(half_depth), "k")

    def product(t: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(v[t, p, k] * packed[no, t, k, ni], k)

    m = ctx.stage(compute(ctx.name("M"), (const(PRODUCTS), tiles, panels, const(width)), product))

    def quarter(p: IntExpr, r: IntExpr, h: IntExpr, c: IntExpr) -> Val:
        return _one_of(r * 2 + h, RESULT, [m[t, p, c // width, c % width] for t in range(PRODUCTS)])

    y = ctx.stage(compute(ctx.name("Y"), (tiles, const(2), const(2), const(half)), quarter))
    return lambda b, row, col: y[b * pairs + row // 2, row % 2, col // half, col % half]


def _one_of(i: IntExpr, factors: Sequence[Sequence[int]], values: Sequence[Val]) -> Val:
    """The sum of ``values`` times ``factors[i]``, each 1, 0 or -1."""
    return choose(i, [const(n + 1) for n in range(len(factors))], lambda n: signed_sum(factors[n], values))


__all__ = ["strassen_product"]
