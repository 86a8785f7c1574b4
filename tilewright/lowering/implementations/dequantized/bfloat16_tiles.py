"""Products with a weight of few bits in matrix tiles of bfloat16, as exact as float32.

The whole numbers ``q - zero`` of a weight have at most 8 bits, so that a bfloat16 has all of them; a float32 is a sum
of three (:mod:`tilewright.lowering.geometry.split_rows`). Products are exact, sums float32, and each group of
neighbours is scaled once: ``acc[row, no, ni] += scale * (sum over parts i and pairs of dot2(A_i, q - zero))``. Rows of
bfloat16 are one part as they are. Panels of the weight are made each just before its columns are multiplied; fewer rows
than fill a tile are summed as in :mod:`.fixed_point`.
"""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE, IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import BYTES, FewBits, elements_of_block, few_bits, panel_columns
from tilewright.lowering.geometry.product import (
    Read,
    few_or_many,
    from_panels,
    product_result,
    product_sizes,
    rows_one_by_one,
)
from tilewright.lowering.geometry.split_rows import pair_of, parts_of, split_rows
from tilewright.lowering.geometry.tile_sums import BLOCK, Place, grouped_sums, whole_steps
from tilewright.lowering.geometry.words import PAIRS
from tilewright.lowering.implementations import tiles
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.dequantized import fixed_point, weight_only
from tilewright.lowering.implementations.gemm.by_rows import open_rows_refusal
from tilewright.lowering.implementations.gemm.cost import known_rows
from tilewright.machine.vectors import share_of_tiles
from tilewright.tensor_ir.compute import Tensor, Val, index_value, select
from tilewright.tensor_ir.intrinsics import SIDE

_FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)

_LONGEST_GROUP = 512
"""Elements of a group: its words of a panel, 32 KiB, stay near."""

_PER_SUM = 5.0
"""Multiply-adds for a sum of a group: it leaves its tile, is scaled and added to those of others."""

_PER_WEIGHT = 1.0
"""And for each element of the weight, of which a word is made."""

_LEAST = 16
"""Rows from which on a tile takes less time than row by row, where a call tells their number."""


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    _require(ctx)
    return product_result(ctx, _sums(ctx, few_bits(ctx, in_words=True), ONE))


def _by_rows(ctx: LowerContext) -> tuple[Tensor, ...]:
    _require(ctx)
    w = few_bits(ctx, in_words=True)
    few = fixed_point.row_sums(ctx, w, rows_one_by_one(product_sizes(ctx), _LEAST))
    return product_result(ctx, few_or_many(ctx, w.width, _LEAST, few, lambda many: _sums(ctx, w, many)))


def _require(ctx: LowerContext) -> None:
    if (reason := _applies(ctx)) is not None:
        raise ctx.unsupported(reason)


def _sums(ctx: LowerContext, w: FewBits, used: IntExpr) -> Read:
    """``acc(batch, row, column)``; ``used``: 1, or 0 where nothing is summed."""
    p, width, size = product_sizes(ctx), _columns(w.width), _group(w.block)
    rows, group = split_rows(ctx, p.rows, used), const(size)
    whole = whole_steps(PAIRS.count(group))
    is_whole = whole * PAIRS.per == group

    def left(row: IntExpr, step: Place, q: IntExpr) -> Val:
        g, part, s = step
        return PAIRS.join(lambda k: rows.bits(part, row, g * size + k), s * SIDE + q, group, whole)

    def right(no: IntExpr, g: IntExpr, s: IntExpr, q: IntExpr, ni: IntExpr) -> Val:
        column = no * width + ni
        panel, inside = column // w.width, column % w.width

        def element(j: int) -> Val:
            k = (s * SIDE + q) * PAIRS.per + j
            found = w.whole(panel, g * size + k, inside).cast(dtypes.float32)
            return found if is_whole else select(index_value(k) < index_value(group), found, 0.0)

        return pair_of(element(0), element(1))

    def scale(no: IntExpr, g: IntExpr, ni: IntExpr) -> Val:
        column = no * width + ni
        return w.scale[column // w.width, g // (w.block // size), column % w.width]

    acc = grouped_sums(
        ctx, p.rows, p.k // size * used, rows.count, _steps(size), ceildiv(p.n, w.width) * (w.width // width), width,
        left, right, scale, PAIRS.times,
    )  # fmt: skip
    return from_panels(p, width, acc)


def _columns(width: int) -> int:
    """Columns of a panel in tiles, of which a packed one has a whole number."""
    return BLOCK if width % BLOCK == 0 else SIDE


def _group(block: int) -> int:
    """Elements of a group, a part of a block that leaves least of its tiles empty, the longest of these."""
    sizes = [n for n in range(BYTES, min(block, _LONGEST_GROUP) + 1, BYTES) if block % n == 0]
    return min(sizes, key=lambda n: (_steps(n) / n, -n))


def _steps(group: int) -> int:
    """Rows of words of a tile that a group takes."""
    return int(whole_steps(PAIRS.count(const(group)))) // SIDE


def _applies(facts: NodeFacts) -> str | None:
    if (reason := fixed_point.refusal(facts)) is not None:
        return reason
    if facts.input_values[0] is not None and facts.input_values[0].dtype not in _FLOATS:
        return f"rows of {facts.input_values[0].dtype}"
    if panel_columns(facts) % SIDE:
        return "panels that are not whole tiles"
    return tiles.product_refusal(PAIRS, facts)


def _cost(facts: NodeFacts) -> float:
    p, costs, size = product_sizes(facts), facts.target.costs, _group(elements_of_block(facts))
    rows, columns, depth = tiles.padded(known_rows(p)), tiles.padded(p.n.value() or 0), p.k.value() or size
    x = facts.input_values[0]
    words = depth // size * _steps(size) * SIDE * (1 if x is None else parts_of(x.dtype))
    products = (
        rows * columns * (words * PAIRS.per * share_of_tiles(facts.target, PAIRS.product) + depth // size * _PER_SUM)
    )
    weights = columns * depth * (_PER_WEIGHT + costs.weight_load * weight_only.OF_BYTES)
    return products + weights + rows * words * costs.tile_word + costs.tile_start


def _cost_by_rows(facts: NodeFacts) -> float:
    """That of few rows, which are summed in the same way with panels of float32 for many, in proportion to what tiles
    take for these."""
    return fixed_point.cost_by_rows(facts) * _cost(facts) / weight_only.cost_of_many(facts)


def _few_too(facts: NodeFacts) -> str | None:
    return _applies(facts) or open_rows_refusal(facts)


TILES = Implementation("MatMulDequantized", "bfloat16_tiles", _lower, _cost, _applies, spreads=True)
BY_ROWS = Implementation("MatMulDequantized", "bfloat16_tiles_by_rows", _by_rows, _cost_by_rows, _few_too, spreads=True)
