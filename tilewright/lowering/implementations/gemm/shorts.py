"""Products of 8-bit matrices as int16, two steps at a time: ``acc[row, no, ni] += dot2i(A2[row, q], B2[no, q, ni])``.

For CPUs that multiply int16 in pairs (``pmaddwd``) and not bytes in fours. Zero points are taken off the elements,
which int16 holds: B's when the model is built, A's by the stage that widens it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import row_parameter
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.geometry.quads import zero_point
from tilewright.lowering.geometry.words import SHORTS as WORDS
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.shorts import LOW, refusal, zero_key
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.machine.vectors import share_of_shorts
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, op, sum_over


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner = p.rows, p.row_extents
    width = panel_width(rows, p.n, ctx.target, dtypes.int32.itemsize)
    steps, panels = WORDS.count(p.k), ceildiv(p.n, width)
    full_rows = whole_tiles(rows, width, ctx.target, dtypes.int32.itemsize)

    def of_row(row: IntExpr, step: IntExpr) -> Val:
        *bi, at = unflatten(clamped(row, rows), inner)
        za = zero_point(ctx.optional(2), lambda t: row_parameter(t, (*bi, at, at)), 0)

        def element(depth: IntExpr) -> Val:
            return op("bit_and", read(bi, at, depth).cast(dtypes.int32) - za, constant(LOW, dtypes.int32))

        return WORDS.join(element, step, p.k)

    words = ctx.stage(compute(ctx.name("words"), (full_rows, steps), of_row, axis_names=["m", "q"]))
    zero = ctx.constants[3] if len(ctx.constants) > 3 else None

    def transform(w: np.ndarray) -> np.ndarray:
        own = np.int16(0) if zero is None else zero.array.astype(np.int16).reshape(-1)
        matrix = w.reshape(w.shape[0], prod(w.shape[1:])).astype(np.int16) - own
        return pack_columns(WORDS.pack(matrix), width, np.dtype(np.int32))

    right = ctx.packed(1, transform, (panels, steps, width), f"{zero_key(ctx)}_{width}", dtypes.int32)
    q = ctx.axis(steps, "q")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(WORDS.times(words[row, q.index], right[no, q.index, ni]), q)

    acc = ctx.stage(compute(ctx.name("acc"), (full_rows, panels, width), formula, axis_names=["m", "no", "ni"]))
    return product_result(ctx, lambda bi, row, col: acc[flatten((*bi, row), inner), col // width, col % width])


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    return refusal(facts) if p.constant_b else "the second operand is not a constant matrix"


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, share_of_shorts(facts.target), weight_size=0.5)


SHORTS = Implementation("MatMulInteger", "shorts", _lower, _cost, _applies)
