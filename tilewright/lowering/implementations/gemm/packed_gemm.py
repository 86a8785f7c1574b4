"""One product with one B in panels, packed at build time or when the function runs: ``acc[row, no, ni]``.

All batch dimensions of A are rows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import pack_columns, packed_stage, panel_width
from tilewright.lowering.geometry.product import (
    LEAST_ROWS,
    computed_type,
    panel_sums,
    product_result,
    product_sizes,
    right_operand,
    row_sums,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.by_rows import by_rows, kept, open_rows_refusal
from tilewright.lowering.implementations.gemm.cost import cost_by_row, packing
from tilewright.tensor_ir.compute import Tensor, Val


def packed_right_operand(ctx: LowerContext, width: int) -> Tensor:
    """B as ``[no, k, ni]`` in panels of ``width`` columns."""
    p, dtype = product_sizes(ctx), computed_type(ctx)
    if not p.constant_b:
        return packed_stage(ctx, (), p.k, p.n, width, dtype, right_operand(ctx))

    def transform(w: np.ndarray) -> np.ndarray:
        return pack_columns(w.T if p.transposed_b else w.reshape(w.shape[0], prod(w.shape[1:])), width, dtype.numpy)

    key = f"panels_{width}_transposed" if p.transposed_b else f"panels_{width}"
    return ctx.packed(1, transform, (ceildiv(p.n, width), p.k, width), key, dtype)


def _panels(ctx: LowerContext) -> tuple[int, Callable[[IntExpr, IntExpr, IntExpr], Val]]:
    """The width of the panels, and their elements."""
    p = product_sizes(ctx)
    width = panel_width(p.rows, p.n, ctx.target, computed_type(ctx).itemsize)
    packed = packed_right_operand(ctx, width)
    return width, lambda no, k, ni: packed[no, k, ni]


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    width, element = _panels(ctx)
    sums = row_sums(ctx, element, product_sizes(ctx).k)
    return product_result(ctx, panel_sums(ctx, width, computed_type(ctx), sums))


def _applies(facts: NodeFacts) -> str | None:
    return None if product_sizes(facts).shares_b else "the second operand has batch dimensions"


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, 1.0, 0.0 if product_sizes(facts).constant_b else packing(facts))


def _by_rows(ctx: LowerContext) -> tuple[Tensor, ...]:
    return by_rows(ctx, kept(ctx, *_panels(ctx)), LEAST_ROWS)


def _applies_by_rows(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.constant_b or computed_type(facts) != dtypes.float32:
        return "the second operand is not a constant matrix of float32"
    return open_rows_refusal(facts)


BY_ROWS = Implementation("MatMul", "packed_by_rows", _by_rows, _cost, _applies_by_rows)
MATMUL = Implementation("MatMul", "packed_gemm", _lower, _cost, _applies)
GEMM = replace(MATMUL, op="Gemm")
