"""Loads of bytes that vectors look up in registers (:mod:`tilewright.codegen.math.byte_tables`): from tables of 256
bytes, and from any place of the sixteen at one."""

from __future__ import annotations

from tilewright.core.arith.expr import Atom, IntExpr, of_atom
from tilewright.core.dtypes import DType, uint8
from tilewright.machine.target import Target
from tilewright.machine.vectors import PART, shuffled_bytes
from tilewright.tensor_ir.ir import Cast, Const, Dyn, Expr, Op


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


def place_among_sixteen(target: Target, dtype: DType, offset: IntExpr) -> tuple[IntExpr, Expr] | None:
    """``(first, place)`` of an ``offset`` to a byte that is ``first`` and a loaded byte below 16; None for others, or
    if the CPU does not shuffle bytes."""
    if dtype.bits != 8 or not shuffled_bytes(target):
        return None
    found = [
        (atom, value) for mono, factor in offset.terms for atom in mono
        if len(mono) == 1 and factor == 1 and (value := _below_sixteen(atom)) is not None
    ]  # fmt: skip
    return (offset - of_atom(found[0][0]), found[0][1]) if len(found) == 1 else None


def _below_sixteen(atom: Atom) -> Expr | None:
    """The byte below 16 that ``atom`` is."""
    value = atom.value if isinstance(atom, Dyn) else None
    value = value.value if isinstance(value, Cast) else value
    if not isinstance(value, Op) or value.name != "bit_and" or value.dtype != uint8:
        return None
    limit = value.args[1]
    return value if isinstance(limit, Const) and limit.value == PART - 1 else None
