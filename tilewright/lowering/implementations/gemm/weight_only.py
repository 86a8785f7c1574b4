"""Products with a weight of few bits that stays packed (:mod:`tilewright.lowering.geometry.few_bits`).

For few rows, elements are unpacked where they are multiplied: ``acc[row, no, ni] += (sum over j of A[row, each * step +
j] * (q_j - zero)) * scale``. A step takes several elements of one block, so that the scale costs one multiply-add for
all of them; a step of a register tile unpacks vectors of them in registers, for all its rows. For many rows, panels of
float32 are made while the model runs, and multiplied like any others.
"""

from __future__ import annotations

from functools import reduce
from math import gcd
from operator import add

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import NIBBLE, NIBBLES, SIXTEEN, FewBits, few_bits
from tilewright.lowering.geometry.product import left_operand, panel_sums, place_of_row, product_result, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import MANY, cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, op, sum_over

_MANTISSA = 19
"""The lowest bit of the nibble ``q`` in the float32 ``1 + q / 16``."""

_ONE = 0x3F800000
"""The pattern of 1 in float32."""

_PER_ROW, _PER_WEIGHT = 1.8, 0.7
"""Multiply-adds for each element and row where a tile of a few rows unpacks it, and for each element once."""

_PER_REAL = 8.0
"""The time to make a float32 of an element, in memory, in multiply-adds."""

_OF_BYTES = 0.25
"""The share of a float32 that an element takes at most."""


def _in_registers(ctx: LowerContext) -> tuple[Tensor, ...]:
    _require_constants(ctx)
    w = few_bits(ctx, lambda per: SIXTEEN if per > 1 else 1.0)
    p = product_sizes(ctx)
    read, blocks, each = left_operand(ctx), ctx.input_shape(2)[0], gcd(w.block, NIBBLES)
    b, step = ctx.axis(blocks, "b"), ctx.axis(const(w.block // each), "k")
    has_zero = w.per > 1 or w.zero != 0

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        first = b.index * w.block + step.index * each
        xs = [read(bi, at, first + j) for j in range(each)]
        words = [w.packed[no, (first + j) // w.per, ni] for j in range(0, each, w.per)]
        value = _sum([x * _unpacked(words[j // w.per], j, w.per) for j, x in enumerate(xs)])
        if has_zero:
            value = value - _sum(xs) * _nothing(w, no, b.index, ni)
        return sum_over(value * w.scale[no, b.index, ni], b, step)

    return product_result(ctx, panel_sums(ctx, w.width, dtypes.float32, formula))


def _unpacked(word: Val, j: int, per: int) -> Val:
    """Element ``j`` of a word of nibbles as ``1 + q / 16``, which takes a shift and two operations on bits; of a byte
    as it is."""
    if per == 1:
        return word.cast(dtypes.int32).cast(dtypes.float32)
    by = _MANTISSA - NIBBLE * j
    at = op("shift_left" if by > 0 else "shift_right", word, constant(abs(by), dtypes.int32))
    q = op("bit_and", at, constant((SIXTEEN - 1) << _MANTISSA, dtypes.int32))
    return op("from_bits", op("bit_or", q, constant(_ONE, dtypes.int32)))


def _nothing(w: FewBits, no: IntExpr, b: IntExpr, ni: IntExpr) -> Val:
    """What :func:`_unpacked` gives of an element that stands for 0."""
    if not isinstance(w.zero, Tensor):
        return constant(1 + w.zero / SIXTEEN if w.per > 1 else float(w.zero), dtypes.float32)
    z = w.zero_of(no, b, ni).cast(dtypes.float32)
    return z * constant(1 / SIXTEEN, dtypes.float32) + 1.0 if w.per > 1 else z


def _sum(values: list[Val]) -> Val:
    return reduce(add, values)


def _in_panels(ctx: LowerContext) -> tuple[Tensor, ...]:
    _require_constants(ctx)
    p, w, read = product_sizes(ctx), few_bits(ctx), left_operand(ctx)
    shape = (ceildiv(p.n, w.width), p.k, w.width)
    real = ctx.stage(compute(ctx.name("real"), shape, w.element, axis_names=["no", "k", "ni"]))
    k = ctx.axis(p.k, "k")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        return sum_over(read(bi, at, k.index) * real[no, k.index, ni], k)

    return product_result(ctx, panel_sums(ctx, w.width, dtypes.float32, formula))


def _require_constants(ctx: LowerContext) -> None:
    if (reason := _applies(ctx)) is not None:
        raise ctx.unsupported(reason)


def _applies(facts: NodeFacts) -> str | None:
    if all(c is not None for c in facts.constants[1:]):
        return None
    return "a weight, scale or zero point that is not constant"


def _cost(facts: NodeFacts, per_row: float, per_weight: float) -> float:
    """Of a number of rows that only a call tells, one counts: language models give a token after the other."""
    rows = 1 if product_sizes(facts).rows.value() is not None else 1 / MANY
    return cost_by_row(facts, per_row * rows, per_weight, _OF_BYTES)


PACKED = Implementation(
    "MatMulDequantized", "packed", _in_registers, lambda facts: _cost(facts, _PER_ROW, _PER_WEIGHT), _applies,
    spreads=True,
)  # fmt: skip
PANELS = Implementation(
    "MatMulDequantized", "dequantized_panels", _in_panels, lambda facts: _cost(facts, 1.0, _PER_REAL), _applies
)
