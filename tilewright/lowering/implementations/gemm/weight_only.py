"""Products with a weight of few bits that stays packed.

``acc[row, no, ni] += (sum over j of A[row, each * step + j] * (q_j - zero)) * scale``: a step takes several elements of
one block, so that the scale costs one multiply-add for all of them. Panels of columns hold bytes, or eight elements of
at most four bits in an int32, the first in the low bits; a step of a register tile unpacks vectors of them in
registers, for all its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import gcd
from operator import add

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, op, sum_over

_NIBBLE = 4
_SIXTEEN = 1 << _NIBBLE
_STEP = 8
"""Elements of a step at most: nibbles of an int32."""

_MANTISSA = 19
"""The lowest bit of the nibble ``q`` in the float32 ``1 + q / 16``."""

_ONE = 0x3F800000
"""The pattern of 1 in float32."""

_MOST_VECTORS = 4
"""Of a panel: each takes registers for its sums, its scale and its zero point."""

_PER_WEIGHT = 3.0
"""Operations that unpack an element, for each row tile."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """How elements ``q`` lie in panels, and what becomes of one in a register: ``offset + (q + moved) / divisor``.

    ``pack``: ``[K, N]`` of uint8, elements moved, to ``[K / per, N]`` of ``dtype``. ``element(word, j)``: number ``j``
    of a step, of the word ``j // per`` of it.
    """

    dtype: DType
    per: int
    moved: int
    zeros: DType
    offset: float
    divisor: float
    pack: Callable[[np.ndarray], np.ndarray]
    element: Callable[[Val, int], Val]


def _nibbles(moved: int) -> _Stored:
    def pack(q: np.ndarray) -> np.ndarray:
        columns = np.ascontiguousarray(q.T)
        packed: np.ndarray = (columns[:, ::2] | columns[:, 1::2] << np.uint8(_NIBBLE)).view("<i4").T
        return packed

    def element(word: Val, j: int) -> Val:
        by = _MANTISSA - _NIBBLE * j
        at = op("shift_left" if by > 0 else "shift_right", word, constant(abs(by), dtypes.int32))
        q = op("bit_and", at, constant((_SIXTEEN - 1) << _MANTISSA, dtypes.int32))
        return op("from_bits", op("bit_or", q, constant(_ONE, dtypes.int32)))

    return _Stored(dtypes.int32, _STEP, moved, dtypes.uint8, 1.0, _SIXTEEN, pack, element)


def _signed_bytes(moved: int) -> _Stored:
    return _Stored(
        dtypes.int8, 1, moved, dtypes.int8, 0.0, 1.0,
        lambda q: q.view(np.int8), lambda q, j: q.cast(dtypes.int32).cast(dtypes.float32),
    )  # fmt: skip


def _stored(facts: NodeFacts) -> _Stored:
    w = facts.input_values[1]
    signed, bits = (True, 8) if w is None else (w.dtype.kind == "i", w.dtype.bits)
    if _has_nibbles(facts):
        return _nibbles(1 << (bits - 1) if signed else 0)
    return _signed_bytes(0 if signed or bits < 8 else -128)


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    if (reason := _applies(ctx)) is not None:
        raise ctx.unsupported(reason)
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner = p.rows, p.row_extents
    lanes = ctx.target.lanes(dtypes.float32.itemsize)
    width = min(panel_width(rows, p.n, ctx.target, dtypes.float32.itemsize), _MOST_VECTORS * lanes)
    panels, blocks, block = ceildiv(p.n, width), ctx.input_shape(2)[0], _block(ctx)
    stored, each = _stored(ctx), gcd(block, _STEP)

    def pack(w: np.ndarray) -> np.ndarray:
        elements = w.astype(np.int8 if w.dtype != np.uint8 else np.uint8).view(np.uint8)
        return pack_columns(stored.pack(elements + np.uint8(stored.moved % 256)), width, stored.dtype.numpy)

    packed = ctx.packed(
        1, pack, (panels, p.k // stored.per, width), f"words_{stored.per}_{stored.moved}_{width}", stored.dtype
    )
    scale = _of_blocks(ctx, 2, width, dtypes.float32, lambda s: s * np.float32(stored.divisor), f"{stored.divisor:g}")
    zero = _zero(ctx, stored, width)
    b, step = ctx.axis(blocks, "b"), ctx.axis(const(block // each), "k")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        *bi, at = unflatten(clamped(row, rows), inner)
        first = b.index * block + step.index * each
        xs = [read(bi, at, first + j) for j in range(each)]
        words = [packed[no, (first + j) // stored.per, ni] for j in range(0, each, stored.per)]
        value = _sum([x * stored.element(words[j // stored.per], j) for j, x in enumerate(xs)])
        if zero is not None:
            value = value - _sum(xs) * zero(no, b.index, ni)
        return sum_over(value * scale[no, b.index, ni], b, step)

    full = (whole_tiles(rows, width, ctx.target, dtypes.float32.itemsize), panels, width)
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
    return product_result(ctx, lambda bi, row, col: acc[flatten((*bi, row), inner), col // width, col % width])


def _sum(values: list[Val]) -> Val:
    return reduce(add, values)


def _of_blocks(
    ctx: LowerContext, operand: int, width: int, dtype: DType, transform: Callable[[np.ndarray], np.ndarray], key: str
) -> Tensor:
    """A scale or zero point of blocks in panels, ``[no, block, ni]``."""
    blocks, n = ctx.input_shape(operand)

    def pack(array: np.ndarray) -> np.ndarray:
        return pack_columns(transform(array), width, dtype.numpy)

    return ctx.packed(operand, pack, (ceildiv(n, width), blocks, width), f"blocks_{key}_{width}", dtype)


def _zero(ctx: LowerContext, stored: _Stored, width: int) -> Callable[[IntExpr, IntExpr, IntExpr], Val] | None:
    """What an element is in a register that stands for 0; None where that is 0."""
    known = ctx.constants[3] if ctx.has_input(3) else None
    array = np.zeros(1, np.int16) if known is None else known.array.astype(np.int16).reshape(-1)
    if (array == array[0]).all():
        one = stored.offset + (int(array[0]) + stored.moved) / stored.divisor
        return None if one == 0 else lambda no, b, ni: constant(one, dtypes.float32)
    zeros = _of_blocks(ctx, 3, width, stored.zeros, lambda z: z.astype(np.int16) + stored.moved, f"{stored.moved}")

    def of_block(no: IntExpr, b: IntExpr, ni: IntExpr) -> Val:
        z = zeros[no, b, ni].cast(dtypes.int32).cast(dtypes.float32)
        return z if stored.offset == 0 else z * constant(1 / stored.divisor, dtypes.float32) + stored.offset

    return of_block


def _block(facts: NodeFacts) -> int:
    """Elements of a column that share a scale."""
    block = (facts.input_shape(1)[0] // facts.input_shape(2)[0]).value()
    assert block is not None
    return block


def _has_nibbles(facts: NodeFacts) -> bool:
    """True if words hold eight elements: those of at most four bits, and bytes that are never above 15."""
    w, value = facts.constants[1], facts.input_values[1]
    if w is None or value is None or _block(facts) % _STEP:
        return False
    if value.dtype.bits <= _NIBBLE:
        return True
    return value.dtype == dtypes.uint8 and facts.once("nibbles", lambda: bool(w.array.max(initial=0) < _SIXTEEN))


def _applies(facts: NodeFacts) -> str | None:
    return (
        None
        if all(c is not None for c in facts.constants[1:])
        else "a weight, scale or zero point that is not constant"
    )


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, 1.0, _PER_WEIGHT, weight_size=0.25)


PACKED = Implementation("MatMulDequantized", "packed", _lower, _cost, _applies, spreads=True)
