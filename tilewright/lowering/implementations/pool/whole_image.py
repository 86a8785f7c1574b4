"""The global pools, Average, Max and Lp: reductions over all spatial dimensions, in one sweep or in parts.

``one_sweep`` reduces the image at once. ``in_parts`` reduces all dimensions but the first, and then the first: where
the channels lie together, its parts are independent of each other, and each is made in one sweep over memory.
"""

from __future__ import annotations

from functools import partial

from tilewright.lowering.context import LowerContext, widen
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.normalize import mean_stage
from tilewright.lowering.formulas.reduce import mapped, pays_in_parts, reduction_stage
from tilewright.lowering.geometry.windows import spatial_dims
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.pool.cost import cost_of_sweep
from tilewright.lowering.implementations.pool.norm import power, root
from tilewright.tensor_ir.compute import Tensor, max_over, sum_over

_OTHER = 1.05
"""How much longer it takes the way that does not suit the sizes: a tuner may find it faster."""


def _global_average_pool(in_parts: bool, c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    mean = mean_stage(c, x.shape, spatial_dims(c, x.ndim), lambda i: widen(x[tuple(i)]), "average", in_parts)
    return (mean if mean.dtype == out.dtype else mapped(c, mean, "average_out", lambda v: v.cast(out.dtype)),)


def _global_max_pool(in_parts: bool, c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    best = reduction_stage(
        c, "global_max", x.shape, spatial_dims(c, x.ndim), lambda i: widen(x[tuple(i)]), max_over, in_parts=in_parts
    )
    if best.dtype == out.dtype:
        return (best,)
    return (mapped(c, c.stage(best), "global_max_out", lambda v: v.cast(out.dtype)),)


def _global_lp_pool(in_parts: bool, c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    p = c.attr_int("p", 2)
    total = c.stage(
        reduction_stage(
            c,
            "lp_sum",
            x.shape,
            spatial_dims(c, x.ndim),
            lambda i: power(widen(x[tuple(i)]), p),
            sum_over,
            in_parts=in_parts,
        )
    )
    return (mapped(c, total, "global_lp", lambda v: root(v, p).cast(out.dtype)),)


def _applies_in_parts(facts: NodeFacts) -> str | None:
    shape = facts.input_shape(0)
    axes = spatial_dims(facts, len(shape))
    if len(axes) < 2:
        return f"{len(axes)} spatial dimensions, expected two or more"
    return "the innermost dimension is reduced, too" if len(shape) - 1 in axes else None


def _cost(in_parts: bool, facts: NodeFacts) -> float:
    shape = facts.input_shape(0)
    suits = pays_in_parts(shape, spatial_dims(facts, len(shape))) == in_parts
    return cost_of_sweep(facts) * (1.0 if suits else _OTHER)


_POOLS = {
    "GlobalAveragePool": _global_average_pool, "GlobalMaxPool": _global_max_pool, "GlobalLpPool": _global_lp_pool,
}  # fmt: skip

WHOLE_IMAGE = {
    op: (
        Implementation(op, "one_sweep", partial(lower, False), partial(_cost, False)),
        Implementation(op, "in_parts", partial(lower, True), partial(_cost, True), _applies_in_parts),
    )
    for op, lower in _POOLS.items()
}
"""The implementations by operator."""
