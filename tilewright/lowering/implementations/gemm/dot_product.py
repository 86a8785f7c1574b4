"""Products of 8-bit matrices four steps at a time: ``acc[row, no, ni] += dot4(A4[row, q], B4[no, q, ni])``.

A is read in fours where it lies so, else a stage collects them, as it does for the matrix tiles of
``dot_product_tiles``; B is packed at build time. Zero points are taken off
the sums (:mod:`tilewright.lowering.geometry.quads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import column_parameter, lower_matmul_integer, row_parameter
from tilewright.lowering.geometry.packing import flatten
from tilewright.lowering.geometry.product import left_operand, place_of_row, product_result, product_sizes
from tilewright.lowering.geometry.quads import (
    is_zero,
    moved_a,
    moved_b,
    signed,
    sums_of_b,
    without_zero_points,
    zero_point,
)
from tilewright.lowering.geometry.word_sums import tile_word_sums, word_sums
from tilewright.lowering.geometry.words import BYTES
from tilewright.lowering.implementations.base import ONE_BY_ONE, Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.lowering.implementations.tiles import products
from tilewright.machine.vectors import share_of_bytes
from tilewright.tensor_ir.compute import Tensor, Val, compute, sum_over


def _matrix(w: np.ndarray) -> np.ndarray:
    return w.reshape(w.shape[0], prod(w.shape[1:]))


def _lower(tiles: bool, by_rows: bool, ctx: LowerContext) -> tuple[Tensor, ...]:
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner, k = p.rows, p.row_extents, p.k
    a_by, b_by = moved_a(ctx.input(0).dtype), moved_b(ctx.input(1).dtype)

    def bits(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return read(bi, row, depth).cast(dtypes.int32) + a_by

    def element(row: IntExpr, depth: IntExpr) -> Val:
        bi, at = place_of_row(p, row)
        return bits(bi, at, depth)

    acc = (tile_word_sums if tiles else word_sums)(ctx, BYTES, bits, not a_by, signed, "quads", by_rows)
    of_columns = sums_of_b(ctx, (p.n,), lambda w: _matrix(w).sum(0, dtype=np.int32))
    of_rows: Tensor | None = None
    if not is_zero(ctx, 3, b_by):
        r = ctx.axis(k, "r")
        of_rows = ctx.stage(
            compute(ctx.name("row_sums"), (rows,), lambda row: sum_over(element(row, r.index), r), axis_names=["m"])
        )

    def result(bi: tuple[IntExpr, ...], row: IntExpr, col: IntExpr) -> Val:
        flat, at = flatten((*bi, row), inner), (*bi, row, col)
        za = zero_point(ctx.optional(2), lambda t: row_parameter(t, at), a_by)
        return without_zero_points(
            acc(bi, row, col),
            za,
            zero_point(ctx.optional(3), lambda t: column_parameter(t, at), -b_by),
            of_columns(col, za),
            None if of_rows is None else of_rows[flat],
            k,
        )

    return product_result(ctx, result)  # type: ignore[arg-type]  # all are called with a tuple


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.constant_b:
        return "the second operand is not a constant matrix"
    return "an empty product" if p.k == const(0) or p.n == const(0) else None


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, share_of_bytes(facts.target), weight_size=0.25)


DOT_PRODUCTS = products("MatMulInteger", BYTES, _lower, _cost, _applies)
LOOPS = Implementation("MatMulInteger", "loops", lower_matmul_integer, lambda facts: cost_by_row(facts, ONE_BY_ONE))
