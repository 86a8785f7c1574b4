"""Packed contractions: the one form in which matrix products and convolutions are declared.

``acc[rows..., no, ni] = sum over k... of A[rows, k] * Bp[no, k..., ni]``, then ``C[...] = acc[..., n // nr, n % nr]``.
The weight operand is packed in panels of ``nr`` columns (Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication, 2008), so that one step of the reduction reads ``nr`` consecutive values; ``nr`` is a multiple of the
target's vector width chosen for the shape at hand. Constant weights are packed at build time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, ceildiv, const
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.machine.target import Target
from tilewright.tensor_ir.compute import Tensor, Val, compute, index_value, select

_MAX_VECTORS = 8


def panel_width(rows: IntExpr, cols: IntExpr, target: Target, itemsize: int) -> int:
    """Columns of one packed panel: the multiple of the vector width with the best estimated speed.

    The estimate is the share of useful lanes times how close a register tile of that width comes to one multiply-add
    a cycle and port (loads a step, independent accumulators).
    """
    lanes = target.lanes(itemsize)
    n, m = cols.value(), rows.value()
    best, best_score = lanes, -1.0
    for vectors in range(1, _MAX_VECTORS + 1):
        width = vectors * lanes
        if n is not None and vectors > 1 and width >= n + lanes:
            break
        height = target.tile_rows(vectors)
        if m is not None:
            height = max(1, min(height, m))
        accumulators = height * vectors
        speed = min(1.0, accumulators / (height + vectors), accumulators / target.costs.accumulators)
        useful = 1.0 if n is None or n == 0 else n / (-(-n // width) * width)
        score = speed * useful
        if score > best_score + 0.02 or (vectors == 2 and score > best_score - 1e-9):
            best, best_score = width, score
    return best


def pack_columns(matrix: np.ndarray, width: int, dtype: np.dtype) -> np.ndarray:
    """``[K, N] -> [ceil(N / width), K, width]``, zeros in the columns past N."""
    k, n = matrix.shape
    panels = -(-n // width)
    if n % width == 0:
        return np.ascontiguousarray(matrix.reshape(k, panels, width).transpose(1, 0, 2), dtype)
    out = np.zeros((panels, k, width), dtype)
    full = n // width
    if full:
        out[:full] = matrix[:, : full * width].reshape(k, full, width).transpose(1, 0, 2)
    out[full, :, : n - full * width] = matrix[:, full * width :]
    return out


def flatten(index: Sequence[IntExpr], extents: Sequence[IntExpr]) -> IntExpr:
    """The row-major position of ``index``; ``extents`` are those of all coordinates but the first."""
    flat = index[0]
    for i, d in zip(index[1:], extents, strict=True):
        flat = flat * d + i
    return flat


def unflatten(flat: IntExpr, extents: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """The coordinates of row-major position ``flat``: one more than ``extents``, the first without a bound."""
    out: list[IntExpr] = []
    for d in reversed(extents):
        step = const(1) if d == 0 else d  # without elements there is no position
        out.append(flat % step)
        flat = flat // step
    return (flat, *reversed(out))


def packed_stage(
    ctx: LowerContext, batch: Sequence[IntLike], depth: IntLike, cols: IntExpr, width: int, dtype: DType,
    read: Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val], fills: bool = True,
) -> Tensor:  # fmt: skip
    """An operand packed when the function runs: ``[batch..., no, k, ni] = read(batch, k, no*width + ni)``; behind the
    last column zero, or not ``fills``, that column again."""
    rank = len(batch)

    def formula(*i: IntExpr) -> Val:
        column = i[rank] * width + i[rank + 2]
        if not fills:
            return read(i[:rank], i[rank + 1], minimum(column, cols - 1)).cast(dtype)
        value = read(i[:rank], i[rank + 1], column).cast(dtype)
        n = cols.value()
        if n is not None and n % width == 0:
            return value
        return select(index_value(column) < index_value(cols), value, 0)

    shape = (*batch, ceildiv(cols, width), as_expr(depth), as_expr(width))
    names = [*(f"b{d}" for d in range(rank)), "no", "k", "ni"]
    return ctx.stage(compute(ctx.name("pack"), shape, formula, axis_names=names))
