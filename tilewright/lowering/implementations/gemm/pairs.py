"""Products of bfloat16 matrices two steps at a time: ``acc[row, no, ni] += dot2(A2[row, q], B2[no, q, ni])``.

Sums are float32. A is read in pairs where it lies so, else a stage collects them; B is packed at build time.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.geometry.words import PAIRS
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.pairs import refusal
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.machine.vectors import share_of_pairs
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, op, sum_over


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner = p.rows, p.row_extents
    width = panel_width(rows, p.n, ctx.target, dtypes.float32.itemsize)
    steps, panels = PAIRS.count(p.k), ceildiv(p.n, width)
    full_rows = whole_tiles(rows, width, ctx.target, dtypes.float32.itemsize)

    def of_row(row: IntExpr, step: IntExpr) -> Val:
        *bi, at = unflatten(clamped(row, rows), inner)
        return PAIRS.join(lambda depth: op("bits", read(bi, at, depth)), step, p.k)

    left = of_row
    if not PAIRS.is_whole(p.k):
        words = ctx.stage(compute(ctx.name("words"), (full_rows, steps), of_row, axis_names=["m", "q"]))
        left = lambda row, step: words[row, step]  # noqa: E731

    def transform(w: np.ndarray) -> np.ndarray:
        matrix = w.view(np.uint16).reshape(w.shape[0], prod(w.shape[1:]))
        return pack_columns(PAIRS.pack(matrix), width, np.dtype(np.int32))

    right = ctx.packed(1, transform, (panels, steps, width), f"pairs_{width}", dtypes.int32)
    q = ctx.axis(steps, "q")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(PAIRS.times(left(row, q.index), right[no, q.index, ni]), q)

    acc = ctx.stage(compute(ctx.name("acc"), (full_rows, panels, width), formula, axis_names=["m", "no", "ni"]))
    return product_result(ctx, lambda bi, row, col: acc[flatten((*bi, row), inner), col // width, col % width])


def _applies(facts: NodeFacts) -> str | None:
    return refusal(facts) or (None if product_sizes(facts).constant_b else "the second operand is no constant matrix")


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, share_of_pairs(facts.target), weight_size=0.5)


DOT_PRODUCT = Implementation("MatMul", "dot_product", _lower, _cost, _applies)
