"""Rows of a product as sums of bfloat16 numbers: of float32 three, whose 24 bits are all that it has.

``x = x0 + x1 + x2``, where ``x0`` has the highest 8 bits of ``x``, ``x1`` those of ``x - x0``, which is exact, and
``x2`` the rest. Products with whole numbers of at most 8 bits are exact, and matrix tiles sum them up in float32.
Elements below 2^-110 lose low bits, since tiles take numbers below 2^-126 for 0; an infinity becomes NaN.

Source: Henry, Tang and Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations (2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.product import left_operand, place_of_row, product_sizes
from tilewright.lowering.geometry.words import shifted
from tilewright.tensor_ir.compute import Val, compute, constant, index_value, op, select

_BITS = 8
"""Of a bfloat16, with the one that is not stored."""


HIGH = -(1 << 16)
"""The bits of a float32 that are a bfloat16, as an int32."""


@dataclass(frozen=True, slots=True)
class SplitRows:
    """``count`` parts of each element. ``bits(part, row, depth)``: the pattern of one in the low bits of an int32."""

    count: int
    bits: Callable[[IntExpr, IntExpr, IntExpr], Val]


def parts_of(dtype: DType) -> int:
    """How many bfloat16 numbers have all bits of a floating-point number."""
    digits = {dtypes.bfloat16: _BITS, dtypes.float16: 11}.get(dtype, 24)
    return -(-digits // _BITS)


def split_rows(ctx: LowerContext, rows: IntExpr, used: IntExpr) -> SplitRows:
    """The first ``rows`` rows of the left operand of a product, in a stage of their own where they have several parts.
    ``used``: 1, or 0 where nothing is read."""
    p, read, dtype = product_sizes(ctx), left_operand(ctx), ctx.input(0).dtype

    def element(row: IntExpr, depth: IntExpr) -> Val:
        bi, at = place_of_row(p, row)
        return read(bi, at, depth)

    count = parts_of(dtype)
    if count == 1:
        return SplitRows(1, lambda part, row, depth: op("bits", element(row, depth)))

    def part_of(row: IntExpr, part: IntExpr, depth: IntExpr) -> Val:
        rests = [element(row, depth).cast(dtypes.float32)]
        while len(rests) < count:
            rests.append(
                rests[-1] - op("from_bits", op("bit_and", op("bits", rests[-1]), constant(HIGH, dtypes.int32)))
            )
        found = rests.pop()
        while rests:
            found = select(index_value(part).equal(len(rests) - 1), rests.pop(), found)
        return shifted(op("bits", found), -16).cast(dtypes.uint16)

    full = (rows, count, p.k * used)
    stage = ctx.stage(compute(ctx.name("parts"), full, part_of, axis_names=["m", "d", "k"]))
    return SplitRows(count, lambda part, row, depth: stage[row, part, depth].cast(dtypes.int32))


def pair_of(low: Val, high: Val) -> Val:
    """The word of two float32 that have no more bits than a bfloat16."""
    first = op("bit_and", shifted(op("bits", low), -16), constant(~HIGH, dtypes.int32))
    return op("bit_or", first, op("bit_and", op("bits", high), constant(HIGH, dtypes.int32)))
