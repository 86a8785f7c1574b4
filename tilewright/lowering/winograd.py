"""Winograd's convolutions F(2x2, 3x3) and F(4x4, 3x3): fewer products, at the price of transforms and of rounding.

An output tile of ``m x m`` comes from an input patch of ``(m + 2) x (m + 2)``: ``Y = A^T [(G g G^T) * (B^T d B)] A``,
where the product in the middle is one matrix product over the channels for each of the ``(m + 2)^2`` positions. Stages:
``row`` and ``V`` (``B^T d B``, a pass for each side), ``M`` (the products, over weights that are transformed and packed
at build time), ``Z`` and the result (``A^T M A``, likewise). Sources: Winograd (1980); Lavin and Gray, Fast Algorithms
for Convolutional Neural Networks (2015), whose matrices these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.intexpr import IntExpr, as_expr, ceildiv, const
from tilewright.lowering.contraction import pack_columns, panel_width, unflatten
from tilewright.lowering.context import LowerContext
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over

Pass = Callable[[Sequence[Val]], list[Val]]


@dataclass(frozen=True, slots=True)
class Transform:
    """One algorithm. ``tile``: outputs a side; ``patch``: inputs and products a side; ``g``: the matrix ``G``.

    ``before`` and ``after`` are one-dimensional passes of ``B^T`` and ``A^T``, with the fewest operations.
    """

    tile: int
    before: Pass
    after: Pass
    g: tuple[tuple[float, ...], ...]

    @property
    def patch(self) -> int:
        return self.tile + 2


def _before_2(d: Sequence[Val]) -> list[Val]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _after_2(m: Sequence[Val]) -> list[Val]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _before_4(d: Sequence[Val]) -> list[Val]:
    even, odd = d[4] - d[2] * 4, d[3] - d[1] * 4
    near, far = d[4] - d[2], d[3] - d[1]
    return [
        d[4] - d[2] * 5 + d[0] * 4, even + odd, even - odd, near + far * 2, near - far * 2, d[5] - d[3] * 5 + d[1] * 4,
    ]  # fmt: skip


def _after_4(m: Sequence[Val]) -> list[Val]:
    sum1, sum2, diff1, diff2 = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [m[0] + sum1 + sum2, diff1 + diff2 * 2, sum1 + sum2 * 4, m[5] + diff1 + diff2 * 8]


TRANSFORMS: dict[str, Transform] = {
    "winograd2": Transform(
        2, _before_2, _after_2, ((1.0, 0.0, 0.0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0.0, 0.0, 1.0))
    ),
    "winograd4": Transform(
        4, _before_4, _after_4,
        (
            (1 / 4, 0.0, 0.0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6), (0.0, 0.0, 1.0),
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TileGrid:
    """The output cut into tiles: rows and columns of tiles, and all tiles of the batch in a row."""

    rows: IntExpr
    columns: IntExpr
    count: IntExpr

    @staticmethod
    def of(batch: IntExpr, height: IntExpr, width: IntExpr, tile: int) -> TileGrid:
        rows, columns = ceildiv(height, tile), ceildiv(width, tile)
        return TileGrid(rows, columns, batch * rows * columns)


def transformed_product(
    ctx: LowerContext, transform: Transform, grid: TileGrid, channels: IntExpr, out_channels: IntExpr,
    read: Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val],
) -> Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]:  # fmt: skip
    """``acc(n, c, (h, w))`` of the 3x3 convolution of ``read(n, c, (h, w))``, which is defined on all of the patches."""
    m, size = transform.tile, transform.patch

    def row(p: IntExpr, b: IntExpr, i: IntExpr, c: IntExpr) -> Val:
        n, r, q = unflatten(p, (grid.rows, grid.columns))
        return _one_of(i, transform.before([read(n, c, (r * m + a, q * m + b)) for a in range(size)]))

    def both(i: IntExpr, j: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        return _one_of(j, transform.before([rows[p, b, i, c] for b in range(size)]))

    rows = ctx.stage(compute(ctx.name("row"), (grid.count, size, size, channels), row))
    v = ctx.stage(compute(ctx.name("V"), (size, size, grid.count, channels), both))
    width = panel_width(grid.count, out_channels, ctx.target, v.dtype.itemsize)
    packed = _packed(ctx, transform, channels, out_channels, width)
    ic = ctx.axis(channels, "ic")

    def product(i: IntExpr, j: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(v[i, j, p, ic] * packed[no, i, j, ic, ni], ic)

    full = (size, size, grid.count, ceildiv(out_channels, width), width)
    products = ctx.stage(compute(ctx.name("M"), full, product))

    def column(p: IntExpr, j: IntExpr, a: IntExpr, c: IntExpr) -> Val:
        return _one_of(a, transform.after([products[i, j, p, c // width, c % width] for i in range(size)]))

    z = ctx.stage(compute(ctx.name("Z"), (grid.count, size, m, out_channels), column))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        h, w = at
        p = (n * grid.rows + h // m) * grid.columns + w // m
        return _one_of(w % m, transform.after([z[p, j, h % m, c] for j in range(size)]))

    return result


def _one_of(i: IntExpr, values: Sequence[Val]) -> Val:
    """``values[i]``."""
    return choose(i, [const(k + 1) for k in range(len(values))], lambda k: values[k])


def _packed(
    ctx: LowerContext, transform: Transform, channels: IntExpr, out_channels: IntExpr, width: int
) -> Tensor:
    size = transform.patch

    def pack(w: np.ndarray) -> np.ndarray:
        u = transformed_weight(w, transform)
        oc, ic = u.shape[:2]
        columns = pack_columns(u.transpose(2, 3, 1, 0).reshape(-1, oc), width, np.dtype(np.float32))
        return columns.reshape(-1, size, size, ic, width)

    shape = (ceildiv(out_channels, width), as_expr(size), as_expr(size), channels, as_expr(width))
    return ctx.packed(1, pack, shape, f"winograd{transform.tile}_{width}")


def transformed_weight(w: np.ndarray, transform: Transform) -> np.ndarray:
    """``G g G^T`` for each of the kernels ``[oc, ic, 3, 3]``, in float64."""
    g = np.asarray(transform.g, np.float64)
    return np.asarray(g @ w.astype(np.float64) @ g.T)


__all__ = ["TRANSFORMS", "TileGrid", "Transform", "transformed_product", "transformed_weight"]
