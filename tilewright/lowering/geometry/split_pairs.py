"""Operands of float32 as sums of two bfloat16 numbers, for products of three: ``a b = ah bh + al bh + ah bl``.

``x = xh + xl``: ``x`` rounded to 8 bits, and the rest rounded to as many. What is left out, ``al bl`` and the rounding
of the rests, is 2^-18 of a product or so. Words of 32 elements lie together, 16 of the high parts and 16 of the low
ones: a row of a matrix tile each. Elements below 2^-110 lose low bits, since tiles take numbers below 2^-126 for 0; an
infinity becomes NaN, because its low part is one.

Source: Henry, Tang and Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations (2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.io.stored import cast_elements
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.product import left_operand, place_of_row, product_sizes
from tilewright.lowering.geometry.split_rows import HIGH
from tilewright.lowering.geometry.words import PAIRS, Element, Word, shifted
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, constant, index_value, op, select, sum_over
from tilewright.tensor_ir.intrinsics import SIDE

_PARTS = 2
_BLOCK = SIDE * PAIRS.per
"""Elements whose parts lie together."""


@dataclass(frozen=True, slots=True)
class SplitPairs(Word):
    """Pairs of high parts and pairs of low ones. ``join`` and ``pack`` take elements of float32."""

    def count(self, depth: IntExpr) -> IntExpr:
        return ceildiv(depth, _BLOCK) * (_PARTS * SIDE)

    def rows(self, depth: int) -> int:
        return -(-depth // _BLOCK) * _PARTS * SIDE

    def is_whole(self, depth: IntExpr) -> bool:
        return bool((depth % _BLOCK).value() == 0)

    def within(self, element: Val, at: IntExpr, depth: IntExpr) -> Val:
        """The element at ``at``, 0 past ``depth``."""
        return element if self.is_whole(depth) else select(index_value(at) < index_value(depth), element, 0.0)

    def join(self, element: Element, step: IntExpr, depth: IntExpr, steps: IntExpr | None = None) -> Val:
        block, part, q = step // (_PARTS * SIDE), step // SIDE % _PARTS, step % SIDE
        pair = []
        for j in range(self.per):
            at = block * _BLOCK + q * self.per + j
            pair.append(self.within(element(at), at, depth))
        high = [op("bits", op("narrow", v)) for v in pair]
        low = [op("bits", op("narrow", v - op("from_bits", shifted(h, 16)))) for v, h in zip(pair, high, strict=True)]
        return self.of([select(index_value(part).equal(0), a, b) for a, b in zip(high, low, strict=True)])

    def pack(self, w: np.ndarray, steps: int | None = None) -> np.ndarray:
        k, *rest = w.shape
        padded = np.zeros(((steps or self.rows(k)) // (_PARTS * SIDE) * _BLOCK, *rest), np.float32)
        padded[:k] = w
        high = cast_elements(padded, dtypes.bfloat16.numpy)
        low = cast_elements(padded - high.astype(np.float32), dtypes.bfloat16.numpy)
        both = np.stack([x.reshape(-1, _BLOCK, *rest) for x in (high, low)], 1).reshape(-1, *rest)
        return PAIRS.pack(both.view(np.uint16))


def split_row_sums(ctx: LowerContext, packed: Tensor) -> Callable[[IntExpr, IntExpr, IntExpr], Reduction]:
    """The formula of a sum of few rows, for a row, a panel and a column of it. The row stays float32, and the parts of
    the weight, ``packed[panel, step, column]``, become float32 in registers: no stage splits the row, and each word is
    read but once, in the order in which it lies."""
    p, read = product_sizes(ctx), left_operand(ctx)
    s = ctx.axis(packed.shape[1] // (_PARTS * SIDE), "s")
    d, q, j = ctx.axis(_PARTS, "d"), ctx.axis(SIDE, "q"), ctx.axis(PAIRS.per, "j")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        depth = s.index * _BLOCK + q.index * PAIRS.per + j.index
        found = SPLIT.within(read(bi, at, depth), depth, p.k)
        word = packed[no, (s.index * _PARTS + d.index) * SIDE + q.index, ni]
        high = op("shift_left", word, index_value((1 - j.index) * 16).cast(dtypes.int32))
        return sum_over(found * op("from_bits", op("bit_and", high, constant(HIGH, dtypes.int32))), s, d, q, j)

    return formula


SPLIT = SplitPairs("dot2", PAIRS.per, planes=_PARTS, products=3)
