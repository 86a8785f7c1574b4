"""Addresses: where a load or store falls in its dense row-major buffer, and how far one step of a loop moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.arith.bounds import Ranges, simplify
from tilewright.core.arith.expr import ZERO, IntExpr
from tilewright.tensor_ir.ir import Load, Store


def linear_address(indices: Sequence[IntExpr], shape: Sequence[IntExpr]) -> IntExpr:
    """The element offset of ``indices`` in a row-major buffer of ``shape``."""
    out = ZERO
    for i, extent in zip(indices, shape, strict=True):
        out = out * extent + i
    return out


def bound_indices(
    indices: Sequence[IntExpr], environment: Mapping[str, IntExpr], ranges: Ranges
) -> tuple[IntExpr, ...]:
    """``indices`` with block axes replaced by their bindings, simplified with the ranges of the loop variables."""
    return tuple(simplify(i.substitute(environment), ranges) for i in indices)


def address(
    access: Load | Store, shape: Sequence[IntExpr], environment: Mapping[str, IntExpr], ranges: Ranges
) -> IntExpr:
    """The element offset of a load or store as an expression of loop variables.

    ``environment`` binds the axes of the block around it (:func:`scopes.block_environment`; empty outside blocks).
    """
    return simplify(linear_address(bound_indices(access.indices, environment, ranges), shape), ranges)


def stride(address: IntExpr, loop: str, ranges: Ranges) -> IntExpr | None:
    """How far one step of ``loop`` moves an address; None if that differs from step to step."""
    if loop not in address.free_vars():
        return ZERO
    coefficient = address.coefficient(loop)
    return None if coefficient is None else simplify(coefficient, ranges)
