"""All pixels of the batch are the rows of one product, ``acc[m, no, ni]``: tiles go on over the ends of image rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import mul

from tilewright.core.arith.expr import IntExpr, as_expr, const, product
from tilewright.core.dtypes import DType
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, computed_type, conv_shape, spatial_names
from tilewright.lowering.geometry.conv_weight import Weight
from tilewright.lowering.geometry.grouped_conv import Panels
from tilewright.lowering.geometry.packing import flatten, unflatten
from tilewright.lowering.implementations.base import Implementation, always
from tilewright.lowering.implementations.conv.cost import plain_cost, useful_lanes
from tilewright.lowering.implementations.conv.direct import (
    Sums,
    Times,
    longer_by_rows,
    lower_by,
    pixel_panel_width,
    row_panels,
    suits_pixels,
    tiles_of_row,
    unpadded,
)
from tilewright.tensor_ir.compute import Reduction, Tensor, compute, sum_over

_PLACES = 1.01
"""How much longer it takes to find the place of each pixel of a row than to go along rows of many tiles."""

_PLACE = 4
"""The steps of a sum that a pixel's place takes the time of, where rows of the image are no bad tiles themselves: from
``_FEW_TILES`` on."""

_FEW_TILES = 4


def pixel_panels(
    ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight,
    width: int | None = None, times: Times = mul,
) -> Reader:  # fmt: skip
    """The sums over all pixels; a result with a border, which no single row axis has, is computed row by row."""
    width = width or pixel_panel_width(shape, ctx.target, dtype.itemsize)
    if ctx.attr_ints(HALO) is not None:
        return row_panels(ctx, shape, dtype, read, weight, width, times)
    packed = weight(width)
    panels = Panels(shape.groups, shape.depth, shape.per_group, width)
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, spatial_names(shape.rank), strict=True)]
    ic = ctx.axis(panels.depth, "ic")
    rows = product((shape.batch, *shape.out_spatial))
    steps = [t for t, k in zip(taps, shape.kernel, strict=True) if k != 1]

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        n, *at = unflatten(m, shape.out_spatial)
        offsets = [t.index if t in steps else const(0) for t in taps]
        where = [p * s + o * d for p, s, o, d in zip(at, shape.strides, offsets, shape.dilations, strict=True)]
        x = read(n, panels.channel(no, ic.index), where)
        return sum_over(times(x, packed[(no, *offsets, ic, ni)]), *steps, ic)

    full = (rows, panels.count, as_expr(panels.width))
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
    return lambda n, c, at: acc[(flatten((n, *at), shape.out_spatial), *panels.place(c))]


def longer_by_pixels(facts: NodeFacts, shape: ConvShape) -> float:
    """How much longer the sums over all pixels take, as a ratio to the best."""
    itemsize = computed_type(facts).itemsize
    if not suits_pixels(shape, facts.target, itemsize):
        return _PLACES
    if shape.is_pointwise or (tiles_of_row(shape, facts.target, itemsize) or 0) < _FEW_TILES:
        return 1.0
    return 1.0 + _PLACE / max(1, math.prod(shape.kernel) * (shape.depth.value() or 1))


def _cost(facts: NodeFacts) -> float:
    return plain_cost(facts) / useful_lanes(facts) * longer_by_pixels(facts, unpadded(conv_shape(facts)))


def by_pixels_and_rows(
    op: str, name: str, lower: Callable[[Sums, LowerContext], tuple[Tensor, ...]], time: Callable[[NodeFacts], float],
    summed: Callable[[NodeFacts], ConvShape], applies: Callable[[NodeFacts], str | None] = always,
    spreads: bool = False,
) -> tuple[Implementation, Implementation]:  # fmt: skip
    """Two implementations of one family, ``name`` and ``name_rows``: the sums of ``lower`` over all pixels, and over
    rows of the image. ``time``: of the products; ``summed``: the convolution that is summed."""

    def one(called: str, sums: Sums, longer: Callable[[NodeFacts, ConvShape], float]) -> Implementation:
        return Implementation(
            op, called, partial(lower, sums), lambda facts: time(facts) * longer(facts, summed(facts)), applies,
            family=name, spreads=spreads,
        )  # fmt: skip

    return one(name, pixel_panels, longer_by_pixels), one(f"{name}_rows", row_panels, longer_by_rows)


IMPLICIT_GEMM = Implementation("Conv", "implicit_gemm", partial(lower_by, pixel_panels), _cost)
