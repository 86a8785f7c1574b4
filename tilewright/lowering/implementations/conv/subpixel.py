"""Outputs whose place has the same remainder by the strides are a convolution of the input with some of the taps.

Output ``o`` of a dimension with stride ``s`` and padding ``b`` is ``sum over t of x[q - t] * w[r + s*t]`` with
``q, r = (o + b) // s, (o + b) % s``. All phases ``r`` together are one convolution with ``s`` times the output
channels, its taps turned around and padded with zeros to ``ceil(k / s)`` in every phase; a shuffle puts them in
their places.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import (
    ConvShape,
    Reader,
    computed_type,
    padded_input,
    spatial_names,
    transposed_shape,
    with_bias,
)
from tilewright.lowering.geometry.conv_weight import conv_weight
from tilewright.lowering.geometry.packing import flatten, unflatten
from tilewright.lowering.geometry.words import PAIRS
from tilewright.lowering.implementations.conv.cost import input_products
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.lowering.implementations.conv.pairs import ROUNDED, Operands, pair_sums, refusal
from tilewright.lowering.implementations.conv.tiles import Count, Fold, in_tiles
from tilewright.machine.vectors import share_of_pairs
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, select


def _first(shape: ConvShape) -> list[int]:
    """The first ``q`` of each dimension."""
    return [int(b) // s for b, s in zip(shape.pads_begin, shape.strides, strict=True)]


def phase_shape(shape: ConvShape) -> ConvShape:
    """The convolution of all phases."""
    first = _first(shape)
    taps = tuple(-(-k // s) for k, s in zip(shape.kernel, shape.strides, strict=True))
    reach = [o + b for o, b in zip(shape.out_spatial, shape.pads_begin, strict=True)]
    sizes = [ceildiv(r, s) - f for r, s, f in zip(reach, shape.strides, first, strict=True)]
    lead = [t - 1 - f for t, f in zip(taps, first, strict=True)]
    tail = [q + t - 1 - p - i for q, t, p, i in zip(sizes, taps, lead, shape.spatial, strict=True)]
    return dataclasses.replace(
        shape, out_channels=shape.out_channels * math.prod(shape.strides), out_spatial=tuple(sizes), kernel=taps,
        strides=(1,) * shape.rank, pads_begin=tuple(map(const, lead)), pads_end=tuple(tail),
    )  # fmt: skip


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, dtype = transposed_shape(ctx), computed_type(ctx)
    w = ctx.input(1)
    inner = phase_shape(shape)
    taps, per_group, in_group, phases = inner.kernel, shape.per_group, shape.depth, math.prod(shape.strides)

    def read_weight(oc: IntExpr, ic: IntExpr, k: Sequence[IntExpr]) -> Val:
        group, column = oc // (phases * per_group), oc % (phases * per_group)
        phase = unflatten(column // per_group, tuple(map(const, shape.strides[1:])))
        place = [(t - 1 - i) * s + r for t, i, s, r in zip(taps, k, shape.strides, phase, strict=True)]
        value = w[(group * in_group + ic, column % per_group, *place)]
        for p, n, t, s in zip(place, shape.kernel, taps, shape.strides, strict=True):
            if t * s != n:
                value = select(in_range(p, 0, n), value, constant(0, value.dtype))
        return value

    weight = conv_weight(ctx, inner, dtype, partial(_weight_of_phases, shape), "iohw_phases", read_weight)
    return _shuffled(ctx, shape, sums(ctx, inner, dtype, padded_input(ctx, inner, dtype), weight))


def lower_pairs(
    operands: Operands, key: str, sums: Sums, ctx: LowerContext, count: Count = PAIRS.count,
    fold: Fold | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The same of words, as :mod:`.pairs`; ``key`` names the weight in words."""
    shape = transposed_shape(ctx)
    oihw = partial(_weight_of_phases, shape)
    return _shuffled(
        ctx, shape, pair_sums(ctx, sums, phase_shape(shape), fold, count, oihw, f"{key}_of_phases", operands)
    )


def _weight_of_phases(shape: ConvShape, a: np.ndarray) -> np.ndarray:
    """The weight as that of the convolution of all phases, ``[OC, IC / g, taps...]``."""
    taps = phase_shape(shape).kernel
    grouped = a.reshape(shape.groups, a.shape[0] // shape.groups, *a.shape[1:])
    room = [(0, t * s - k) for t, s, k in zip(taps, shape.strides, shape.kernel, strict=True)]
    full = np.pad(grouped, [(0, 0), (0, 0), (0, 0), *room])
    split = full.reshape(*full.shape[:3], *(n for t, s in zip(taps, shape.strides, strict=True) for n in (t, s)))
    at = range(3, 3 + 2 * shape.rank, 2)  # g, ic, oc, then (tap, phase) a dimension
    order = np.flip(split, axis=tuple(at)).transpose(0, *(d + 1 for d in at), 2, 1, *at)
    return order.reshape(-1, order.shape[shape.rank + 2], *taps)


def _shuffled(ctx: LowerContext, shape: ConvShape, acc: Reader) -> tuple[Tensor, ...]:
    """The result from the sums of all phases."""
    begin, first, phases = [int(b) for b in shape.pads_begin], _first(shape), math.prod(shape.strides)
    sizes, per_group = phase_shape(shape).out_spatial, shape.per_group
    names = ["n", *spatial_names(shape.rank), "c"]
    columns = shape.out_channels * phases
    full = (shape.batch, *sizes, columns)
    whole = ctx.stage(compute(ctx.name("phases"), full, lambda *i: acc(i[0], i[-1], i[1:-1]), axis_names=names))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        moved = [p + b for p, b in zip(at, begin, strict=True)]
        remainders = [p % s for p, s in zip(moved, shape.strides, strict=True)]
        phase = flatten(remainders, tuple(map(const, shape.strides[1:])))
        source = [p // s - f for p, s, f in zip(moved, shape.strides, first, strict=True)]
        return whole[(n, *source, (c // per_group * phases + phase) * per_group + c % per_group)]

    return with_bias(ctx, shape, result)


def phases_refusal(facts: NodeFacts) -> str | None:
    shape = transposed_shape(facts)
    if any(d != 1 for d in shape.dilations):
        return f"dilations {', '.join(map(str, shape.dilations))}, expected 1"
    return None if all(b.is_const for b in shape.pads_begin) else "the first phase depends on a symbolic size"


def _time(facts: NodeFacts) -> float:
    """Taps of all phases, zeros included."""
    shape = transposed_shape(facts)
    taps = math.prod(-(-k // s) * s for k, s in zip(shape.kernel, shape.strides, strict=True))
    return float(taps * input_products(shape))


def _pairs_refusal(facts: NodeFacts) -> str | None:
    return refusal(facts) or phases_refusal(facts)


_LOWER_PAIRS = partial(lower_pairs, ROUNDED, "pairs")


SUBPIXEL = by_pixels_and_rows(
    "ConvTranspose",
    "subpixel",
    _lower,
    _time,
    lambda facts: phase_shape(transposed_shape(facts)),
    phases_refusal,
    spreads=True,
)
DOT_PRODUCT = (
    *by_pixels_and_rows(
        "ConvTranspose", "dot_product", _LOWER_PAIRS, lambda facts: share_of_pairs(facts.target) * _time(facts),
        lambda facts: phase_shape(transposed_shape(facts)), _pairs_refusal, spreads=True,
    ),
    *in_tiles(
        "ConvTranspose", PAIRS, _LOWER_PAIRS, _pairs_refusal, lambda facts: phase_shape(transposed_shape(facts)),
        spreads=True,
    ),
)  # fmt: skip
