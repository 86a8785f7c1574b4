"""Loads from tables of 256 bytes that vectors look up (:mod:`tilewright.codegen.math.byte_tables`)."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType, uint8
from tilewright.machine.target import Target
from tilewright.machine.vectors import shuffled_bytes
from tilewright.tensor_ir.ir import Cast, Dyn, Expr


def looked_up_byte(target: Target, dtype: DType, capacity: int | None, offset: IntExpr) -> Expr | None:
    """The byte that ``offset`` is, in a table of ``capacity`` bytes with a place for each that the CPU looks up by
    vectors; None if it is no such table, or no such CPU."""
    if capacity != 1 << uint8.bits or dtype.bits != 8 or not shuffled_bytes(target):
        return None
    if len(offset.terms) != 1 or offset.const or offset.terms[0][1] != 1 or len(offset.terms[0][0]) != 1:
        return None
    (atom,) = offset.terms[0][0]
    value = atom.value if isinstance(atom, Dyn) else None
    return value.value if isinstance(value, Cast) and value.value.dtype == uint8 else None
