"""Rows of float32 as whole numbers of three digits of a byte, for dot products of bytes.

Of a group of neighbours in a row each element is ``t * 2^e``, ``t`` a whole number of 22 bits and a sign: of the
largest one as exact as float32 is. ``t = d0 + 2^8 d1 + 2^16 d2``, with digits from -128 to 127. Sums of products of
digits and bytes are exact, and so are those of several digits as far as they fit in an int32.

Source: error-free splitting of the operands of a product (Ozaki, Ogita, Oishi and Rump, 2012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.product import left_operand, place_of_row, product_sizes
from tilewright.lowering.geometry.words import BYTES as WORD
from tilewright.lowering.geometry.words import shifted
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    index_value,
    max_over,
    op,
    select,
    sum_over,
)

LARGEST_GROUP = 32
"""Elements whose products with bytes up to 15 have a sum below 2^31, and with bytes up to 255 that of two digits."""

DIGITS = 3
_BITS, _BYTE = 22, 8
"""Of ``t`` without its sign, and of a digit."""

_SIGNS = 0x00808080
"""The highest bits of the digits: added to ``t`` and then turned, they make the digits signed."""

_FRACTION, _BIAS = 23, 127
"""Bits of float32 below the exponent, and the exponent of 1."""

_EXPONENT = 0xFF << _FRACTION
_LEAST = _BITS << _FRACTION
"""The exponent of smaller elements counts as this one, so that ``2^e`` is a normal number."""

_NAN = 0x7FC00000
_ROUNDING = 1.5 * 2**_FRACTION
_ROUNDED = (_BIAS + _FRACTION) << _FRACTION | 1 << (_FRACTION - 1)
"""Added to a float32 below 2^22, ``_ROUNDING`` leaves the nearest whole number in the low bits of its own pattern,
``_ROUNDED``."""


@dataclass(frozen=True, slots=True)
class Part:
    """Digits whose sums are joined in one int32: ``2^shift`` times that of the numbers that they are. ``sums``:
    ``[rows, groups]`` of those numbers."""

    digits: tuple[int, ...]
    sums: Tensor

    @property
    def unit(self) -> float:
        """What a 1 of the lowest digit is in ``t``."""
        return float(1 << _BYTE * self.digits[0])


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Rows in groups of ``size`` elements. ``exponents``: ``[rows, groups]``, that of the largest element, in place as
    float32 has it. ``digits``: ``[rows, digit, K]``, the patterns of signed bytes."""

    size: int
    exponents: Tensor
    digits: Tensor
    parts: tuple[Part, ...]

    def product(self, words: Sequence[Val], row: IntExpr, digit: IntExpr, first: IntExpr) -> Val:
        """The sum of products of elements from ``first`` on, as one digit of them, and unsigned bytes, four of
        neighbours in each of ``words``."""

        def of_word(j: int) -> Val:
            at = first + j * WORD.per
            return WORD.of([self.digits[row, digit, at + i].cast(dtypes.int32) for i in range(WORD.per)])

        return reduce(add, [WORD.times(word, of_word(j)) for j, word in enumerate(words)])

    def joined(self, part: Part, product: Callable[[int], Val]) -> Val:
        """The sum of the ``product`` of each digit of a part."""
        return reduce(add, [shifted(product(d), _BYTE * j) for j, d in enumerate(part.digits)])

    def unit(self, row: IntExpr, group: IntExpr) -> Val:
        """The float32 that a ``t`` of 1 stands for; NaN in a group that has an infinity or NaN."""
        exponent = self.exponents[row, group]
        power = exponent - ((_BITS - 1) << _FRACTION)
        return op("from_bits", select(exponent.equal(_EXPONENT), _pattern(_NAN), power))


def rows_in_fixed_point(ctx: LowerContext, rows: IntExpr, size: int, parts: Sequence[Sequence[int]]) -> FixedPoint:
    """Stages of ``rows`` rows of the left operand of a product, in groups of ``size``. ``parts``: the digits of each,
    all of them, or the highest ones apart."""
    p, read = product_sizes(ctx), left_operand(ctx)
    groups, j = p.k // size, ctx.axis(const(size), "j")

    def element(row: IntExpr, k: IntExpr) -> Val:
        bi, at = place_of_row(p, row)
        return read(bi, at, k).cast(dtypes.float32)

    def exponent(row: IntExpr, g: IntExpr) -> Reduction:
        bits = op("bits", element(row, g * size + j.index))
        return max_over(op("max", op("bit_and", bits, _pattern(_EXPONENT)), _pattern(_LEAST)), j)

    exponents = ctx.stage(compute(ctx.name("exponents"), (rows, groups), exponent, axis_names=["m", "g"]))

    def number(row: IntExpr, k: IntExpr) -> Val:
        up = op("from_bits", _pattern((2 * _BIAS + _BITS - 1) << _FRACTION) - exponents[row, k // size])
        return op("bits", element(row, k) * up + _ROUNDING) - _ROUNDED

    numbers = ctx.stage(compute(ctx.name("fixed"), (rows, p.k), number, axis_names=["m", "k"]))

    def digit(row: IntExpr, d: IntExpr, k: IntExpr) -> Val:
        turned = op("bit_xor", numbers[row, k] + _SIGNS, _pattern(_SIGNS))
        return op("shift_right", turned, index_value(d * _BYTE).cast(dtypes.int32)).cast(dtypes.uint8)

    digits = ctx.stage(compute(ctx.name("digits"), (rows, DIGITS, p.k), digit, axis_names=["m", "d", "k"]))

    def part(own: Sequence[int]) -> Part:
        i = ctx.axis(const(size), "i")

        def total(row: IntExpr, g: IntExpr) -> Reduction:
            return sum_over(_number_of(numbers[row, g * size + i.index], own), i)

        sums = ctx.stage(compute(ctx.name("sums"), (rows, groups), total, axis_names=["m", "g"]))
        return Part(tuple(own), sums)

    return FixedPoint(size, exponents, digits, tuple(part(own) for own in parts))


def _number_of(t: Val, digits: Sequence[int]) -> Val:
    """The number that neighbouring ``digits`` of ``t`` are, which begin or end with its own."""
    begin, end = _BYTE * digits[0], _BYTE * (digits[-1] + 1)
    if digits[-1] == DIGITS - 1:
        return _rounded(t, begin)
    return t - shifted(_rounded(t, end), end)


def _rounded(t: Val, low: int) -> Val:
    """The digits of ``t`` from bit ``low`` on, as those below it are signed."""
    return shifted(t + (_SIGNS & (1 << low) - 1), -low) if low else t


def _pattern(bits: int) -> Val:
    return constant(bits, dtypes.int32)
