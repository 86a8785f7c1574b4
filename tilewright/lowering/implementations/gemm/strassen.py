"""Strassen's algorithm, one level of it: seven products of half the size in each direction instead of eight.

A tile is a pair of neighbouring rows. The columns of the left operand are cut in halves, and so are rows and columns of
the weight. ``V`` are sums of quarters of the left operand, ``M`` its products with sums of quarters of the weight,
which are made and packed at build time, ``Y`` the sums of those. The factors are in :mod:`.strassen_factors`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import flatten, pack_columns, panel_width, unflatten
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import cost_by_row, known_rows
from tilewright.lowering.implementations.gemm.strassen_factors import (
    LEFT,
    PRODUCTS,
    RESULT,
    combined_weight,
    estimated_error,
    signed_sum,
)
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    """A single last row is a pair with itself."""
    p, read_a, dtype = product_sizes(ctx), left_operand(ctx), dtypes.float32
    batch, rows, depth, columns = int(product(p.batch)), int(p.m), int(p.k), int(p.n)

    def read(b: IntExpr, row: IntExpr, k: IntExpr) -> Val:
        return read_a(unflatten(b, p.batch[1:]) if p.batch else (), row, k).cast(dtype)

    pairs, half_depth, half = -(-rows // 2), depth // 2, columns // 2
    tiles = const(batch * pairs)

    def left(t: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        b, first = p // pairs, p % pairs * 2
        at = (first, first + 1 if rows % 2 == 0 else minimum(first + 1, const(rows - 1)))
        quarters = [read(b, row, c + start) for row in at for start in (0, half_depth)]
        return _one_of(t, LEFT, quarters)

    v = ctx.stage(compute(ctx.name("V"), (const(PRODUCTS), tiles, const(half_depth)), left))
    lanes = ctx.target.lanes(dtype.itemsize)
    best = panel_width(tiles, const(half), ctx.target, dtype.itemsize)
    width = next(w for w in range(best, 0, -lanes) if half % w == 0)

    def pack(w: np.ndarray) -> np.ndarray:
        return np.stack([pack_columns(part, width, dtype.numpy) for part in combined_weight(w)], axis=1)

    panels = const(half // width)
    packed = ctx.packed(1, pack, (panels, const(PRODUCTS), const(half_depth), const(width)), f"strassen_{width}", dtype)
    k = ctx.axis(const(half_depth), "k")

    def of_quarters(t: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(v[t, p, k] * packed[no, t, k, ni], k)

    m = ctx.stage(compute(ctx.name("M"), (const(PRODUCTS), tiles, panels, const(width)), of_quarters))

    def quarter(p: IntExpr, r: IntExpr, h: IntExpr, c: IntExpr) -> Val:
        return _one_of(r * 2 + h, RESULT, [m[t, p, c // width, c % width] for t in range(PRODUCTS)])

    y = ctx.stage(compute(ctx.name("Y"), (tiles, const(2), const(2), const(half)), quarter))

    def acc(bi: Sequence[IntExpr], row: IntExpr, col: IntExpr) -> Val:
        b = flatten(bi, p.batch[1:]) if p.batch else const(0)
        return y[b * pairs + row // 2, row % 2, col // half, col % half]

    return product_result(ctx, acc)


def _one_of(i: IntExpr, factors: Sequence[Sequence[int]], values: Sequence[Val]) -> Val:
    """The sum of ``values`` times ``factors[i]``, each 1, 0 or -1."""
    return choose(i, [const(n + 1) for n in range(len(factors))], lambda n: signed_sum(factors[n], values))


def _applies(facts: NodeFacts) -> str | None:
    p, lanes = product_sizes(facts), facts.target.lanes(dtypes.float32.itemsize)
    sizes = [product(p.batch).value(), p.m.value(), p.k.value(), p.n.value()]
    if not p.constant_b or p.b_rank != 2 or p.a_rank < 2:
        return "not a product of rows with a constant matrix"
    if facts.output().dtype != dtypes.float32:
        return f"type {facts.output().dtype}, expected float32"
    if not all(sizes):
        return "sizes that are symbolic or zero"
    if int(p.k) % 2 or int(p.n) % (2 * lanes):
        return f"depth {p.k} and {p.n} columns, expected multiples of 2 and {2 * lanes}"
    return None


def _cost(facts: NodeFacts) -> float:
    """Seven eighths of the products, 1.75 times the weights, and the sums of quarters."""
    p, costs = product_sizes(facts), facts.target.costs
    sums = costs.quartered_element * known_rows(p) * (int(p.k) + int(p.n))
    return cost_by_row(facts, 7 / 8, 3 / 4 * costs.weight_load) + sums


def _error(facts: NodeFacts) -> float:
    weight = facts.constants[1]
    return math.inf if weight is None else estimated_error(weight.array)


STRASSEN = Implementation("MatMul", "strassen", _lower, _cost, _applies, _error, measured=True, spreads=True)
"""Its weights take 1.75 times the memory, which no estimate of the time sees."""
