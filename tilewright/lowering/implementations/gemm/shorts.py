"""Products of 8-bit matrices as int16, two steps at a time: ``acc[row, no, ni] += dot2i(A2[row, q], B2[no, q, ni])``.

For CPUs that multiply int16 in pairs (``pmaddwd``) and not bytes in fours. Zero points are taken off the elements,
which int16 holds: B's when the model is built, A's by the stage that widens it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import row_parameter
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.geometry.quads import zero_point
from tilewright.lowering.geometry.word_sums import word_sums
from tilewright.lowering.geometry.words import SHORTS as WORDS
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.shorts import LOW, refusal, zero_key
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.machine.vectors import share_of_shorts
from tilewright.tensor_ir.compute import Tensor, Val, constant, op


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    read = left_operand(ctx)
    zero = ctx.constant(3)

    def bits(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        za = zero_point(ctx.optional(2), lambda t: row_parameter(t, (*bi, row, row)), 0)
        return op("bit_and", read(bi, row, depth).cast(dtypes.int32) - za, constant(LOW, dtypes.int32))

    def elements(w: np.ndarray) -> np.ndarray:
        own = np.int16(0) if zero is None else zero.array.astype(np.int16).reshape(-1)
        return w.astype(np.int16) - own

    return product_result(ctx, word_sums(ctx, WORDS, bits, False, elements, zero_key(ctx)))


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    return refusal(facts) if p.constant_b else "the second operand is not a constant matrix"


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, share_of_shorts(facts.target), weight_size=0.5)


SHORTS = Implementation("MatMulInteger", "shorts", _lower, _cost, _applies)
