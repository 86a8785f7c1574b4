"""FusedAttention (ours): two packed products with a softmax over rows between them; the division by the sum comes last.

The stages are declared so that all of them can be computed at a tile of queries: the scores have whole panels of keys,
those past the last key are -inf and weigh nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import Lower, LowerContext, wide, widen
from tilewright.lowering.formulas.attention_tiles import products_of_tiles, suits_tiles
from tilewright.lowering.formulas.elementwise import axis_names, broadcast_load
from tilewright.lowering.formulas.reduce import at_reduced, reduction_stage
from tilewright.lowering.geometry.packing import packed_stage
from tilewright.lowering.geometry.tile_sums import BLOCK
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    index_value,
    max_over,
    op,
    select,
    sum_over,
)


def _matrix(t: Tensor, lead: Sequence[IntExpr], batch: Sequence[IntExpr], row: IntExpr, column: IntExpr) -> Val:
    """Element (row, column) of the matrix of ``t`` that belongs to the batch index ``lead``."""
    return widen(broadcast_load(t, (*lead, row, column), (*batch, *t.shape[-2:])))


def lower_fused_attention(c: LowerContext) -> tuple[Tensor, ...]:
    if suits_tiles(c):
        return _in_tiles(c)
    q, k, out = c.input(0), c.input(1), c.output()
    batch, rows, keys = out.shape[:-2], out.shape[-2], k.shape[-2]
    dtype, rank = wide(out.dtype), len(out.shape) - 2
    names = axis_names(rank + 2)
    width = 2 * c.target.lanes(dtype.itemsize)  # one width, so that the same rows make a good tile of both products
    panels = ceildiv(keys, width)
    turned = packed_stage(
        c, batch, q.shape[-1], keys, width, dtype, lambda b, d, t: _matrix(k, b, batch, t, d), fills=keys.is_const
    )
    d = c.axis(q.shape[-1], "d")

    def products(*i: IntExpr) -> Reduction:
        query = _matrix(q, i[:rank], batch, i[rank], d.index)
        return sum_over(query * turned[(*i[:rank], i[rank + 1], d, i[rank + 2])], d)

    tile_names = [*names[:rank], "m", "no", "ni"]
    raw = c.stage(compute(c.name("scores"), (*batch, rows, panels, width), products, axis_names=tile_names))
    shape = (*batch, rows, panels * width)

    def scored(*i: IntExpr) -> Val:
        return _masked(c, raw, width, i, i[rank])

    masked = c.stage(compute(c.name("masked"), shape, scored, axis_names=names))
    weights, total = _softmax(c, masked)
    values = _values(c, batch, width)
    t = c.axis(keys, "t")

    def weighted(*i: IntExpr) -> Reduction:
        return sum_over(weights[(*i[: rank + 1], t.index)] * values(i[:rank], i[rank + 1], t.index, i[rank + 2]), t)

    column_panels = ceildiv(out.shape[-1], width)
    tiles = (*batch, rows, column_panels, const(width))
    mixed = c.stage(compute(c.name("mixed"), tiles, weighted, axis_names=tile_names))

    return _divided(c, mixed, width, total)


def _values(
    c: LowerContext, batch: Sequence[IntExpr], width: int
) -> Callable[[Sequence[IntExpr], IntExpr, IntExpr, IntExpr], Val]:
    """Element ``(b, no, t, ni)`` of the values in panels: of a copy, or where they lie, if one tile has all rows and
    so reads each of them once."""
    v, out = c.input(2), c.output()
    dtype, (m, n) = wide(out.dtype), (d.value() for d in out.shape[-2:])
    most = c.target.tile_rows(width // c.target.lanes(dtype.itemsize))
    if m is not None and m <= most and n is not None and n % width == 0:
        return lambda b, no, t, ni: _matrix(v, b, batch, t, no * width + ni)
    packed = packed_stage(
        c, batch, v.shape[-2], out.shape[-1], width, dtype, lambda b, t, n: _matrix(v, b, batch, t, n)
    )
    return lambda b, no, t, ni: packed[(*b, no, t, ni)]


def _in_tiles(c: LowerContext) -> tuple[Tensor, ...]:
    """Both products in matrix tiles."""

    def scored(raw: Tensor, i: Sequence[IntExpr]) -> Val:
        return _masked(c, raw, BLOCK, i, minimum(i[-2], c.output().shape[-2] - 1))

    mixed, total = products_of_tiles(c, c.output().shape[:-2], scored, lambda scores: _softmax(c, scores))
    return _divided(c, mixed, BLOCK, total)


def _softmax(c: LowerContext, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of each row before the division, and their sums."""
    last, shape = (scores.ndim - 1,), scores.shape
    top = c.stage(reduction_stage(c, "score_max", shape, last, lambda i: scores[tuple(i)], max_over))

    def weight(*i: IntExpr) -> Val:
        return op("exp", scores[i] - top[at_reduced(i, last)])

    weights = c.stage(compute(c.name("weights"), shape, weight, axis_names=axis_names(scores.ndim)))
    total = c.stage(reduction_stage(c, "weight_sum", shape, last, lambda i: weights[tuple(i)], sum_over))
    return _without_nan(c, weights, total) if c.attr_int("nan_rows_to_zero", 0) else (weights, total)


def _divided(c: LowerContext, mixed: Tensor, width: int, total: Tensor) -> tuple[Tensor, ...]:
    """The result: sums of weights times values, in panels of ``width`` columns, over the sums of the weights."""
    out, keys = c.output(), c.input(1).shape[-2]

    def result(*i: IntExpr) -> Val:
        n = i[-1]
        weight = total[(*i[:-1], const(0))]
        if not keys.value():  # rows of no weights: a sum of nothing, not 0 / 0
            weight = select(index_value(keys).equal(0), 1.0, weight)
        return (mixed[(*i[:-1], n // width, n % width)] / weight).cast(out.dtype)

    names = axis_names(len(out.shape))
    return (compute(c.name("attention"), out.shape, result, axis_names=names),)


def _without_nan(c: LowerContext, weights: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of 0 and a sum of 1 for rows whose sum is NaN: no weight of such a row is a number after the division."""
    names, last = axis_names(weights.ndim), (weights.ndim - 1,)

    def kept(*i: IntExpr) -> Val:
        return select(op("is_nan", total[at_reduced(i, last)]), 0.0, weights[i])

    def whole(*i: IntExpr) -> Val:
        return select(op("is_nan", total[i]), 1.0, total[i])

    own = c.stage(compute(c.name("kept_weights"), weights.shape, kept, axis_names=names))
    return own, c.stage(compute(c.name("kept_sum"), total.shape, whole, axis_names=names))


def _masked(c: LowerContext, raw: Tensor, width: int, i: Sequence[IntExpr], row: IntExpr) -> Val:
    """The score of a query and a key as the softmax sees it. ``row``: of the mask."""
    rows, keys = c.output().shape[-2], c.input(1).shape[-2]
    t = i[-1]
    x = raw[(*i[:-1], t // width, t % width)] * c.attr_float("scale", 1.0)
    if c.has_input(3):
        at = (*i[:-2], row, t)
        x = x + widen(broadcast_load(c.input(3), at, (*c.output().shape[:-1], keys)))
    hidden: Val | None = None
    if c.attr_int("causal", 0):
        hidden = index_value(t) > index_value(i[-2] + keys - rows)
    if (n := keys.value()) is None or n % width:
        past = index_value(t) >= index_value(keys)
        hidden = past if hidden is None else past | hidden
    return x if hidden is None else select(hidden, constant(float("-inf"), x.dtype), x)


LOWER: dict[str, Lower] = {"FusedAttention": lower_fused_attention}
