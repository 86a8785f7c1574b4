"""Products with a weight of few bits in dot products of bytes, of rows in fixed point
(:mod:`tilewright.lowering.geometry.fixed_point`).

The bytes of the weight stay in words, and two operations on bits take them out of nibbles: ``acc[row, no, ni] += (sum
over digits i of 2^(8 i) * (sum over a group of dot4(q, d_i)) - zero * sum(t)) * 2^e * scale``. Nothing rounds but a
conversion for each group. Unpacking to float32 takes three operations for an element
(:mod:`~tilewright.lowering.implementations.dequantized.weight_only`), this about one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import TypeAlias

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import BYTES, NIBBLE, FewBits, elements_of_block, few_bits
from tilewright.lowering.geometry.fixed_point import DIGITS, LARGEST_GROUP, FixedPoint, rows_in_fixed_point
from tilewright.lowering.geometry.product import product_sizes, rows_one_by_one
from tilewright.lowering.geometry.words import shifted
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.dequantized import weight_only
from tilewright.lowering.implementations.gemm.by_rows import Kept, by_rows, in_registers
from tilewright.machine.vectors import bytes_ahead, share_of_bytes
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, index_value, op, sum_over

_ALL, _HIGHEST_APART = ((0, 1, 2),), ((0, 1), (2,))
"""Digits whose sums are one int32: with nibbles all of them, with bytes not."""

_LOW_NIBBLES = 0x0F0F0F0F

_PER_GROUP = 0.3
"""Multiply-adds for each element and row beside the products of bytes."""

_PER_WEIGHT = 0.3
"""And for each element once."""


def _in_registers(ctx: LowerContext) -> tuple[Tensor, ...]:
    return in_registers(ctx, _kept(ctx, product_sizes(ctx).rows))


def _by_rows(ctx: LowerContext) -> tuple[Tensor, ...]:
    least = weight_only.least_for_panels(ctx, _per_row(ctx), _PER_WEIGHT)
    return by_rows(ctx, _kept(ctx, rows_one_by_one(product_sizes(ctx), least)), least)


def _kept(ctx: LowerContext, rows: IntExpr) -> Kept:
    """The weight, and the formula of the sums of ``rows`` rows."""
    if (reason := refusal(ctx)) is not None:
        raise ctx.unsupported(reason)
    w = few_bits(ctx, in_words=True)
    return Kept(w.width, w.element, row_sums(ctx, w, rows))


def row_sums(ctx: LowerContext, w: FewBits, rows: IntExpr) -> Callable[[IntExpr, IntExpr, IntExpr], Reduction]:
    """The formula of the sums of ``rows`` rows, one by one, from a weight in words.

    The products of a group are a stage of their own, whose steps read a row of words each, one behind the other: what
    comes from memory so is foreseen by processors. One expression for all of a group reads column by column (Zen 4, two
    threads: bytes at 25 GB/s instead of 42). But it fetches words by itself, where that pays."""
    size = math.gcd(w.block, LARGEST_GROUP)
    x = rows_in_fixed_point(ctx, rows, size, _HIGHEST_APART if w.per == BYTES else _ALL)
    g, count = ctx.axis(product_sizes(ctx).k // size, "g"), size // w.per
    product = _products_at_once(w, x, count) if bytes_ahead(ctx.target) else _products_by_word(ctx, w, x, rows)

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        group, block = g.index, g.index // (w.block // size)
        found: list[Val] = []
        for part in x.parts:
            total = x.joined(part, lambda d: product(row, group, d, no, ni))
            if w.zero != 0:
                total = total - w.zero_of(no, block, ni) * part.sums[row, group]
            real = total.cast(dtypes.float32)
            found.append(real * part.unit if found else real)
        return sum_over(reduce(add, found) * (x.unit(row, group) * w.scale[no, block, ni]), g)

    return formula


_Product: TypeAlias = Callable[[IntExpr, IntExpr, int, IntExpr, IntExpr], Val]
"""The sum of the products of a row's group, a digit of it, and a column: (row, group, digit, panel, column of it)."""


def _products_at_once(w: FewBits, x: FixedPoint, count: int) -> _Product:
    def product(row: IntExpr, group: IntExpr, digit: int, no: IntExpr, ni: IntExpr) -> Val:
        words = _bytes_of([w.packed[no, group * count + j, ni] for j in range(count)], w.per)
        return x.product(words, row, const(digit), group * x.size)

    return product


def _products_by_word(ctx: LowerContext, w: FewBits, x: FixedPoint, rows: IntExpr) -> _Product:
    steps, per = x.size // BYTES, w.per // BYTES
    groups, panels = product_sizes(ctx).k // x.size, ceildiv(product_sizes(ctx).n, w.width)
    j = ctx.axis(const(steps), "j")

    def formula(row: IntExpr, group: IntExpr, digit: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        at = group * steps + j.index
        word = w.packed[no, at // per, ni]
        if per > 1:
            by = index_value(at % per * NIBBLE).cast(dtypes.int32)
            word = op("bit_and", op("shift_right", word, by), constant(_LOW_NIBBLES, dtypes.int32))
        return sum_over(x.product([word], row, digit, at * BYTES), j)

    names, shape = ["m", "g", "d", "no", "ni"], (rows, groups, const(DIGITS), panels, const(w.width))
    whole = ctx.stage(compute(ctx.name("whole"), shape, formula, axis_names=names))
    return lambda row, group, digit, no, ni: whole[row, group, digit, no, ni]


def _bytes_of(words: Sequence[Val], per: int) -> list[Val]:
    """Words of bytes, four neighbours each, from words of ``per`` elements."""
    if per == BYTES:
        return list(words)
    low = constant(_LOW_NIBBLES, dtypes.int32)
    return [op("bit_and", half, low) for word in words for half in (word, shifted(word, -NIBBLE))]


def refusal(facts: NodeFacts) -> str | None:
    """Why rows in fixed point do not suit the weight, if they do not."""
    if (reason := weight_only.not_constant(facts)) is not None:
        return reason
    return "blocks that are not whole words" if elements_of_block(facts) % BYTES else None


def _per_row(facts: NodeFacts) -> float:
    return DIGITS * share_of_bytes(facts.target) + _PER_GROUP


def _cost_in_registers(facts: NodeFacts) -> float:
    return weight_only.cost_of_rows(facts, _per_row(facts), _PER_WEIGHT)


def cost_by_rows(facts: NodeFacts) -> float:
    """With panels for many rows."""
    return weight_only.cost_of_either(facts, _cost_in_registers(facts))


PACKED = Implementation("MatMulDequantized", "fixed_point", _in_registers, _cost_in_registers, refusal, spreads=True)
BY_ROWS = Implementation("MatMulDequantized", "fixed_point_by_rows", _by_rows, cost_by_rows, refusal, spreads=True)
