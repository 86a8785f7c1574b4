"""Products of 8-bit matrices four steps at a time: ``acc[row, no, ni] += dot4(A4[row, q], B4[no, q, ni])``.

Four neighbours along k are one int32, those of A unsigned and those of B signed; elements of the other kind are moved
by 128, and so are their zero points. B is packed at build time. With ``a`` and ``b`` as they are multiplied, of zero
points ``za`` and ``zb``, the result is ``sum(a b) - za sum(b) - zb sum(a) + K za zb``, all of it modulo 2^32.
"""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import column_parameter, lower_matmul_integer, row_parameter
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, index_value, op, select, sum_over

_QUAD = 4
_MOVED = 128
_SHARE = 0.3
"""Of the time of multiplying one by one; with the packing of A."""


def _moved(w: np.ndarray) -> np.ndarray:
    """B as it is multiplied: int8, [k, n]."""
    matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
    return matrix if matrix.dtype == np.int8 else (matrix ^ _MOVED).view(np.int8)


def _quads(w: np.ndarray, width: int) -> np.ndarray:
    """``[no, ceil(k / 4), ni]`` of four bytes, zeros past the end."""
    matrix = _moved(w)
    k, n = matrix.shape
    padded = np.zeros((-(-k // _QUAD), _QUAD, n), np.int8)
    padded.reshape(-1, n)[:k] = matrix
    words = np.ascontiguousarray(padded.transpose(0, 2, 1)).view("<i4").reshape(-1, n)
    return pack_columns(words, width, np.dtype(np.int32))


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner, k = p.rows, p.row_extents, p.k
    width = panel_width(rows, p.n, ctx.target, dtypes.int32.itemsize)
    a_by = _MOVED if ctx.input(0).dtype == dtypes.int8 else 0
    b_by = _MOVED if ctx.input(1).dtype == dtypes.uint8 else 0
    steps = ceildiv(k, _QUAD)

    def element(row: IntExpr, depth: IntExpr) -> Val:
        *bi, at = unflatten(clamped(row, rows), inner)
        return read(bi, at, depth).cast(dtypes.int32) + a_by

    def quad(row: IntExpr, step: IntExpr) -> Val:
        parts = []
        for j in range(_QUAD):
            depth = step * _QUAD + j
            v = element(row, depth)
            if (k % _QUAD).value() != 0:
                v = select(index_value(depth) < index_value(k), v, constant(0, dtypes.int32))
            parts.append(op("shift_left", v, constant(8 * j, dtypes.int32)) if j else v)
        return reduce(lambda x, y: op("bit_or", x, y), parts)

    full_rows = whole_tiles(rows, width, ctx.target, dtypes.int32.itemsize)
    left = ctx.stage(compute(ctx.name("quads"), (full_rows, steps), quad, axis_names=["m", "q"]))
    panels = ceildiv(p.n, width)
    right = ctx.packed(1, lambda w: _quads(w, width), (panels, steps, width), f"quads_{width}", dtypes.int32)
    q = ctx.axis(steps, "q")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(op("dot4", left[row, q.index], right[no, q.index, ni]), q)

    acc = ctx.stage(compute(ctx.name("acc"), (full_rows, panels, width), formula, axis_names=["m", "no", "ni"]))
    of_columns: Tensor | None = None
    if not _is_zero(ctx, 2, -a_by):
        of_columns = ctx.packed(1, lambda w: _moved(w).sum(0, dtype=np.int32), (p.n,), "column_sums", dtypes.int32)
    of_rows: Tensor | None = None
    if not _is_zero(ctx, 3, b_by):
        r = ctx.axis(k, "r")
        of_rows = ctx.stage(
            compute(ctx.name("row_sums"), (rows,), lambda row: sum_over(element(row, r.index), r), axis_names=["m"])
        )

    def result(bi: tuple[IntExpr, ...], row: IntExpr, col: IntExpr) -> Val:
        flat = flatten((*bi, row), inner)
        value = acc[flat, col // width, col % width]
        at = (*bi, row, col)
        za = zb = constant(0, dtypes.int32)
        if of_columns is not None:
            za = (row_parameter(ctx.input(2), at).cast(dtypes.int32) if ctx.has_input(2) else za) + a_by
            value = value - za * of_columns[col]
        if of_rows is not None:
            zb = (column_parameter(ctx.input(3), at).cast(dtypes.int32) if ctx.has_input(3) else zb) - b_by
            value = value - zb * (of_rows[flat] - za * index_value(k).cast(dtypes.int32))
        return value

    return product_result(ctx, result)  # type: ignore[arg-type]  # all are called with a tuple


def _is_zero(facts: NodeFacts, operand: int, moved: int) -> bool:
    """True if the zero point, moved, is known to be nothing."""
    if not facts.has_input(operand):
        return moved == 0
    known = facts.constants[operand]
    return known is not None and bool((known.array.astype(np.int32) == moved).all())


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.constant_b:
        return "the second operand is not a constant matrix"
    return "an empty product" if p.k == const(0) or p.n == const(0) else None


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, _SHARE)


DOT_PRODUCT = Implementation("MatMulInteger", "dot_product", _lower, _cost, _applies)
LOOPS = Implementation("MatMulInteger", "loops", lower_matmul_integer, lambda facts: cost_by_row(facts, 1.0))
