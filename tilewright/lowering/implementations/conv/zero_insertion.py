"""A transposed convolution as one of stride 1 over the input with zeros between its elements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, computed_type, spatial_names, transposed_shape, with_bias
from tilewright.lowering.geometry.conv_weight import conv_weight
from tilewright.lowering.implementations.conv.cost import input_products
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, index_value, select

_MOST_PHASES = 64
"""Taps of all phases of a transposed kernel, zeros included, for each of its own, that cost what it does to compute
with the zeros of the input instead."""


def _unit(shape: ConvShape) -> ConvShape:
    """The convolution of stride 1. A stage stands in front: never the pointwise form."""
    return dataclasses.replace(shape, strides=(1,) * shape.rank, pads_begin=(const(1),) * shape.rank)


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, dtype = transposed_shape(ctx), computed_type(ctx)
    x, w = ctx.input(0), ctx.input(1)
    per_group, in_group = shape.per_group, shape.depth
    reach = [(k - 1) * d for k, d in zip(shape.kernel, shape.dilations, strict=True)]
    extents = [o + r for o, r in zip(shape.out_spatial, reach, strict=True)]

    def stuffed(*i: IntExpr) -> Val:
        inside: Val | None = None
        at = []
        for p, r, b, s, size in zip(i[1:-1], reach, shape.pads_begin, shape.strides, shape.spatial, strict=True):
            q = p - r + b
            at.append(q // s)
            test = in_range(q, 0, size * s - s + 1)
            if s > 1:
                test = test & index_value(q % s).equal(0)
            inside = test if inside is None else inside & test
        value = x[shape.element(i[0], i[-1], at)].cast(dtype)
        return value if inside is None else select(inside, value, constant(0, dtype))

    full = (shape.batch, *extents, shape.channels)
    source = ctx.stage(compute(ctx.name("stuffed"), full, stuffed, axis_names=["n", *spatial_names(shape.rank), "c"]))
    unit = _unit(shape)

    def to_oihw(a: np.ndarray) -> np.ndarray:
        g = a.reshape(shape.groups, a.shape[0] // shape.groups, *a.shape[1:])
        flipped = np.flip(np.swapaxes(g, 1, 2), axis=tuple(range(3, g.ndim)))
        return flipped.reshape(-1, *flipped.shape[2:])

    def read_weight(oc: IntExpr, ic: IntExpr, k: Sequence[IntExpr]) -> Val:
        flipped = [size - 1 - t for size, t in zip(shape.kernel, k, strict=True)]
        return w[((oc // per_group) * in_group + ic, oc % per_group, *flipped)]

    weight = conv_weight(ctx, unit, dtype, to_oihw, "iohw_flipped", read_weight)
    acc = sums(ctx, unit, dtype, lambda n, c, at: source[(n, *at, c)], weight)
    return with_bias(ctx, shape, acc)


def _time(facts: NodeFacts) -> float:
    shape = transposed_shape(facts)
    return float(_MOST_PHASES * math.prod(shape.kernel) * input_products(shape))


ZERO_INSERTION = by_pixels_and_rows(
    "ConvTranspose", "zero_insertion", _lower, _time, lambda facts: _unit(transposed_shape(facts))
)
