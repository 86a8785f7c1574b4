"""Winograd's convolutions F(m x m, 3x3) for m from 2 to 4: fewer products, at the price of transforms and rounding.

An output tile of ``m x m`` comes from an input patch of ``(m + 2) x (m + 2)``, or ``2m + 1`` a side where the stride is
2: ``Y = A^T [(G g G^T) * (B^T d B)] A``, where the product in the middle is one matrix product over the channels for
each of the positions of the patch. Stages:
``row`` and ``V`` (``B^T d B``, a pass for each side), ``M`` (the products, over weights that are transformed and packed
at build time), ``Z`` and ``Y`` (``A^T M A``, likewise). The matrices are in :mod:`.winograd_matrices`, also those of
whole numbers, by which convolutions of bytes are exact.
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
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, Reader, conv_result, conv_shape, padded_input, with_bias
from tilewright.lowering.geometry.packing import panel_width, unflatten
from tilewright.lowering.geometry.quads import is_zero, known_zero, zero_point
from tilewright.lowering.geometry.words import PAIRS, SHORTS, Word, shifted
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.cost import best_speed, plain_cost, result_sizes
from tilewright.lowering.implementations.conv.pairs import refusal as pairs_refusal
from tilewright.lowering.implementations.conv.shorts import centred, zero_key
from tilewright.lowering.implementations.conv.shorts import refusal as shorts_refusal
from tilewright.lowering.implementations.conv.winograd_matrices import (
    WINOGRAD,
    Pass,
    WholeKernels,
    Winograd,
    estimated_error,
    rounded,
    transformed_weight,
)
from tilewright.lowering.indexing import choose
from tilewright.machine.vectors import share_of_pairs, share_of_shorts
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, op, sum_over

_FEWEST_CHANNELS = 8

_REDUCED_TILE = 2
"""The tile on bfloat16: rounding is amplified less than twice by its transforms, 10 times by those of larger ones."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What patches and weights are multiplied as.

    ``held``: an element of a patch as it is stored. ``word``: None, or how neighbouring channels are multiplied
    together, each the ``bits`` of an element. ``weight``: the transformed kernels ``[patch, patch, ic, oc]`` as
    elements. ``after``: the pass over products.
    """

    suffix: str
    held: Callable[[Val], Val]
    word: Word | None
    bits: Callable[[Val], Val]
    weight: Callable[[np.ndarray, Winograd], np.ndarray]
    after: Callable[[Winograd], Pass]

    def depth(self, channels: IntExpr) -> IntExpr:
        """Steps of a sum over ``channels``."""
        return channels if self.word is None else self.word.count(channels)

    @property
    def packed_type(self) -> DType:
        return dtypes.float32 if self.word is None else dtypes.int32

    def packed(self, w: np.ndarray, known: Winograd) -> np.ndarray:
        """The weight ``[patch, patch, steps, oc]`` of the kernels ``[oc, ic, 3, 3]``."""
        u = self.weight(w, known)
        return u if self.word is None else np.moveaxis(self.word.pack(np.moveaxis(u, 2, 0)), 0, 2)


FLOATS = Numbers("", lambda v: v, None, lambda v: v, transformed_weight, lambda known: known.after)
ROUNDED = Numbers(
    "_pairs", lambda v: op("narrow", v), PAIRS, lambda v: op("bits", v),
    lambda w, known: rounded(transformed_weight(w, known)).view(np.uint16), lambda known: known.after,
)  # fmt: skip
WHOLE = Numbers(
    "_shorts", lambda v: v.cast(dtypes.uint16), SHORTS, lambda v: v.cast(dtypes.int32),
    lambda w, known: transformed_weight(w, known, whole=True).astype(np.int16), lambda known: known.whole_after,
)  # fmt: skip

_SHORT_TRANSFORM = 2 / 3
"""The time of an element that int16 holds in one of the transforms, of that of a float32."""

_SHORT_WEIGHT = 1 / 4
"""The time of reading a weight of int16, of that of one of float32."""

_SHORTS = ("winograd2", "winograd4", "winograd2_stride2")
"""What is worth computing exactly. Between the first two lies the third in estimates, never in measurements; four
outputs a side with stride 2 are slower than two."""


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
    read: Reader, numbers: Numbers, packed: Callable[[int], Tensor],
) -> Reader:  # fmt: skip
    """``acc(n, c, (h, w))`` of the 3x3 convolution of ``read(n, c, (h, w))``, defined on all of the patches.
    ``packed(width)``: the weight in panels of so many columns."""
    known = WINOGRAD[name]
    before, after, m, size = known.before, numbers.after(known), known.tile, known.patch
    step = m * known.stride

    def row(p: IntExpr, b: IntExpr, i: IntExpr, c: IntExpr) -> Val:
        n, r, q = unflatten(p, (grid.rows, grid.columns))
        return _one_of(i, before([read(n, c, (r * step + a, q * step + b)) for a in range(size)]))

    def both(i: IntExpr, j: IntExpr, p: IntExpr, c: IntExpr) -> Val:
        return numbers.held(_one_of(j, before([rows[p, b, i, c] for b in range(size)])))

    rows = ctx.stage(compute(ctx.name("row"), (grid.count, size, size, channels), row))
    v = ctx.stage(compute(ctx.name("V"), (size, size, grid.count, channels), both))
    width = panel_width(grid.count, out_channels, ctx.target, dtypes.float32.itemsize)
    weight = packed(width)
    ic = ctx.axis(numbers.depth(channels), "ic")

    def product(i: IntExpr, j: IntExpr, p: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        u = weight[no, i, j, ic, ni]
        if numbers.word is None:
            return sum_over(v[i, j, p, ic] * u, ic)
        word = numbers.word.join(lambda c: numbers.bits(v[i, j, p, c]), ic.index, channels)
        return sum_over(numbers.word.times(word, u), ic)

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


def _sums(
    ctx: LowerContext, name: str, numbers: Numbers, image: Callable[[ConvShape], Reader],
    kernels: Callable[[np.ndarray], np.ndarray] = lambda w: w, key: str = "",
) -> Reader:  # fmt: skip
    """The convolution over tiles of the output. ``image``: the padded input of a geometry; ``kernels``: makes what is
    transformed, called ``key``, of the node's weight.

    The input is padded to whole tiles. Where its size is symbolic, which seldom is one of whole tiles, that would
    always be a copy. There the last tiles read the last row and column again instead, for results that nobody reads.
    """
    shape, known = conv_shape(ctx), WINOGRAD[name]
    grid = TileGrid.of(shape.batch, shape.out_spatial, known.tile)
    reach = [(t * known.tile - 1) * known.stride + 3 for t in (grid.rows, grid.columns)]
    sides = zip(reach, shape.pads_begin, shape.spatial, shape.pads_end, strict=True)
    missing = [r - b - s if r.is_const else e for r, b, s, e in sides]
    whole = dataclasses.replace(shape, pads_end=tuple(const(0) if (m.value() or 0) < 0 else m for m in missing))
    padded = image(whole)
    sizes = [b + s + e for b, s, e in zip(whole.pads_begin, whole.spatial, whole.pads_end, strict=True)]

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        return padded(n, c, [p if size.is_const else minimum(p, size - 1) for p, size in zip(at, sizes, strict=True)])

    def weight(width: int) -> Tensor:
        def full(oc: IntExpr, ic: IntExpr) -> tuple[IntExpr, ...]:
            return ceildiv(oc, width), as_expr(known.patch), as_expr(known.patch), numbers.depth(ic), as_expr(width)

        def pack(w: np.ndarray) -> np.ndarray:
            own = full(*map(const, w.shape[:2]))  # known where those of the input are symbolic, too
            out, w = np.zeros([int(d) for d in own], numbers.packed_type.numpy), kernels(w)
            for k, panel in enumerate(out):  # a panel at a time: all of it in float64 would be four times the weights
                some = w[k * width : (k + 1) * width]
                panel[..., : len(some)] = numbers.packed(some, known)
            return out

        hint = f"{name}{numbers.suffix}_{width}{key}"
        return ctx.packed(1, pack, full(shape.out_channels, shape.channels), hint, numbers.packed_type)

    return transformed_product(ctx, name, grid, shape.channels, shape.out_channels, read, numbers, weight)


def _lower(name: str, numbers: Numbers, ctx: LowerContext) -> tuple[Tensor, ...]:
    sums = _sums(ctx, name, numbers, lambda shape: padded_input(ctx, shape, dtypes.float32))
    return with_bias(ctx, conv_shape(ctx), sums)


def _lower_whole(name: str, ctx: LowerContext) -> tuple[Tensor, ...]:
    """The convolution of bytes, exact: zero points are taken off patches and kernels, which then are int16."""
    shape, known, x = conv_shape(ctx), WINOGRAD[name], ctx.input(0)
    zero = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), 0)

    def image(whole: ConvShape) -> Reader:
        padded = padded_input(ctx, whole, x.dtype, zero.cast(x.dtype))
        if is_zero(ctx, 2):
            return lambda n, c, at: padded(n, c, at).cast(dtypes.int16)
        return lambda n, c, at: padded(n, c, at).cast(dtypes.int16) - zero.cast(dtypes.int16)

    sums = _sums(ctx, name, WHOLE, image, centred(ctx), zero_key(ctx))
    middles = _middles(known, ctx)
    if isinstance(middles, str):
        raise ctx.unsupported(middles)
    table = ctx.table(middles, "middles") if middles.any() else None

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        total = sums(n, c, at) * known.inverse
        if table is None:
            return shifted(total, -known.places)
        return shifted(total - shifted(table[c], known.places), -known.places) + table[c]

    return conv_result(ctx, shape, result)


def _middles(known: Winograd, facts: NodeFacts) -> np.ndarray | str:
    """The middle of the sums of each output channel, or why they cannot be computed."""
    x, weight, zero = facts.input_values[0], facts.constants[1], known_zero(facts, 2, 0)
    if x is None or weight is None:
        return "the weight is not constant"
    kernels = facts.once("whole_kernels", lambda: WholeKernels.of(centred(facts)(weight.array)))
    least, most = (-128, 127) if x.dtype == dtypes.int8 else (0, 255)
    low, high = (least - most, most - least) if zero is None else (least - zero, most - zero)
    return kernels.middles(known, low, high)


def _applies(known: Winograd, facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    for what, got, expected in (
        ("kernel", shape.kernel, (3, 3)), ("groups", shape.groups, 1), ("dilations", {*shape.dilations}, {1}),
        ("strides", {*shape.strides}, {known.stride}),
    ):  # fmt: skip
        if got != expected:
            return f"{what} {_listed(got)}, expected {_listed(expected)}"
    return "the weight is not constant" if facts.constants[1] is None else None


def _applies_float(known: Winograd, facts: NodeFacts) -> str | None:
    if (dtype := facts.output().dtype) != dtypes.float32:
        return f"type {dtype}, expected float32"
    return _applies(known, facts)


def _applies_whole(known: Winograd, facts: NodeFacts) -> str | None:
    if (reason := _applies(known, facts) or shorts_refusal(facts)) is not None:
        return reason
    middles = _middles(known, facts)
    return middles if isinstance(middles, str) else None


def _listed(x: object) -> str:
    return ", ".join(map(str, x)) if isinstance(x, tuple | set) else str(x)


def _cost(known: Winograd, share: float, weight_size: float, facts: NodeFacts, transform: float = 1.0) -> float:
    """The products on patches, the weights and the transforms. A small convolution takes no less than the direct way,
    and neither does one whose channels do not lie together.

    ``share``: the time of a product, and ``transform``: of an element transformed, of that in float32; ``weight_size``:
    of the bytes of a float32.
    """
    shape, sizes, costs = conv_shape(facts), result_sizes(conv_shape(facts)), facts.target.costs
    if sizes is None:
        return math.inf
    oc, ic = (int(d) for d in facts.input_shape(1)[:2])
    batch, height, width = sizes
    tiles = batch * -(-height // known.tile) * -(-width // known.tile)
    products = ic * oc * (share * tiles + weight_size * costs.weight_load)
    transforms = transform * (costs.transformed_element // known.stride) * tiles * (ic + oc)
    time = known.patch**2 * (products + transforms)
    large = min(ic, oc) >= _FEWEST_CHANNELS and 9 * ic * oc * math.prod(sizes) >= costs.transforms
    return (time + (0.0 if large and shape.channels_last else plain_cost(facts))) / best_speed(facts)


def _error(known: Winograd, reduced: bool, facts: NodeFacts) -> float:
    weight = facts.constants[1]
    return math.inf if weight is None else estimated_error(weight.array.astype(np.float32), known, reduced)


def _of_floats(name: str, known: Winograd) -> Implementation:
    return Implementation(
        "Conv", name, partial(_lower, name, FLOATS), partial(_cost, known, 1.0, 1.0), partial(_applies_float, known),
        partial(_error, known, False), family="winograd", spreads=True,
    )  # fmt: skip


def _of_pairs(name: str, known: Winograd) -> Implementation:
    def cost(facts: NodeFacts) -> float:
        return _cost(known, share_of_pairs(facts.target), 0.5, facts)

    def applies(facts: NodeFacts) -> str | None:
        return pairs_refusal(facts) or _applies_float(known, facts)

    return Implementation(
        "Conv", f"{name}{ROUNDED.suffix}", partial(_lower, name, ROUNDED), cost, applies, partial(_error, known, True),
        family="winograd", spreads=True,
    )  # fmt: skip


def _of_bytes(name: str, known: Winograd) -> Implementation:
    def cost(facts: NodeFacts) -> float:
        return _cost(known, share_of_shorts(facts.target), _SHORT_WEIGHT, facts, _SHORT_TRANSFORM)

    return Implementation(
        "ConvInteger", f"{name}{WHOLE.suffix}", partial(_lower_whole, name), cost, partial(_applies_whole, known),
        family="winograd",
    )  # fmt: skip


IMPLEMENTATIONS = (
    *(_of_floats(name, known) for name, known in WINOGRAD.items()),
    *(_of_pairs(name, known) for name, known in WINOGRAD.items() if known.tile == _REDUCED_TILE),
)
OF_BYTES = tuple(_of_bytes(name, WINOGRAD[name]) for name in _SHORTS)
