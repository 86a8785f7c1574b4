"""Bytes as ``dot4`` multiplies them: A's unsigned, B's signed, and what their zero points take off the sums.

Elements of the other kind are moved by 128, and so are their zero points. Of ``a`` and ``b`` as they are multiplied,
with zero points ``za`` and ``zb``, ``sum((a - za) (b - zb)) = sum(a b) - za sum(b) - zb sum(a) + K za zb`` modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.tensor_ir.compute import Tensor, Val, constant, index_value

OfColumn: TypeAlias = Callable[[IntExpr, Val], "Val | None"]

MOVED = 128
ONES = 0x01010101
"""Four bytes of 1: a product with them is the sum of the other four."""


def moved_a(dtype: DType) -> int:
    """What is added to elements of A, so that they are unsigned."""
    return MOVED if dtype == dtypes.int8 else 0


def moved_b(dtype: DType) -> int:
    """What is taken off elements of B, so that they are signed."""
    return MOVED if dtype == dtypes.uint8 else 0


def signed(w: np.ndarray) -> np.ndarray:
    """B as it is multiplied: int8."""
    return w if w.dtype == np.int8 else (w ^ MOVED).view(np.int8)


def is_zero(facts: NodeFacts, operand: int, moved: int = 0) -> bool:
    """True if the zero point of that operand is known to be ``moved`` everywhere; one that is absent is 0."""
    if not facts.has_input(operand):
        return moved == 0
    known = facts.constants[operand]
    return known is not None and bool((known.array.astype(np.int32) == moved).all())


def known_zero(facts: NodeFacts, operand: int, moved: int) -> int | None:
    """The zero point of that operand, moved, if it is one constant; one that is absent is 0."""
    if not facts.has_input(operand):
        return moved
    known = facts.constants[operand]
    return None if known is None or known.size != 1 else int(known.array.reshape(())) + moved


def sums_of_b(
    ctx: LowerContext, columns: Sequence[IntExpr], sums: Callable[[np.ndarray], np.ndarray], key: str = "sums"
) -> OfColumn:
    """``f(column, za)``: what the zero point of A adds to a result. A constant one is multiplied at build time.

    ``sums``: those of the columns of B, ``columns`` of them; ``key`` names them."""
    za = known_zero(ctx, 2, moved_a(ctx.input(0).dtype))
    if za == 0:
        return lambda column, zero: None

    def transform(w: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return sums(signed(w)) * np.int32(1 if za is None else za)

    table = ctx.packed(1, transform, columns, f"{key}_times_{za}", dtypes.int32)
    return lambda column, zero: table[column] if za is not None else zero * table[column]


def without_zero_points(total: Val, za: Val, zb: Val, of_b: Val | None, of_a: Val | None, depth: IntExpr) -> Val:
    """The sum of products of ``a - za`` and ``b - zb`` from that of ``a`` and ``b``. ``of_b``: ``za`` times the sum of
    ``b``, ``of_a``: the sum of ``a``; None where the zero point of the other is nothing."""
    if of_b is not None:
        total = total - of_b
    if of_a is not None:
        total = total - zb * (of_a - za * index_value(depth).cast(dtypes.int32))
    return total


def zero_point(of: Tensor | None, read: Callable[[Tensor], Val], moved: int) -> Val:
    """A zero point as int32, moved; ``of``: None if it is absent."""
    own = constant(0, dtypes.int32) if of is None else read(of).cast(dtypes.int32)
    return own + moved
