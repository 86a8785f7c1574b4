"""Softmax, LogSoftmax and Hardmax along one axis, in the stages max, exp, sum, result."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.formulas.reduce import at_reduced, place_if, reduction_stage
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import (
    Tensor,
    Val,
    compute,
    constant,
    highest,
    index_value,
    max_over,
    min_over,
    op,
    select,
    sum_over,
)


def softmax_stages(c: LowerContext, x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """The recorded stages (max, exp(x - max), sum of exps), the outer two with extent 1 on ``axis``."""
    top = c.stage(reduction_stage(c, "softmax_max", x.shape, (axis,), lambda i: widen(x[tuple(i)]), max_over))
    exps = c.stage(
        compute(
            c.name("softmax_exp"),
            x.shape,
            lambda *i: op("exp", widen(x[i]) - top[at_reduced(i, (axis,))]),
            axis_names=axis_names(x.ndim),
        )
    )
    total = c.stage(reduction_stage(c, "softmax_sum", x.shape, (axis,), lambda i: exps[tuple(i)], sum_over))
    return top, exps, total


def lower_softmax(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axis = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    _, exps, total = softmax_stages(c, x, axis)
    one = constant(1.0, total.dtype)
    names = axis_names(x.ndim)
    share = c.stage(compute(c.name("softmax_share"), total.shape, lambda *i: one / total[i], axis_names=names))

    def body(*i: IntExpr) -> Val:
        return (exps[i] * share[at_reduced(i, (axis,))]).cast(out.dtype)

    return (compute(c.name("softmax"), x.shape, body, axis_names=names),)


def lower_log_softmax(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axis = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    top, _, total = softmax_stages(c, x, axis)
    logs = c.stage(
        compute(c.name("softmax_log"), total.shape, lambda *i: op("log", total[i]), axis_names=axis_names(x.ndim))
    )

    def body(*i: IntExpr) -> Val:
        r = at_reduced(i, (axis,))
        return (widen(x[i]) - top[r] - logs[r]).cast(out.dtype)

    return (compute(c.name("log_softmax"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_hardmax(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axis = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    top = c.stage(reduction_stage(c, "hardmax_max", x.shape, (axis,), lambda i: widen(x[tuple(i)]), max_over))

    def position(i: Sequence[IntExpr]) -> Val:
        v = widen(x[tuple(i)])
        return place_if(v >= top[at_reduced(i, (axis,))], v, i[axis], highest(dtypes.int64))

    first = c.stage(reduction_stage(c, "hardmax_first", x.shape, (axis,), position, min_over))

    def body(*i: IntExpr) -> Val:
        hit = first[at_reduced(i, (axis,))].equal(index_value(i[axis]))
        return select(hit, constant(1.0, dtypes.float32), constant(0.0, dtypes.float32)).cast(out.dtype)

    return (compute(c.name("hardmax"), x.shape, body, axis_names=axis_names(x.ndim)),)


LOWER: dict[str, Lower] = {"Softmax": lower_softmax, "LogSoftmax": lower_log_softmax, "Hardmax": lower_hardmax}
