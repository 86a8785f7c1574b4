"""Products with a weight of few bits that stays packed: ``acc[row, no, ni] += A[row, k] * ((q - zero) * scale)``.

The weight lies in panels of columns, a byte an element, or two elements of at most four bits in one; a step of a
register tile unpacks a vector of it in registers, for all its rows. Signed elements are stored moved by half of their
range, and so are their zero points.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, panel_width, unflatten, whole_tiles
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, index_value, op, sum_over

_NIBBLE = 4
_MOST_VECTORS = 4
"""Of a panel: each takes registers for its sums, its scale and its zero point."""

_PER_WEIGHT = 3.0
"""Operations that unpack an element, for each row tile."""


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    if (reason := _applies(ctx)) is not None:
        raise ctx.unsupported(reason)
    p, read = product_sizes(ctx), left_operand(ctx)
    rows, inner = p.rows, p.row_extents
    lanes = ctx.target.lanes(dtypes.float32.itemsize)
    width = min(panel_width(rows, p.n, ctx.target, dtypes.float32.itemsize), _MOST_VECTORS * lanes)
    panels, blocks = ceildiv(p.n, width), ctx.input_shape(2)[0]
    per = 2 if _has_nibbles(ctx) else 1
    block = p.k // blocks
    moved = _moved(ctx)
    packed = ctx.packed(
        1, lambda w: pack_columns(_bytes(w, moved, per), width, np.dtype(np.uint8)), (panels, p.k // per, width),
        f"bytes_{per}_{width}", dtypes.uint8,
    )  # fmt: skip
    scale = _of_blocks(ctx, 2, width, lambda s: s.astype(np.float32))
    zero = _zero(ctx, width, moved)
    b, step = ctx.axis(blocks, "b"), ctx.axis(block // per, "k")
    axes = [b, step, *([ctx.axis(const(per), "j")] if per > 1 else [])]
    part = axes[2].index if per > 1 else const(0)

    def weight(no: IntExpr, ni: IntExpr) -> Val:
        q = packed[no, b.index * (block // per) + step.index, ni].cast(dtypes.int32)
        if per == 2:
            shift = index_value(part * _NIBBLE).cast(dtypes.int32)
            q = op("bit_and", op("shift_right", q, shift), constant(15, dtypes.int32))
        z = zero if isinstance(zero, Val) else zero[no, b.index, ni].cast(dtypes.float32)
        s = scale[no, b.index, ni]
        return q.cast(dtypes.float32) * s - z * s  # one operation an element: the product of the second is a block's

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        *bi, at = unflatten(clamped(row, rows), inner)
        x = read(bi, at, b.index * block + step.index * per + part)
        return sum_over(x * weight(no, ni), *axes)

    full = (whole_tiles(rows, width, ctx.target, dtypes.float32.itemsize), panels, width)
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
    return product_result(ctx, lambda bi, row, col: acc[flatten((*bi, row), inner), col // width, col % width])


def _of_blocks(ctx: LowerContext, operand: int, width: int, transform: object) -> Tensor:
    """A scale or zero point of blocks in panels, ``[no, block, ni]``."""
    blocks, n = ctx.input_shape(operand)
    dtype = dtypes.float32 if operand == 2 else dtypes.uint8

    def pack(array: np.ndarray) -> np.ndarray:
        return pack_columns(transform(array), width, dtype.numpy)  # type: ignore[operator]

    return ctx.packed(operand, pack, (ceildiv(n, width), blocks, width), f"blocks_{width}", dtype)


def _zero(ctx: LowerContext, width: int, moved: int) -> Tensor | Val:
    """The zero points, moved as the weight is: one number, or those of blocks."""
    if not ctx.has_input(3):
        return constant(float(moved), dtypes.float32)
    known = ctx.constants[3]
    array = np.zeros(1) if known is None else known.array.astype(np.int32)
    if (array == array.reshape(-1)[0]).all():
        return constant(float(array.reshape(-1)[0] + moved), dtypes.float32)
    return _of_blocks(ctx, 3, width, lambda z: z.astype(np.int32) + moved)


def _moved(facts: NodeFacts) -> int:
    """What is added to elements, so that they are unsigned."""
    w = facts.input_values[1]
    return 0 if w is None or w.dtype.kind == "u" else 1 << (w.dtype.bits - 1)


def _bytes(w: np.ndarray, moved: int, per: int) -> np.ndarray:
    """``[K, N]`` of elements as ``[K / per, N]`` of bytes, the first of two in the low bits."""
    q = (w.astype(np.int16) + moved).astype(np.uint8)
    return q if per == 1 else q[0::2] | q[1::2] << _NIBBLE


def _has_nibbles(facts: NodeFacts) -> bool:
    """True if two elements fit in a byte: those of at most four bits, and bytes that are never above 15."""
    w, value = facts.constants[1], facts.input_values[1]
    block = facts.input_shape(1)[0] // facts.input_shape(2)[0]
    if w is None or value is None or (block % 2).value() != 0:
        return False
    if value.dtype.bits <= _NIBBLE:
        return True
    return value.dtype == dtypes.uint8 and facts.once("nibbles", lambda: bool(w.array.max(initial=0) < 1 << _NIBBLE))


def _applies(facts: NodeFacts) -> str | None:
    return (
        None
        if all(c is not None for c in facts.constants[1:])
        else "a weight, scale or zero point that is not constant"
    )


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, 1.0, _PER_WEIGHT, weight_size=0.25)


PACKED = Implementation("MatMulDequantized", "packed", _lower, _cost, _applies)
