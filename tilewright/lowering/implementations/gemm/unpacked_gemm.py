"""Too few rows for packing to pay: ``acc[b..., m, n]`` straight from the operands."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.product import (
    ProductSizes,
    Read,
    computed_type,
    left_operand,
    product_result,
    product_sizes,
    right_operand,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over

UNPACKED_ROW = 2.0
"""What a row takes that reads B as it lies, as a ratio to one that reads it in panels."""


def unpacked_product(ctx: LowerContext, p: ProductSizes, read_a: Read, read_b: Read, dtype: DType) -> Read:
    """The sums, row by row."""
    k = ctx.axis(p.k, "k")
    rank = len(p.batch)

    def formula(*i: IntExpr) -> Reduction:
        a = read_a(i[:rank], i[rank], k.index).cast(dtype)
        return sum_over(a * read_b(i[:rank], k.index, i[rank + 1]).cast(dtype), k)

    names = [*(f"b{d}" for d in range(rank)), "m", "n"]
    acc = ctx.stage(compute(ctx.name("acc"), (*p.batch, p.m, p.n), formula, axis_names=names))
    return lambda bi, row, col: acc[(*bi, row, col)]


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    acc = unpacked_product(ctx, product_sizes(ctx), left_operand(ctx), right_operand(ctx), computed_type(ctx))
    return product_result(ctx, acc)


def _cost(facts: NodeFacts) -> float:
    """Each row reads B again: more than packing it takes, from the fourth on."""
    return cost_by_row(facts, UNPACKED_ROW)


MATMUL = Implementation("MatMul", "unpacked_gemm", _lower, _cost)
GEMM = replace(MATMUL, op="Gemm")
