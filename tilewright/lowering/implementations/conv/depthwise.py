"""One filter a channel (or a few): the channel is the vector axis, the weight lies ``[taps..., channel]``.

With several filters a channel, an element of the input is read for as many lanes. A vector that begins or ends between
filters of one channel, or holds those of more than two channels, is filled lane by lane.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import computed_type, conv_shape, padded_input, spatial_names, with_bias
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import lanes_of, plain_cost
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over


def _lower(ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, dtype = conv_shape(ctx), computed_type(ctx)
    read = padded_input(ctx, shape, dtype)
    w = ctx.input(1)
    multiplier = shape.per_group
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    packed: Tensor | None = None
    if ctx.constants[1] is not None:
        packed = ctx.packed(1, _channels_last_taps, (*shape.kernel, shape.out_channels), "taps_channel", dtype)

    def formula(*i: IntExpr) -> Reduction:
        n, at, c = i[0], i[1:-1], i[-1]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        weight = w[(c, const(0), *taps)].cast(dtype) if packed is None else packed[(*taps, c)]
        return sum_over(read(n, c // multiplier, where) * weight, *taps)

    full = (shape.batch, *shape.out_spatial, shape.out_channels)
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["n", *spatial_names(shape.rank), "c"]))
    return with_bias(ctx, shape, lambda n, c, at: acc[(n, *at, c)])


def _channels_last_taps(w: np.ndarray) -> np.ndarray:
    """``[C, 1, taps...] -> [taps..., C]``."""
    return np.moveaxis(w[:, 0], 0, -1)


def _applies(facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    return None if shape.groups > 1 and shape.depth == 1 else f"groups of {shape.depth} input channels, expected one"


def _cost(facts: NodeFacts) -> float:
    multiplier, lanes = conv_shape(facts).per_group.value(), lanes_of(facts)
    whole = multiplier is not None and (multiplier == 1 or 2 * multiplier == lanes or multiplier % lanes == 0)
    return plain_cost(facts) * (1 if whole else lanes)


DEPTHWISE = Implementation("Conv", "depthwise", _lower, _cost, _applies)
