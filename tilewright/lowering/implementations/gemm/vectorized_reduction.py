"""Vectors run along the depth: for few columns, which would leave much of a vector empty.

``acc[row, n, lane]`` over every ``lanes``-th step, then the sum of the lanes. B lies ``[n, k, lane]``, so that a step
reads neighbours of both operands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import flatten
from tilewright.lowering.geometry.product import (
    computed_type,
    left_operand,
    place_of_row,
    product_result,
    product_sizes,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row, lanes_of, useful_lanes
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over

_ALONG_DEPTH = 0.6
"""The share of the best speed that vectors along the depth reach."""


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, dtype, read_a, lanes = product_sizes(ctx), computed_type(ctx), left_operand(ctx), lanes_of(ctx)
    rows, inner, parts = p.rows, p.row_extents, p.k // lanes

    def transform(w: np.ndarray) -> np.ndarray:
        columns = w if p.transposed_b else w.reshape(w.shape[0], -1).T
        return np.ascontiguousarray(columns.reshape(columns.shape[0], -1, lanes), dtype.numpy)

    key = f"lanes_{lanes}_transposed" if p.transposed_b else f"lanes_{lanes}"
    packed = ctx.packed(1, transform, (p.n, parts, lanes), key, dtype)
    part, lane = ctx.axis(parts, "k"), ctx.axis(const(lanes), "lane")

    def formula(row: IntExpr, n: IntExpr, lane: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        return sum_over(read_a(bi, at, part.index * lanes + lane).cast(dtype) * packed[n, part, lane], part)

    full = (rows, p.n)
    acc = ctx.stage(compute(ctx.name("acc"), (*full, const(lanes)), formula, axis_names=["m", "n", "lane"]))
    sums = ctx.stage(
        compute(ctx.name("sums"), full, lambda m, n: sum_over(acc[m, n, lane], lane), axis_names=["m", "n"])
    )
    return product_result(ctx, lambda bi, row, col: sums[flatten((*bi, row), inner), col])


def _applies(facts: NodeFacts) -> str | None:
    p, lanes = product_sizes(facts), lanes_of(facts)
    if not p.constant_b:
        return "the second operand is not a constant matrix"
    if not p.k.value() or not p.n.value() or lanes == 1:
        return "symbolic or no steps or columns, or vectors of one element"
    return f"a depth of {p.k} is no whole vectors of {lanes}" if int(p.k) % lanes else None


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, 1.0) * useful_lanes(facts) / _ALONG_DEPTH


MATMUL = Implementation("MatMul", "vectorized_reduction", _lower, _cost, _applies, measured=True)
GEMM = replace(MATMUL, op="Gemm")
