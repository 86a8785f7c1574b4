"""Products with a weight of few bits that stays packed (:mod:`tilewright.lowering.geometry.few_bits`).

For few rows, elements are unpacked where they are multiplied: ``acc[row, no, ni] += (sum over j of A[row, each * step +
j] * (q_j - zero)) * scale``. A step takes several elements of one block, so that the scale costs one multiply-add for
all of them; a step of a register tile unpacks vectors of them in registers, for all its rows. For many rows, panels of
float32 are made, each just before its columns are multiplied as any others are. Where only a call tells the number of
rows, there are both, and the loops of one of them are empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import NIBBLES, SIXTEEN, FewBits, elements_of_word, few_bits, place_in_word
from tilewright.lowering.geometry.product import left_operand, place_of_row, product_sizes
from tilewright.lowering.geometry.words import shifted
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.by_rows import (
    IN_MEMORY,
    Kept,
    by_rows,
    in_panels,
    in_registers,
    panel_stays,
    panels_stay,
)
from tilewright.lowering.implementations.gemm.cost import MANY, cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, constant, op, sum_over

_MANTISSA = 19
"""The lowest bit of the nibble ``q`` in the float32 ``1 + q / 16``."""

_ONE = 0x3F800000
"""The pattern of 1 in float32."""

_PER_NIBBLE, _PER_BYTE = 1.55, 1.25
"""Multiply-adds for each element and row where a tile of a few rows unpacks it."""

_PER_WEIGHT = 0.5
"""And for each element once."""

_PER_REAL = 4.0
"""The time to make a float32 of an element, in multiply-adds: in a cache, just before it is used."""

OF_BYTES = 0.25
"""The share of a float32 that an element takes at most."""


def _in_registers(ctx: LowerContext) -> tuple[Tensor, ...]:
    return in_registers(ctx, _kept(ctx, _scaled_for_registers(ctx)))


def _in_panels(ctx: LowerContext) -> tuple[Tensor, ...]:
    return in_panels(ctx, _kept(ctx, _few_bits(ctx)))


def _by_rows(ctx: LowerContext) -> tuple[Tensor, ...]:
    least = least_for_panels(ctx, _per_row(ctx), _PER_WEIGHT)
    return by_rows(ctx, _kept(ctx, _scaled_for_registers(ctx)), least)


def _kept(ctx: LowerContext, w: FewBits) -> Kept:
    return Kept(w.width, w.element, _sum_in_registers(ctx, w))


def _few_bits(ctx: LowerContext, divisor: Callable[[int], int] = lambda per: 1) -> FewBits:
    if (reason := not_constant(ctx)) is not None:
        raise ctx.unsupported(reason)
    return few_bits(ctx, divisor)


def _scaled_for_registers(ctx: LowerContext) -> FewBits:
    """The weight with the scales of what :func:`_unpacked` gives."""
    return _few_bits(ctx, lambda per: SIXTEEN if per > 1 else 1)


def _sum_in_registers(ctx: LowerContext, w: FewBits) -> Callable[[IntExpr, IntExpr, IntExpr], Reduction]:
    p, read, each = product_sizes(ctx), left_operand(ctx), math.gcd(w.block, NIBBLES)
    b, step = ctx.axis(ctx.input_shape(2)[0], "b"), ctx.axis(const(w.block // each), "k")
    has_zero = w.per > 1 or w.zero != 0

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        first = b.index * w.block + step.index * each
        xs = [read(bi, at, first + j).cast(dtypes.float32) for j in range(each)]
        words = [w.packed[no, (first + j) // w.per, ni] for j in range(0, each, w.per)]
        value = _sum([x * _unpacked(words[j // w.per], j, w.per) for j, x in enumerate(xs)])
        if has_zero:
            value = value - _sum(xs) * _nothing(w, no, b.index, ni)
        return sum_over(value * w.scale[no, b.index, ni], b, step)

    return formula


def _unpacked(word: Val, j: int, per: int) -> Val:
    """Element ``j`` of a word of nibbles as ``1 + q / 16``, which takes a shift and two operations on bits; of a byte
    as it is."""
    if per == 1:
        return word.cast(dtypes.int32).cast(dtypes.float32)
    by = _MANTISSA - place_in_word(const(j)).evaluate({})
    q = op("bit_and", shifted(word, by), constant((SIXTEEN - 1) << _MANTISSA, dtypes.int32))
    return op("from_bits", op("bit_or", q, constant(_ONE, dtypes.int32)))


def _nothing(w: FewBits, no: IntExpr, b: IntExpr, ni: IntExpr) -> Val:
    """What :func:`_unpacked` gives of an element that stands for 0."""
    if not isinstance(w.zero, Tensor):
        return constant(1 + w.zero / SIXTEEN if w.per > 1 else float(w.zero), dtypes.float32)
    z = w.zero_of(no, b, ni).cast(dtypes.float32)
    return z * constant(1 / SIXTEEN, dtypes.float32) + 1.0 if w.per > 1 else z


def _sum(values: list[Val]) -> Val:
    return reduce(add, values)


def not_constant(facts: NodeFacts) -> str | None:
    """Why the weight cannot be packed, if it cannot."""
    if all(c is not None for c in facts.constants[1:]):
        return None
    return "a weight, scale or zero point that is not constant"


def _per_row(facts: NodeFacts) -> float:
    return _PER_NIBBLE if elements_of_word(facts) > 1 else _PER_BYTE


def least_for_panels(facts: NodeFacts, per_row: float, per_weight: float) -> int:
    """Rows from which on panels take less time than ``per_row`` for each element and row, and ``per_weight`` once."""
    return math.ceil((_per_real(facts) - per_weight) / (per_row - 1.0))


def cost_of_rows(facts: NodeFacts, per_row: float, per_weight: float) -> float:
    """Of a number of rows that only a call tells, one counts: language models give a token after the other."""
    rows = 1 if product_sizes(facts).rows.value() is not None else 1 / MANY
    return cost_by_row(facts, per_row * rows, per_weight, OF_BYTES)


def cost_of_either(facts: NodeFacts, in_registers: float) -> float:
    """That of the faster one. That of the slower one where it is known which one is faster, so that there is nothing to
    choose at a call, and where neither a panel fits in the second-level cache nor all panels in any: they would be
    written to memory, which takes more."""
    chooses = product_sizes(facts).rows.value() is None and panels_stay(facts)
    return (min if chooses else max)(in_registers, cost_in_panels(facts))


def _per_real(facts: NodeFacts) -> float:
    return _PER_REAL if panel_stays(facts) else _PER_REAL + IN_MEMORY


def cost_of_many(facts: NodeFacts) -> float:
    """Panels of float32 for as many rows as an open number counts for."""
    return cost_by_row(facts, 1.0, _per_real(facts), OF_BYTES)


def _cost_in_registers(facts: NodeFacts) -> float:
    return cost_of_rows(facts, _per_row(facts), _PER_WEIGHT)


def cost_in_panels(facts: NodeFacts) -> float:
    return cost_of_rows(facts, 1.0, _per_real(facts))


def _cost_by_rows(facts: NodeFacts) -> float:
    return cost_of_either(facts, _cost_in_registers(facts))


PACKED = Implementation("MatMulDequantized", "packed", _in_registers, _cost_in_registers, not_constant, spreads=True)
PANELS = Implementation("MatMulDequantized", "dequantized_panels", _in_panels, cost_in_panels, not_constant)
BY_ROWS = Implementation("MatMulDequantized", "packed_by_rows", _by_rows, _cost_by_rows, not_constant, spreads=True)
