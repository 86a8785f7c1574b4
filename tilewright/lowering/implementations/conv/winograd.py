"""Winograd's convolutions F(m x m, 3x3) for m from 2 to 4: fewer products, at the price of transforms and of rounding.

An output tile of ``m x m`` comes from an input patch of ``(m + 2) x (m + 2)``, or ``2m + 1`` a side where the stride is
2: ``Y = A^T [(G g G^T) * (B^T d B)] A``, where the product in the middle is one matrix product over the channels for
each of the positions of the patch. Stages:
``row`` and ``V`` (``B^T d B``, a pass for each side), ``M`` (the products, over weights that are transformed and packed
at build time), ``Z`` and ``Y`` (``A^T M A``, likewise). The matrices are in :mod:`.winograd_matrices`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import conv_shape, padded_input, with_bias
from tilewright.lowering.geometry.packing import clamped, panel_width, unflatten
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import best_speed, plain_cost, result_sizes
from tilewright.lowering.implementations.conv.winograd_matrices import (
    WINOGRAD,
    Winograd,
    estimated_error,
    transformed_weight,
)
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over

_FEWEST_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class TileGrid:
    """The output cut into tiles: rows and columns of tiles, and all tiles of the batch in a row."""

    rows: IntExpr
    columns: IntExpr
    count: IntExpr

    @staticmethod
    def of(batch: IntExpr, size: Sequence[IntExpr], tile: int) -> TileGrid:
        """The grid over ``batch`` results of ``size``, rows and columns."""
        rows, columns = (ceildiv(d, tile) for d in size)
        return TileGrid(rows, columns, batch * rows * columns)


def transformed_product(
    ctx: LowerContext, name: str, grid: TileGrid, channels: IntExpr, out_channels: IntExpr,
    read: Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val],
) -> Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]:  # fmt: skip
    """``acc(n, c, (h, w))`` of the 3x3 convolution of ``read(n, c, (h, w))``, defined on all of the patches."""
    known = WINOGRAD[name]
    before, after, m, size = known.before, known.after, known.tile, known.patch
    step = m * known.stride

    def row(p: IntExpr, b: IntExpr, i: IntExpr, c: IntExpr) -> Val:
        n, r, q = unflatten(p, (grid.rows, grid.columns))
        return _one_of(i, before([read(n, c, (r * step + a, q * step + b)) for a in range(size)]))

    def both(i: IntExpr, j: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        return _one_of(j, before([rows[p, b, i, c] for b in range(size)]))

    rows = ctx.stage(compute(ctx.name("row"), (grid.count, size, size, channels), row))
    v = ctx.stage(compute(ctx.name("V"), (size, size, grid.count, channels), both))
    width = panel_width(grid.count, out_channels, ctx.target, v.dtype.itemsize)
    packed = _packed(ctx, name, channels, out_channels, width)
    ic = ctx.axis(channels, "ic")

    def product(i: IntExpr, j: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(v[i, j, p, ic] * packed[no, i, j, ic, ni], ic)

    full = (size, size, grid.count, ceildiv(out_channels, width), width)
    products = ctx.stage(compute(ctx.name("M"), full, product))

    def column(p: IntExpr, j: IntExpr, a: IntExpr, c: IntExpr) -> Val:
        return _one_of(a, after([products[i, j, p, c // width, c % width] for i in range(size)]))

    z = ctx.stage(compute(ctx.name("Z"), (grid.count, size, m, out_channels), column))

    def tile(p: IntExpr, a: IntExpr, b: IntExpr, c: IntExpr) -> Val:
        return _one_of(b, after([z[p, j, a, c] for j in range(size)]))

    y = ctx.stage(compute(ctx.name("Y"), (grid.count, m, m, out_channels), tile))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        h, w = at
        return y[(n * grid.rows + h // m) * grid.columns + w // m, h % m, w % m, c]

    return result


def _one_of(i: IntExpr, values: Sequence[Val]) -> Val:
    """``values[i]``."""
    return choose(i, [const(k + 1) for k in range(len(values))], lambda k: values[k])


def _packed(ctx: LowerContext, name: str, channels: IntExpr, out_channels: IntExpr, width: int) -> Tensor:
    known = WINOGRAD[name]
    size = known.patch

    def pack(w: np.ndarray) -> np.ndarray:
        oc, ic = w.shape[:2]
        out = np.zeros((-(-oc // width), size, size, ic, width), np.float32)
        for k, panel in enumerate(out):  # a panel at a time: all of it in float64 would be four times the weights
            some = w[k * width : (k + 1) * width]
            panel[..., : len(some)] = transformed_weight(some, known)
        return out

    shape = (ceildiv(out_channels, width), as_expr(size), as_expr(size), channels, as_expr(width))
    return ctx.packed(1, pack, shape, f"{name}_{width}")


def _lower(name: str, ctx: LowerContext) -> tuple[Tensor, ...]:
    """The convolution over tiles of the output; the input is padded to whole tiles.

    Where its size is symbolic, which seldom is one of whole tiles, that would always be a copy. There the last tiles
    read the last row and column again instead, for results that nobody reads.
    """
    shape, known = conv_shape(ctx), WINOGRAD[name]
    grid = TileGrid.of(shape.batch, shape.out_spatial, known.tile)
    reach = [(t * known.tile - 1) * known.stride + 3 for t in (grid.rows, grid.columns)]
    sides = zip(reach, shape.pads_begin, shape.spatial, shape.pads_end, strict=True)
    missing = [r - b - s if r.is_const else e for r, b, s, e in sides]
    whole = dataclasses.replace(shape, pads_end=tuple(const(0) if (m.value() or 0) < 0 else m for m in missing))
    padded = padded_input(ctx, whole, dtypes.float32)
    sizes = [b + s + e for b, s, e in zip(whole.pads_begin, whole.spatial, whole.pads_end, strict=True)]

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        return padded(n, c, [clamped(p, size) for p, size in zip(at, sizes, strict=True)])

    return with_bias(ctx, shape, transformed_product(ctx, name, grid, shape.channels, shape.out_channels, read))


def _applies(known: Winograd, facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    for what, got, expected in (
        ("kernel", shape.kernel, (3, 3)), ("groups", shape.groups, 1), ("dilations", {*shape.dilations}, {1}),
        ("strides", {*shape.strides}, {known.stride}), ("type", facts.output().dtype, dtypes.float32),
    ):  # fmt: skip
        if got != expected:
            return f"{what} {_numbers(got)}, expected {_numbers(expected)}"
    return "the weight is not constant" if facts.constants[1] is None else None


def _numbers(x: object) -> str:
    return ", ".join(map(str, x)) if isinstance(x, tuple | set) else str(x)


def _cost(known: Winograd, facts: NodeFacts) -> float:
    """The products on patches, the weights and the transforms. A small convolution takes no less than the direct way,
    and neither does one whose channels do not lie together."""
    shape, sizes, costs = conv_shape(facts), result_sizes(conv_shape(facts)), facts.target.costs
    if sizes is None:
        return math.inf
    oc, ic = (int(d) for d in facts.input_shape(1)[:2])
    batch, height, width = sizes
    tiles = batch * -(-height // known.tile) * -(-width // known.tile)
    products = ic * oc * (tiles + costs.weight_load)
    time = known.patch**2 * (products + costs.transformed_element // known.stride * tiles * (ic + oc))
    large = min(ic, oc) >= _FEWEST_CHANNELS and 9 * ic * oc * math.prod(sizes) >= costs.transforms
    return (time + (0.0 if large and shape.channels_last else plain_cost(facts))) / best_speed(facts)


def _error(known: Winograd, facts: NodeFacts) -> float:
    weight = facts.constants[1]
    return math.inf if weight is None else estimated_error(weight.array, known)


IMPLEMENTATIONS = tuple(
    Implementation(
        "Conv", name, partial(_lower, name), partial(_cost, known), partial(_applies, known), partial(_error, known),
        family="winograd", spreads=True,
    )
    for name, known in WINOGRAD.items()
)  # fmt: skip
