"""Winograd's convolutions F(m x m, 3x3) for m from 2 to 4: fewer products, at the price of transforms and of rounding.

An output tile of ``m x m`` comes from an input patch of ``(m + 2) x (m + 2)``, or ``2m + 1`` a side where the stride is
2: ``Y = A^T [(G g G^T) * (B^T d B)] A``, where the product in the middle is one matrix product over the channels for
each of the positions of the patch. Stages:
``row`` and ``V`` (``B^T d B``, a pass for each side), ``M`` (the products, over weights that are transformed and packed
at build time), ``Z`` and ``Y`` (``A^T M A``, likewise). The matrices are in :mod:`tilewright.core.winograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv, const
from tilewright.core.winograd import WINOGRAD, transformed_weight
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.packing import panel_width, unflatten
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over

Pass = Callable[[Sequence[Val]], list[Val]]


def _before_2(d: Sequence[Val]) -> list[Val]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _after_2(m: Sequence[Val]) -> list[Val]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _before_3(d: Sequence[Val]) -> list[Val]:
    far, near = d[3] - d[1], d[3] - d[2]
    return [far + (d[0] - d[2]) * 2, near - d[1] * 2, near - (d[2] - d[1]) * 2, far, d[4] - d[2] - far * 2]


def _after_3(m: Sequence[Val]) -> list[Val]:
    total, difference = m[1] + m[2], m[1] - m[2]
    return [m[0] + total + m[3], difference + m[3] * 2, total + m[3] * 4 + m[4]]


def _before_4(d: Sequence[Val]) -> list[Val]:
    even, odd = d[4] - d[2] * 4, d[3] - d[1] * 4
    near, far = d[4] - d[2], d[3] - d[1]
    return [
        d[4] - d[2] * 5 + d[0] * 4, even + odd, even - odd, near + far * 2, near - far * 2, d[5] - d[3] * 5 + d[1] * 4,
    ]  # fmt: skip


def _after_4(m: Sequence[Val]) -> list[Val]:
    sum1, sum2, diff1, diff2 = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [m[0] + sum1 + sum2, diff1 + diff2 * 2, sum1 + sum2 * 4, m[5] + diff1 + diff2 * 8]


def _before_2_stride_2(d: Sequence[Val]) -> list[Val]:
    return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]


def _after_2_stride_2(m: Sequence[Val]) -> list[Val]:
    return [m[0] + m[1] + m[3], m[1] + m[2] + m[4]]


def _before_4_stride_2(d: Sequence[Val]) -> list[Val]:
    return [*_before_3(d[0::2]), *d[1::2]]


def _after_4_stride_2(m: Sequence[Val]) -> list[Val]:
    total, difference = m[1] + m[2], m[1] - m[2]
    return [
        m[0] + total + m[3] + m[5], difference + m[3] * 2 + m[6], total + m[3] * 4 + m[7],
        difference + m[3] * 8 + m[4] + m[8],
    ]  # fmt: skip


PASSES: dict[str, tuple[Pass, Pass]] = {
    "winograd2": (_before_2, _after_2),
    "winograd3": (_before_3, _after_3),
    "winograd4": (_before_4, _after_4),
    "winograd2_stride2": (_before_2_stride_2, _after_2_stride_2),
    "winograd4_stride2": (_before_4_stride_2, _after_4_stride_2),
}
"""One-dimensional passes ``B^T`` and ``A^T`` of each algorithm, with the fewest operations."""


@dataclass(frozen=True, slots=True)
class TileGrid:
    """The output cut into tiles: rows and columns of tiles, and all tiles of the batch in a row."""

    rows: IntExpr
    columns: IntExpr
    count: IntExpr

    @staticmethod
    def of(batch: IntExpr, size: Sequence[IntExpr], tile: int) -> TileGrid:
        """The grid over ``batch`` results of ``size``, rows and columns."""
        rows, columns = (ceildiv(d, tile) for d in size)
        return TileGrid(rows, columns, batch * rows * columns)


def transformed_product(
    ctx: LowerContext, name: str, grid: TileGrid, channels: IntExpr, out_channels: IntExpr,
    read: Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val],
) -> Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]:  # fmt: skip
    """``acc(n, c, (h, w))`` of the 3x3 convolution of ``read(n, c, (h, w))``, defined on all of the patches."""
    algorithm = WINOGRAD[name]
    (before, after), m, size = PASSES[name], algorithm.tile, algorithm.patch
    step = m * algorithm.stride

    def row(p: IntExpr, b: IntExpr, i: IntExpr, c: IntExpr) -> Val:
        n, r, q = unflatten(p, (grid.rows, grid.columns))
        return _one_of(i, before([read(n, c, (r * step + a, q * step + b)) for a in range(size)]))

    def both(i: IntExpr, j: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        return _one_of(j, before([rows[p, b, i, c] for b in range(size)]))

    rows = ctx.stage(compute(ctx.name("row"), (grid.count, size, size, channels), row))
    v = ctx.stage(compute(ctx.name("V"), (size, size, grid.count, channels), both))
    width = panel_width(grid.count, out_channels, ctx.target, v.dtype.itemsize)
    packed = _packed(ctx, name, channels, out_channels, width)
    ic = ctx.axis(channels, "ic")

    def product(i: IntExpr, j: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(v[i, j, p, ic] * packed[no, i, j, ic, ni], ic)

    full = (size, size, grid.count, ceildiv(out_channels, width), width)
    products = ctx.stage(compute(ctx.name("M"), full, product))

    def column(p: IntExpr, j: IntExpr, a: IntExpr, c: IntExpr) -> Val:
        return _one_of(a, after([products[i, j, p, c // width, c % width] for i in range(size)]))

    z = ctx.stage(compute(ctx.name("Z"), (grid.count, size, m, out_channels), column))

    def tile(p: IntExpr, a: IntExpr, b: IntExpr, c: IntExpr) -> Val:
        return _one_of(b, after([z[p, j, a, c] for j in range(size)]))

    y = ctx.stage(compute(ctx.name("Y"), (grid.count, m, m, out_channels), tile))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        h, w = at
        return y[(n * grid.rows + h // m) * grid.columns + w // m, h % m, w % m, c]

    return result


def _one_of(i: IntExpr, values: Sequence[Val]) -> Val:
    """``values[i]``."""
    return choose(i, [const(k + 1) for k in range(len(values))], lambda k: values[k])


def _packed(
    ctx: LowerContext, name: str, channels: IntExpr, out_channels: IntExpr, width: int
) -> Tensor:
    algorithm = WINOGRAD[name]
    size = algorithm.patch

    def pack(w: np.ndarray) -> np.ndarray:
        oc, ic = w.shape[:2]
        out = np.zeros((-(-oc // width), size, size, ic, width), np.float32)
        for k, panel in enumerate(out):  # a panel at a time: all of it in float64 would be four times the weights
            some = w[k * width : (k + 1) * width]
            panel[..., : len(some)] = transformed_weight(some, algorithm)
        return out

    shape = (ceildiv(out_channels, width), as_expr(size), as_expr(size), channels, as_expr(width))
    return ctx.packed(1, pack, shape, f"{name}_{width}")


__all__ = ["PASSES", "TileGrid", "transformed_product"]
