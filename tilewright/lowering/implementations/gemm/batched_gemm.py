"""A product for each batch element, B packed for each when the function runs: ``acc[b..., m, no, ni]``."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import packed_stage, panel_width
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
from tilewright.lowering.implementations.gemm.cost import cost_by_row, packing
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over


def batched_product(ctx: LowerContext, p: ProductSizes, read_a: Read, read_b: Read, dtype: DType) -> Read:
    """The sums of a product for each batch element."""
    width = panel_width(p.m, p.n, ctx.target, dtype.itemsize)
    packed = packed_stage(ctx, p.batch, p.k, p.n, width, dtype, read_b)
    k = ctx.axis(p.k, "k")
    rank = len(p.batch)

    def formula(*i: IntExpr) -> Reduction:
        value = read_a(i[:rank], i[rank], k.index).cast(dtype)
        return sum_over(value * packed[(*i[:rank], i[rank + 1], k, i[rank + 2])], k)

    names = [*(f"b{d}" for d in range(rank)), "m", "no", "ni"]
    shape = (*p.batch, p.m, ceildiv(p.n, width), as_expr(width))
    acc = ctx.stage(compute(ctx.name("acc"), shape, formula, axis_names=names))
    return lambda bi, row, col: acc[(*bi, row, col // width, col % width)]


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    acc = batched_product(ctx, product_sizes(ctx), left_operand(ctx), right_operand(ctx), computed_type(ctx))
    return product_result(ctx, acc)


def _applies(facts: NodeFacts) -> str | None:
    return "the second operand has no batch dimensions" if product_sizes(facts).shares_b else None


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, 1.0, packing(facts))


BATCHED_GEMM = Implementation("MatMul", "batched_gemm", _lower, _cost, _applies)
