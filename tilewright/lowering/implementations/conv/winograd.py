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
from tilewright.lowering.geometry.words import PAIRS
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import best_speed, plain_cost, result_sizes
from tilewright.lowering.implementations.conv.pairs import refusal
from tilewright.lowering.implementations.conv.winograd_matrices import (
    WINOGRAD,
    Winograd,
    estimated_error,
    rounded,
    transformed_weight,
)
from tilewright.lowering.indexing import choose
from tilewright.machine.vectors import share_of_pairs
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, op, sum_over

_FEWEST_CHANNELS = 8

_REDUCED_TILE = 2
"""The tile on bfloat16: rounding is amplified less than twice by its transforms, 10 times by those of larger ones."""


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
    read: Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val], reduced: bool = False,
) -> Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]:  # fmt: skip
    """``acc(n, c, (h, w))`` of the 3x3 convolution of ``read(n, c, (h, w))``, defined on all of the patches.
    ``reduced``: what is multiplied is rounded to bfloat16."""
    known = WINOGRAD[name]
    before, after, m, size = known.before, known.after, known.tile, known.patch
    step = m * known.stride

    def row(p: IntExpr, b: IntExpr, i: IntExpr, c: IntExpr) -> Val:
        n, r, q = unflatten(p, (grid.rows, grid.columns))
        return _one_of(i, before([read(n, c, (r * step + a, q * step + b)) for a in range(size)]))

    def both(i: IntExpr, j: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        v = _one_of(j, before([rows[p, b, i, c] for b in range(size)]))
        return op("narrow", v) if reduced else v

    rows = ctx.stage(compute(ctx.name("row"), (grid.count, size, size, channels), row))
    v = ctx.stage(compute(ctx.name("V"), (size, size, grid.count, channels), both))
    width = panel_width(grid.count, out_channels, ctx.target, dtypes.float32.itemsize)
    packed = _packed(ctx, name, channels, out_channels, width, reduced)
    ic = ctx.axis(PAIRS.count(channels) if reduced else channels, "ic")

    def product(i: IntExpr, j: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        if reduced:
            pair = PAIRS.join(lambda c: op("bits", v[i, j, p, c]), ic.index, channels)
            return sum_over(PAIRS.times(pair, packed[no, i, j, ic, ni]), ic)
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


def _packed(
    ctx: LowerContext, name: str, channels: IntExpr, out_channels: IntExpr, width: int, reduced: bool
) -> Tensor:
    known = WINOGRAD[name]
    size = known.patch
    dtype = dtypes.int32 if reduced else dtypes.float32

    def pack(w: np.ndarray) -> np.ndarray:
        oc, ic = w.shape[:2]
        out = np.zeros((-(-oc // width), size, size, PAIRS.rows(ic) if reduced else ic, width), dtype.numpy)
        for k, panel in enumerate(out):  # a panel at a time: all of it in float64 would be four times the weights
            some = w[k * width : (k + 1) * width]
            u = transformed_weight(some, known)
            if reduced:
                pairs = PAIRS.pack(np.moveaxis(rounded(u).view(np.uint16), 2, 0))
                u = np.moveaxis(pairs, 0, 2)
            panel[..., : len(some)] = u
        return out

    depth = PAIRS.count(channels) if reduced else channels
    shape = (ceildiv(out_channels, width), as_expr(size), as_expr(size), depth, as_expr(width))
    return ctx.packed(1, pack, shape, f"{name}{'_pairs' if reduced else ''}_{width}", dtype)


def _lower(name: str, reduced: bool, ctx: LowerContext) -> tuple[Tensor, ...]:
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

    acc = transformed_product(ctx, name, grid, shape.channels, shape.out_channels, read, reduced)
    return with_bias(ctx, shape, acc)


def _applies(known: Winograd, reduced: bool, facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    if reduced and (reason := refusal(facts)) is not None:
        return reason
    for what, got, expected in (
        ("kernel", shape.kernel, (3, 3)), ("groups", shape.groups, 1), ("dilations", {*shape.dilations}, {1}),
        ("strides", {*shape.strides}, {known.stride}), ("type", facts.output().dtype, dtypes.float32),
    ):  # fmt: skip
        if got != expected:
            return f"{what} {_numbers(got)}, expected {_numbers(expected)}"
    return "the weight is not constant" if facts.constants[1] is None else None


def _numbers(x: object) -> str:
    return ", ".join(map(str, x)) if isinstance(x, tuple | set) else str(x)


def _cost(known: Winograd, reduced: bool, facts: NodeFacts) -> float:
    """The products on patches, the weights and the transforms. A small convolution takes no less than the direct way,
    and neither does one whose channels do not lie together."""
    shape, sizes, costs = conv_shape(facts), result_sizes(conv_shape(facts)), facts.target.costs
    if sizes is None:
        return math.inf
    oc, ic = (int(d) for d in facts.input_shape(1)[:2])
    batch, height, width = sizes
    tiles = batch * -(-height // known.tile) * -(-width // known.tile)
    share = share_of_pairs(facts.target) if reduced else 1.0
    products = ic * oc * (share * tiles + (0.5 if reduced else 1.0) * costs.weight_load)
    time = known.patch**2 * (products + costs.transformed_element // known.stride * tiles * (ic + oc))
    large = min(ic, oc) >= _FEWEST_CHANNELS and 9 * ic * oc * math.prod(sizes) >= costs.transforms
    return (time + (0.0 if large and shape.channels_last else plain_cost(facts))) / best_speed(facts)


def _error(known: Winograd, reduced: bool, facts: NodeFacts) -> float:
    weight = facts.constants[1]
    return math.inf if weight is None else estimated_error(weight.array.astype(np.float32), known, reduced)


def _implementation(name: str, known: Winograd, reduced: bool) -> Implementation:
    return Implementation(
        "Conv", f"{name}_pairs" if reduced else name, partial(_lower, name, reduced), partial(_cost, known, reduced),
        partial(_applies, known, reduced), partial(_error, known, reduced), family="winograd", spreads=True,
    )  # fmt: skip


IMPLEMENTATIONS = (
    *(_implementation(name, known, False) for name, known in WINOGRAD.items()),
    *(_implementation(name, known, True) for name, known in WINOGRAD.items() if known.tile == _REDUCED_TILE),
)
