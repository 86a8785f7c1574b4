"""A row of the output image is the row axis of the register tile; the input is read in place, shifted for each tap.

``acc[n, out..., no, ni] = sum over taps and ic``. The panels of a group of channels follow those of the group before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import mul
from typing import Protocol, TypeAlias

from tilewright.core.arith.expr import IntExpr, as_expr, product
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import (
    ConvShape,
    Reader,
    computed_type,
    conv_shape,
    padded_input,
    spatial_names,
    with_bias,
)
from tilewright.lowering.geometry.conv_weight import Weight, conv_weight
from tilewright.lowering.geometry.grouped_conv import Panels, group_panel_width
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import plain_cost, useful_lanes
from tilewright.machine.target import Target
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over

Times: TypeAlias = Callable[[Val, Val], Val]


class Sums(Protocol):
    """The sums of products of an input, read element by element, and a packed weight.

    ``width``: columns of a panel, if not what suits the rows; ``times``: the product of two elements.
    """

    def __call__(
        self, ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
        width: int | None = None, times: Times = mul,
    ) -> Reader: ...  # fmt: skip


_LONG_ROW = 8
"""Tiles in a row of the image from which on the rest of the row hardly counts."""

_SHORT_TILES, _SHORT_STEPS = 1.05, 1.2
"""How much longer it takes where the tiles at the ends of rows are short, and where a pixel has one tap besides."""


def pixel_panel_width(shape: ConvShape, target: Target, itemsize: int) -> int:
    """Columns of a panel where all pixels are rows of one product."""
    pixels = product((shape.batch, *shape.out_spatial))
    return group_panel_width(pixels, shape.per_group, shape.groups, target, itemsize)


def suits_pixels(shape: ConvShape, target: Target, itemsize: int) -> bool:
    """True where all pixels should be the rows of one product: 1x1 kernels of stride 1, and images whose rows are at
    most a few tiles and a rest, if all sizes are known."""
    if shape.is_pointwise:
        return True
    known = all(d.is_const for d in (shape.batch, *shape.out_spatial))
    tiles = tiles_of_row(shape, target, itemsize)
    return known and tiles is not None and tiles < _LONG_ROW and tiles % 1 != 0


def tiles_of_row(shape: ConvShape, target: Target, itemsize: int) -> float | None:
    """How many register tiles of pixels a row of the result is; None if its length is not known."""
    row = shape.out_spatial[-1].value()
    vectors = max(1, pixel_panel_width(shape, target, itemsize) // target.lanes(itemsize))
    return None if row is None else row / target.tile_rows(vectors)


def unpadded(shape: ConvShape) -> ConvShape:
    """The geometry over an input that has its border in memory, which most channels-last ones have when they are read
    (:mod:`tilewright.graph_ir.fused.place_borders`)."""
    return shape.unpadded if shape.channels_last else shape


def row_panels(
    ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
    width: int | None = None, times: Times = mul,
) -> Reader:  # fmt: skip
    """The sums over rows of the image (see :class:`Sums`)."""
    rows = shape.out_spatial[-1]
    width = width or group_panel_width(rows, shape.per_group, shape.groups, ctx.target, dtype.itemsize)
    packed = weight(width)
    panels = Panels(shape.groups, shape.depth, shape.per_group, width)
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    ic = ctx.axis(panels.depth, "ic")
    halo = ctx.attr_ints(HALO)
    before, behind = (halo[: shape.rank], halo[shape.rank :]) if halo is not None else ((0,) * shape.rank,) * 2

    def formula(*i: IntExpr) -> Reduction:
        *at, no, ni = i[1:]
        if halo is not None:  # a border, which repeats the results at the edge
            at = [
                minimum(maximum(p - b, 0), size - 1) for p, b, size in zip(at, before, shape.out_spatial, strict=True)
            ]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        x = read(i[0], panels.channel(no, ic.index), where)
        return sum_over(times(x, packed[(no, *taps, ic, ni)]), *taps, ic)

    sizes = [b + size + e for b, size, e in zip(before, shape.out_spatial, behind, strict=True)]
    full = (shape.batch, *sizes, panels.count, as_expr(width))
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["n", *spatial_names(shape.rank), "no", "ni"]))
    return lambda n, c, at: acc[(n, *(p + b for p, b in zip(at, before, strict=True)), *panels.place(c))]


def lower_by(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    """The node by ``sums`` over its input and its weight as they are."""
    shape, dtype, w = conv_shape(ctx), computed_type(ctx), ctx.input(1)
    read = padded_input(ctx, shape, dtype)
    weight = conv_weight(ctx, shape, dtype, lambda a: a, "oihw_1", lambda oc, ic, k: w[(oc, ic, *k)])
    return with_bias(ctx, shape, sums(ctx, shape, dtype, read, weight))


def longer_by_rows(facts: NodeFacts, shape: ConvShape) -> float:
    """How much longer the sums over rows of the image take, as a ratio to the best."""
    if not suits_pixels(shape, facts.target, computed_type(facts).itemsize):
        return 1.0
    return _SHORT_STEPS if shape.is_pointwise else _SHORT_TILES


def _cost(facts: NodeFacts) -> float:
    return plain_cost(facts) / useful_lanes(facts) * longer_by_rows(facts, unpadded(conv_shape(facts)))


DIRECT = Implementation("Conv", "direct", partial(lower_by, row_panels), _cost)
