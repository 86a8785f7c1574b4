"""The global pools, Average, Max and Lp: reductions over all spatial dimensions."""

from __future__ import annotations

from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.normalize import mean_stage
from tilewright.lowering.formulas.reduce import mapped, reduction_stage
from tilewright.lowering.geometry.windows import spatial_dims
from tilewright.tensor_ir.compute import Tensor, Val, max_over, op, sum_over


def power(v: Val, p: int) -> Val:
    """The term of ``v`` in the sum of an Lp norm."""
    if p == 2:
        return v * v
    return op("abs", v) if p == 1 else op("pow", op("abs", v), float(p))


def root(v: Val, p: int) -> Val:
    """The Lp norm from its sum."""
    if p == 2:
        return op("sqrt", v)
    return v if p == 1 else op("pow", v, 1.0 / p)


def lower_global_average_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    mean = mean_stage(c, x.shape, spatial_dims(c, x.ndim), lambda i: widen(x[tuple(i)]), "average")
    return (mean if mean.dtype == out.dtype else mapped(c, mean, "average_out", lambda v: v.cast(out.dtype)),)


def lower_global_max_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    best = reduction_stage(c, "global_max", x.shape, spatial_dims(c, x.ndim), lambda i: widen(x[tuple(i)]), max_over)
    if best.dtype == out.dtype:
        return (best,)
    return (mapped(c, c.stage(best), "global_max_out", lambda v: v.cast(out.dtype)),)


def lower_global_lp_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    p = c.attr_int("p", 2)
    total = c.stage(
        reduction_stage(c, "lp_sum", x.shape, spatial_dims(c, x.ndim), lambda i: power(widen(x[tuple(i)]), p), sum_over)
    )
    return (mapped(c, total, "global_lp", lambda v: root(v, p).cast(out.dtype)),)


LOWER: dict[str, Lower] = {
    "GlobalAveragePool": lower_global_average_pool, "GlobalMaxPool": lower_global_max_pool,
    "GlobalLpPool": lower_global_lp_pool,
}  # fmt: skip
