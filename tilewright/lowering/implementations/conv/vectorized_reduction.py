"""Vectors run along the input channels: for few output channels, which would leave much of a vector empty.

``acc[n, out..., oc, lane]`` over every ``lanes``-th input channel, then the sum of the lanes. The weight lies
``[oc, taps..., ic]``, so that a step reads neighbouring channels of both operands.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import computed_type, conv_shape, padded_input, spatial_names, with_bias
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import channel_vectors_refusal, plain_cost, speed_along_channels
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, dtype = conv_shape(ctx), computed_type(ctx)
    read = padded_input(ctx, shape, dtype)
    lanes, oc = ctx.target.lanes(dtype.itemsize), shape.out_channels
    parts = shape.channels // lanes

    def transform(w: np.ndarray) -> np.ndarray:
        last = np.moveaxis(w, 1, -1)
        return np.ascontiguousarray(last.reshape(*last.shape[:-1], -1, lanes), dtype.numpy)

    packed = ctx.packed(1, transform, (oc, *shape.kernel, parts, lanes), f"lanes_{lanes}", dtype)
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    part = ctx.axis(parts, "ic")

    def formula(*i: IntExpr) -> Reduction:
        at, (c, lane) = i[1:-2], i[-2:]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        return sum_over(read(i[0], part.index * lanes + lane, where) * packed[(c, *taps, part, lane)], *taps, part)

    full = (shape.batch, *shape.out_spatial, oc)
    names = ["n", *spatial_names(shape.rank), "c"]
    acc = ctx.stage(compute(ctx.name("acc"), (*full, lanes), formula, axis_names=[*names, "lane"]))
    lane = ctx.axis(const(lanes), "lane")
    sums = ctx.stage(compute(ctx.name("sums"), full, lambda *i: sum_over(acc[(*i, lane)], lane), axis_names=names))
    return with_bias(ctx, shape, lambda n, c, at: sums[(n, *at, c)])


def _cost(facts: NodeFacts) -> float:
    return plain_cost(facts) / speed_along_channels(facts)


VECTORIZED_REDUCTION = Implementation("Conv", "vectorized_reduction", _lower, _cost, channel_vectors_refusal)
