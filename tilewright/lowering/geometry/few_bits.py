"""Weights of few bits as products keep them: in panels of columns, bytes, or four or eight elements in an int32.

Elements ``q`` stand for ``(q - zero) * scale``, zero and scale one for each block of neighbours in a column. Those of
at most four bits lie in words, the first four in the low halves of its bytes, the others in the high ones, so that an
operation on bits makes bytes of them. Others, a byte each, are signed; in words they are unsigned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import pack_columns, panel_width
from tilewright.lowering.geometry.product import product_sizes
from tilewright.tensor_ir.compute import Tensor, Val, constant, index_value, op

NIBBLE = 4
NIBBLES = 8
"""Elements of a word."""

BYTE, BYTES = 8, 4
"""Bits of a byte, and bytes of a word."""

SIXTEEN = 1 << NIBBLE
"""Values of a nibble."""

_MOST_VECTORS = 4
"""Of a panel: each takes registers for its sums, its scale and its zero point."""


@dataclass(frozen=True, slots=True)
class FewBits:
    """A weight in panels ``[panels, K / per, width]`` of ``dtype``, ``per`` elements each, ``moved`` added to them.

    ``scale``: ``[panels, blocks, width]``, ``divisor`` times what it is; ``zero``: the same of zero points, moved as
    elements are, or one number.
    """

    packed: Tensor
    per: int
    moved: int
    block: int
    width: int
    scale: Tensor
    divisor: int
    zero: Tensor | int

    def element(self, no: IntExpr, depth: IntExpr, ni: IntExpr) -> Val:
        """The float32 that an element stands for."""
        scale = self.scale[no, depth // self.block, ni]
        if self.divisor != 1:
            scale = scale * constant(1 / self.divisor, dtypes.float32)
        return self.whole(no, depth, ni).cast(dtypes.float32) * scale

    def whole(self, no: IntExpr, depth: IntExpr, ni: IntExpr) -> Val:
        """An element without its scale, ``q - zero``, an int32."""
        q = self.packed[no, depth // self.per, ni].cast(dtypes.int32)
        if self.per > 1:
            by = index_value(place_in_word(depth % self.per)).cast(dtypes.int32)
            q = op("bit_and", op("shift_right", q, by), constant((1 << 32 // self.per) - 1, dtypes.int32))
        return q - self.zero_of(no, depth // self.block, ni)

    def zero_of(self, no: IntExpr, b: IntExpr, ni: IntExpr) -> Val:
        """The zero point of a block, an int32."""
        if isinstance(self.zero, Tensor):
            return self.zero[no, b, ni].cast(dtypes.int32)
        return constant(self.zero, dtypes.int32)


def place_in_word(j: IntExpr) -> IntExpr:
    """The lowest bit of element ``j`` of a word."""
    return j % BYTES * BYTE + j // BYTES * NIBBLE


def few_bits(ctx: LowerContext, divisor: Callable[[int], int] = lambda per: 1, in_words: bool = False) -> FewBits:
    """The constant weight of a MatMulDequantized. Its scales are multiplied by what ``divisor``, a power of 2, says of
    the elements of a word. ``in_words``: bytes are in words as well, for which blocks are whole words."""
    p, width = product_sizes(ctx), panel_columns(ctx)
    per, moved, block = _storage(ctx, in_words)
    dtype = dtypes.int32 if per > 1 else dtypes.int8

    def pack(w: np.ndarray) -> np.ndarray:
        elements = w.astype(np.int8 if w.dtype != np.uint8 else np.uint8).view(np.uint8)
        elements = elements + np.uint8(moved % 256)
        return pack_columns(_words(elements, per) if per > 1 else elements.view(np.int8), width, dtype.numpy)

    packed = ctx.packed(1, pack, (ceildiv(p.n, width), p.k // per, width), f"words_{per}_{moved}_{width}", dtype)
    factor = divisor(per)
    scale = _of_blocks(ctx, 2, width, dtypes.float32, lambda s: s * np.float32(factor), f"{factor}")
    return FewBits(packed, per, moved, block, width, scale, factor, _zero(ctx, per, moved, width))


def panel_columns(facts: NodeFacts) -> int:
    """Columns of a panel."""
    p, itemsize = product_sizes(facts), dtypes.float32.itemsize
    return min(panel_width(p.rows, p.n, facts.target, itemsize), _MOST_VECTORS * facts.target.lanes(itemsize))


def elements_of_word(facts: NodeFacts) -> int:
    """Elements of the weight in one of what it is kept in: 8 in an int32, or 1 in a byte."""
    return _storage(facts)[0]


def elements_of_block(facts: NodeFacts) -> int:
    """Neighbours in a column that share a scale."""
    return _storage(facts)[2]


def _words(q: np.ndarray, per: int) -> np.ndarray:
    """``[K, N]`` of nibbles or bytes as ``[K / per, N]`` of int32."""
    columns = np.ascontiguousarray(q.T).reshape(q.shape[1], q.shape[0] // per, per // BYTES, BYTES)
    joined = columns[:, :, 0] if per == BYTES else columns[:, :, 0] | columns[:, :, 1] << np.uint8(NIBBLE)
    found: np.ndarray = np.ascontiguousarray(joined).view("<i4")[..., 0].T
    return found


def _storage(facts: NodeFacts, in_words: bool = False) -> tuple[int, int, int]:
    """Elements of a word, what is added to each, and elements of a block."""
    w = facts.input_values[1]
    signed, bits = (True, 8) if w is None else (w.dtype.kind == "i", w.dtype.bits)
    block = (facts.input_shape(1)[0] // facts.input_shape(2)[0]).value()
    if block is None:
        raise facts.unsupported("a weight of unknown size")
    if block % NIBBLES == 0 and _are_nibbles(facts):
        return NIBBLES, 1 << (bits - 1) if signed else 0, block
    if in_words:
        return BYTES, 1 << (bits - 1) if signed else 0, block
    return 1, 0 if signed or bits < 8 else -128, block


def _are_nibbles(facts: NodeFacts) -> bool:
    """True for elements of at most four bits, and bytes that are never above 15."""
    w, value = facts.constants[1], facts.input_values[1]
    if w is None or value is None:
        return False
    if value.dtype.bits <= NIBBLE:
        return True
    return value.dtype == dtypes.uint8 and facts.once("nibbles", lambda: bool(w.array.max(initial=0) < SIXTEEN))


def _of_blocks(
    ctx: LowerContext, operand: int, width: int, dtype: DType, transform: Callable[[np.ndarray], np.ndarray], key: str
) -> Tensor:
    """A scale or zero point of blocks in panels, ``[no, block, ni]``."""
    blocks, n = ctx.input_shape(operand)

    def pack(array: np.ndarray) -> np.ndarray:
        return pack_columns(transform(array), width, dtype.numpy)

    return ctx.packed(operand, pack, (ceildiv(n, width), blocks, width), f"blocks_{key}_{width}", dtype)


def _zero(ctx: LowerContext, per: int, moved: int, width: int) -> Tensor | int:
    known = ctx.constant(3)
    array = np.zeros(1, np.int16) if known is None else known.array.astype(np.int16).reshape(-1)
    if (array == array[0]).all():
        return int(array[0]) + moved
    dtype = dtypes.uint8 if per > 1 else dtypes.int8
    return _of_blocks(ctx, 3, width, dtype, lambda z: z.astype(np.int16) + moved, f"{moved}")
