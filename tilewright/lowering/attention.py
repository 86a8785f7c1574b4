"""FusedAttention (ours): scores, softmax and weighted sum in stages, the division by the sum of weights last."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.intexpr import IntExpr, const
from tilewright.lowering.context import LowerContext, Rule, widen
from tilewright.lowering.elementwise import axis_names, broadcast_load
from tilewright.lowering.reduce import at_reduced, reduction_stage
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
    q, k, v, out = c.input(0), c.input(1), c.input(2), c.output()
    batch, rows, keys = out.shape[:-2], out.shape[-2], k.shape[-2]
    shape = (*batch, rows, keys)
    scale, causal = c.attr_float("scale", 1.0), c.attr_int("causal", 0)
    names = axis_names(len(shape))
    d = c.axis(q.shape[-1], "d")

    def products(*i: IntExpr) -> Reduction:
        lead, s, t = i[:-2], i[-2], i[-1]
        return sum_over(_matrix(q, lead, batch, s, d.index) * _matrix(k, lead, batch, t, d.index), d)

    raw = c.stage(compute(c.name("scores"), shape, products, axis_names=names))

    def masked(*i: IntExpr) -> Val:
        x = raw[i] * scale
        if c.has_input(3):
            x = x + widen(broadcast_load(c.input(3), i, shape))
        if not causal:
            return x
        hidden = index_value(i[-1]) > index_value(i[-2] + keys - rows)
        return select(hidden, constant(float("-inf"), x.dtype), x)

    scores = c.stage(compute(c.name("masked"), shape, masked, axis_names=names))
    last = (len(shape) - 1,)
    top = c.stage(reduction_stage(c, "score_max", shape, last, lambda i: scores[tuple(i)], max_over))
    weights = c.stage(
        compute(
            c.name("weights"), shape, lambda *i: op("exp", scores[i] - top[at_reduced(i, last)]), axis_names=names
        )
    )
    total = c.stage(reduction_stage(c, "weight_sum", shape, last, lambda i: weights[tuple(i)], sum_over))
    t = c.axis(keys, "t")

    def weighted(*i: IntExpr) -> Reduction:
        lead, s, column = i[:-2], i[-2], i[-1]
        return sum_over(weights[(*lead, s, t.index)] * _matrix(v, lead, batch, t.index, column), t)

    mixed = c.stage(compute(c.name("mixed"), out.shape, weighted, axis_names=names))
    return (
        compute(
            c.name("attention"),
            out.shape,
            lambda *i: (mixed[i] / total[(*i[:-1], const(0))]).cast(out.dtype),
            axis_names=names,
        ),
    )


RULES: dict[str, Rule] = {"FusedAttention": lower_fused_attention}
