"""The depth is cut in parts, each a product of its own, whose results are added up: work for all threads, where the
result has few tiles.

``part[s, row, no, ni] = sum over k of A[row, s * length + k] * B[no, s * length + k, ni]``, then the sum over ``s``.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import panel_width
from tilewright.lowering.geometry.product import (
    computed_type,
    from_panels,
    left_operand,
    place_of_row,
    product_result,
    product_sizes,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.cost import MANY, cost_by_row, known_rows, lanes_of, packing
from tilewright.lowering.implementations.gemm.packed_gemm import packed_right_operand
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over

_LEAST = 64
"""Steps of a part."""

_BUSY = 1.25
"""How much longer it takes where the tiles of the result are enough for all threads: each part is a pass of its own."""

_SUM = 2.0
"""What a result of a part costs that is written and read again, as a ratio to a step of its sum."""


def _parts(facts: NodeFacts) -> int:
    """As many equal parts of the depth as two a thread, or the next fewer; 1 if it has none that are long enough."""
    depth = product_sizes(facts).k.value() or 0
    most = max(2, 2 * facts.target.threads)
    return next((n for n in range(most, 1, -1) if depth % n == 0 and depth // n >= _LEAST), 1)


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, dtype, read_a, parts = product_sizes(ctx), computed_type(ctx), left_operand(ctx), _parts(ctx)
    width, length = panel_width(p.rows, p.n, ctx.target, dtype.itemsize), p.k // parts
    packed = packed_right_operand(ctx, width)
    k, s = ctx.axis(length, "k"), ctx.axis(parts, "s")

    def part(s: IntExpr, row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        step = s * length + k.index
        return sum_over(read_a(bi, at, step).cast(dtype) * packed[no, step, ni], k)

    full = (p.rows, ceildiv(p.n, width), const(width))
    names = ["m", "no", "ni"]
    part_sums = ctx.stage(compute(ctx.name("part"), (const(parts), *full), part, axis_names=["s", *names]))
    total = ctx.stage(compute(ctx.name("acc"), full, lambda *i: sum_over(part_sums[(s, *i)], s), axis_names=names))
    return product_result(ctx, from_panels(p, width, total))


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.shares_b:
        return "the second operand has batch dimensions"
    return None if _parts(facts) > 1 else f"a depth of {p.k} has no equal parts of {_LEAST} steps or more"


def _cost(facts: NodeFacts) -> float:
    p, lanes, threads = product_sizes(facts), lanes_of(facts), facts.target.threads
    columns = p.n.value() or MANY
    tiles = -(-known_rows(p) // facts.target.tile_rows(2)) * -(-columns // (2 * lanes))
    products = cost_by_row(facts, 1.0, 0.0 if p.constant_b else packing(facts))
    return products * (1.0 if tiles < 2 * threads else _BUSY) + _SUM * _parts(facts) * known_rows(p) * columns


MATMUL = Implementation("MatMul", "split_k", _lower, _cost, _applies, measured=True)
GEMM = replace(MATMUL, op="Gemm")
