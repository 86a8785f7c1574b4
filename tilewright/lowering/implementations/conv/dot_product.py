"""Convolutions of bytes four channels at a time: ``acc[m, no, ni] += dot4(X4[pixel, taps, q], W4[no, taps, q, ni])``.

The input is read in fours where it lies so: unsigned, channels last, no border to add and whole fours of channels in a
group. Else a stage collects them, borders of the zero point with it. The weight is packed at build time, zero points
are taken off the sums (:mod:`tilewright.lowering.geometry.quads`).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import lower_conv_integer
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_shape, spatial_names
from tilewright.lowering.geometry.conv_weight import conv_weight
from tilewright.lowering.geometry.quads import (
    ONES,
    is_whole,
    is_zero,
    moved_a,
    moved_b,
    quad,
    quads_in,
    quads_of,
    sums_of_b,
    without_zero_points,
    zero_point,
)
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import plain_cost, useful_lanes
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, in_range, op, select, sum_over

_SHARE = 0.3
"""Of the time of multiplying one by one."""


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape = conv_shape(ctx)
    a_by, b_by = moved_a(ctx.input(0).dtype), moved_b(ctx.input(1).dtype)
    za = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), a_by)
    in_fours = dataclasses.replace(shape, channels=quads_in(shape.depth) * shape.groups)
    read = _fours(ctx, shape, in_fours, za, a_by)
    weight = conv_weight(ctx, in_fours, dtypes.int32, _weight_quads, "quads", lambda *_: constant(0, dtypes.int32))
    acc = sums(ctx, in_fours, dtypes.int32, read, weight, times=lambda x, w: op("dot4", x, w))
    of_channels = sums_of_b(ctx, (shape.out_channels,), lambda w: w.reshape(len(w), -1).sum(1, dtype=np.int32))
    of_windows = None if is_zero(ctx, 3, b_by) else _window_sums(ctx, in_fours, read)
    depth = shape.depth * math.prod(shape.kernel)

    def group_of(c: IntExpr) -> IntExpr:
        return c // shape.per_group if shape.groups > 1 else const(0)

    def result(*i: IntExpr) -> Val:
        n, at, c = (i[0], i[1:-1], i[-1]) if shape.channels_last else (i[0], i[2:], i[1])
        return without_zero_points(
            acc(n, c, at),
            za,
            zero_point(ctx.optional(3), lambda t: ctx.scalar(3) if _is_single(t) else t[c], -b_by),
            of_channels(c, za),
            None if of_windows is None else of_windows[(n, *at, group_of(c))],
            depth,
        )

    spatial = spatial_names(shape.rank)
    names = ["n", *spatial, "c"] if shape.channels_last else ["n", "c", *spatial]
    return (compute(ctx.name("conv"), ctx.output().shape, result, axis_names=names),)


def _is_single(t: Tensor) -> bool:
    return t.ndim == 0 or all(s == 1 for s in t.shape)


def _weight_quads(w: np.ndarray) -> np.ndarray:
    """``[OC, IC, taps...]`` of bytes to ``[OC, ceil(IC / 4), taps...]`` of int32."""
    fours: np.ndarray = np.moveaxis(quads_of(np.moveaxis(w, 1, 0)), 0, 1)
    return fours


def _fours(ctx: LowerContext, shape: ConvShape, in_fours: ConvShape, za: Val, a_by: int) -> Reader:
    """``read(n, c, at)`` of the four bytes ``c`` over the padded input."""
    x = ctx.input(0)

    def group_and_step(c: IntExpr) -> tuple[IntExpr, IntExpr]:
        return (c // in_fours.depth, c % in_fours.depth) if shape.groups > 1 else (const(0), c)

    def of_pixel(n: IntExpr, c: IntExpr, at: tuple[IntExpr, ...]) -> Val:
        g, step = group_and_step(c)

        def element(depth: IntExpr) -> Val:
            return x[shape.element(n, g * shape.depth + depth, at)].cast(dtypes.int32) + a_by

        return quad(element, step, shape.depth)

    if shape.channels_last and not shape.needs_padding and not a_by and is_whole(shape.depth):
        return lambda n, c, at: of_pixel(n, c, tuple(at))
    extents = [b + s + e for b, s, e in zip(shape.pads_begin, shape.spatial, shape.pads_end, strict=True)]

    def formula(*i: IntExpr) -> Val:
        at = tuple(p - b for p, b in zip(i[1:-1], shape.pads_begin, strict=True))
        value = of_pixel(i[0], i[-1], at)
        sides = zip(at, shape.spatial, shape.pads_begin, shape.pads_end, strict=True)
        tests = [in_range(p, 0, s) for p, s, b, e in sides if b != 0 or e != 0]
        for test in tests[1:]:
            tests[0] = tests[0] & test
        border = quad(lambda _: za, group_and_step(i[-1])[1], shape.depth)
        return select(tests[0], value, border) if tests else value

    full = (shape.batch, *extents, in_fours.channels)
    names = ["n", *spatial_names(shape.rank), "q"]
    fours = ctx.stage(compute(ctx.name("quads"), full, formula, axis_names=names))
    return lambda n, c, at: fours[(n, *at, c)]


def _window_sums(ctx: LowerContext, shape: ConvShape, read: Reader) -> Tensor:
    """The sum of the input over the window of each pixel, ``[n, out..., group]``."""
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    q = ctx.axis(shape.depth, "q")

    def formula(*i: IntExpr) -> Reduction:
        steps = zip(i[1:-1], shape.strides, taps, shape.dilations, strict=True)
        where = [p * s + t.index * d for p, s, t, d in steps]
        channel = i[-1] * shape.depth + q.index if shape.groups > 1 else q.index
        return sum_over(op("dot4", read(i[0], channel, where), constant(ONES, dtypes.int32)), *taps, q)

    full: tuple[IntExpr | int, ...] = (shape.batch, *shape.out_spatial, shape.groups)
    names = ["n", *spatial_names(shape.rank), "g"]
    return ctx.stage(compute(ctx.name("window_sums"), full, formula, axis_names=names))


def _applies(facts: NodeFacts) -> str | None:
    if facts.constants[1] is None:
        return "the weight is not constant"
    return "an empty weight" if any(d == 0 for d in facts.input_shape(1)) else None


def _time(facts: NodeFacts) -> float:
    shape = conv_shape(facts)
    depth = shape.depth.value() or 4
    return _SHARE * plain_cost(facts) * (-(-depth // 4) * 4 / depth) / useful_lanes(facts)


DOT_PRODUCT = by_pixels_and_rows("ConvInteger", "dot_product", _lower, _time, conv_shape, _applies)
LOOPS = Implementation("ConvInteger", "loops", lower_conv_integer, plain_cost)
