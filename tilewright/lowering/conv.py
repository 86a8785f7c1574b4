"""Convolutions of any rank, grouped, dilated, strided: ``Conv`` and ``ConvTranspose``.

The input is read channels-last (through a padding stage where it needs padding or lies channels-first), the weight is
packed in panels of output channels, and the output row is the row axis of the register tile. A 1x1 convolution of
stride 1 is a matrix product over all pixels, and so is one whose output rows are short. Depthwise convolutions keep the
channel as the vector axis. Where output channels would leave much of a vector empty, the vectors run along the input
channels and are added up at the end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, ceildiv, const, product
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.core.winograd import WINOGRAD
from tilewright.graph_ir.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext, Rule, wide
from tilewright.lowering.geometry.grouped_conv import Panels, group_panel_width, groups_in_a_vector, side_by_side
from tilewright.lowering.geometry.packing import clamped, flatten, pack_columns, unflatten, whole_tiles
from tilewright.lowering.geometry.padding import halves
from tilewright.lowering.winograd import TileGrid, transformed_product
from tilewright.tensor_ir.compute import (
    ReduceAxis,
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    in_range,
    index_value,
    select,
    sum_over,
)

_FULL_ENOUGH = 0.6
"""The share of useful lanes above which vectors along the output channels are the better ones."""

_LONG_ROW = 8
"""Tiles in a row of the image from which on the rest of the row hardly counts."""

_MOST_PHASES = 64
"""Taps of all phases of a transposed kernel, zeros included, for each of its own."""


@dataclass(frozen=True)
class ConvShape:
    """The geometry of one convolution. Spatial tuples have one entry a spatial dimension."""

    batch: IntExpr
    channels: IntExpr
    out_channels: IntExpr
    spatial: tuple[IntExpr, ...]
    out_spatial: tuple[IntExpr, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[IntExpr, ...]
    pads_end: tuple[IntExpr, ...]
    groups: int
    channels_last: bool

    @cached_property
    def rank(self) -> int:
        return len(self.spatial)

    @cached_property
    def needs_padding(self) -> bool:
        return any(p != 0 for p in (*self.pads_begin, *self.pads_end))

    def element(self, n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        """The index of an element of the input or output in its own layout."""
        return (n, *at, c) if self.channels_last else (n, c, *at)


def conv_shape(ctx: LowerContext) -> ConvShape:
    """Geometry of a ``Conv`` node, ``auto_pad`` resolved."""
    w = ctx.input(1)
    shape = _unpadded(ctx, w.shape[0])
    if any(not d.is_const for d in w.shape):
        raise ctx.unsupported("a weight of symbolic size")
    begin, end = _pads(ctx, shape)
    return dataclasses.replace(shape, pads_begin=begin, pads_end=end)


def _unpadded(ctx: LowerContext, out_channels: IntExpr) -> ConvShape:
    """What ``Conv`` and ``ConvTranspose`` have in common: the geometry of the node as if it had no padding."""
    x, y = ctx.input(0), ctx.output()
    rank = x.ndim - 2
    last = ctx.attr_str("data_layout", "NCHW") == "NHWC"
    return ConvShape(
        batch=x.shape[0],
        channels=x.shape[-1 if last else 1],
        out_channels=out_channels,
        spatial=x.shape[1:-1] if last else x.shape[2:],
        out_spatial=y.shape[1:-1] if last else y.shape[2:],
        kernel=_static_taps(ctx),
        strides=ctx.attr_ints("strides") or (1,) * rank,
        dilations=ctx.attr_ints("dilations") or (1,) * rank,
        pads_begin=(const(0),) * rank,
        pads_end=(const(0),) * rank,
        groups=ctx.attr_int("group", 1),
        channels_last=last,
    )


def _static_taps(ctx: LowerContext) -> tuple[int, ...]:
    taps = ctx.input(1).shape[2:]
    if any(not d.is_const for d in taps):
        raise ctx.unsupported(f"a kernel of symbolic size {', '.join(map(str, taps))}")
    return tuple(int(d) for d in taps)


def _pads(ctx: LowerContext, shape: ConvShape) -> tuple[tuple[IntExpr, ...], tuple[IntExpr, ...]]:
    rank, auto = shape.rank, ctx.attr_str("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        sizes = zip(shape.spatial, shape.out_spatial, shape.kernel, shape.strides, shape.dilations, strict=True)
        for i, o, k, s, d in sizes:
            before, behind = halves((o - 1) * s + (k - 1) * d + 1 - i, auto == "SAME_UPPER")
            begin.append(before)
            end.append(behind)
        return tuple(begin), tuple(end)
    pads = (ctx.attr_ints("pads") or (0,) * 2 * rank) if auto != "VALID" else (0,) * 2 * rank
    return tuple(const(p) for p in pads[:rank]), tuple(const(p) for p in pads[rank:])


def _with_bias(
    ctx: LowerContext, shape: ConvShape, dtype: DType, acc: Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]
) -> Tensor:
    out = ctx.output()
    bias = ctx.inputs[2] if ctx.has_input(2) else None

    def result(*i: IntExpr) -> Val:
        n, at, c = (i[0], i[1:-1], i[-1]) if shape.channels_last else (i[0], i[2:], i[1])
        value = acc(n, c, at)
        if bias is not None:
            value = value + bias[c].cast(dtype)
        return value.cast(out.dtype)

    spatial = _names(shape.rank)
    names = ["n", *spatial, "c"] if shape.channels_last else ["n", "c", *spatial]
    return compute(ctx.name("conv"), out.shape, result, axis_names=names)


def _names(rank: int) -> list[str]:
    return ["d", "h", "w"][-rank:] if rank <= 3 else [f"s{i}" for i in range(rank)]


Reader = Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]


def padded_input(ctx: LowerContext, shape: ConvShape, dtype: DType) -> Reader:
    """``read(n, c, at)`` over the padded input; a channels-last stage if padding or another layout asks for a copy."""
    x = ctx.input(0)
    if not shape.needs_padding and (shape.channels_last or all(k == 1 for k in shape.kernel)):
        return lambda n, c, at: x[shape.element(n, c, at)].cast(dtype)
    extents = [
        b + s + e for b, s, e in zip(shape.pads_begin, shape.spatial, shape.pads_end, strict=True)
    ]

    def formula(*i: IntExpr) -> Val:
        at = [p - b for p, b in zip(i[1:-1], shape.pads_begin, strict=True)]
        value = x[shape.element(i[0], i[-1], at)].cast(dtype)
        inside: Val | None = None
        for p, s, b, e in zip(at, shape.spatial, shape.pads_begin, shape.pads_end, strict=True):
            if b != 0 or e != 0:
                test = in_range(p, 0, s)
                inside = test if inside is None else inside & test
        return value if inside is None else select(inside, value, constant(0, dtype))

    full = (shape.batch, *extents, shape.channels)
    padded = ctx.stage(compute(ctx.name("padded"), full, formula, axis_names=["n", *_names(shape.rank), "c"]))
    return lambda n, c, at: padded[(n, *at, c)]


def _dense(
    ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader, weight: Weight, per_group: IntExpr
) -> Reader:
    """``acc[n, out..., no, ni] = sum over taps and ic``, or ``acc[m, no, ni]`` with ``m`` over all pixels.

    Of a 1x1 convolution of stride 1 all pixels are rows of one product; of others they are, where tiles that end with
    the image's rows would be short. The panels of a group of channels follow those of the group before.
    """
    pointwise = all(k == 1 for k in shape.kernel) and all(s == 1 for s in shape.strides) and not shape.needs_padding
    pixels, rows = product((shape.batch, *shape.out_spatial)), shape.out_spatial[-1]
    width = group_panel_width(pixels, per_group, shape.groups, ctx.target, dtype.itemsize)
    height = ctx.target.tile_rows(max(1, width // ctx.target.lanes(dtype.itemsize)))
    joined = pointwise or _has_short_tiles(shape, height)
    if not joined:
        width = group_panel_width(rows, per_group, shape.groups, ctx.target, dtype.itemsize)
    packed = weight(width)
    panels = Panels(shape.groups, shape.channels // shape.groups, per_group, width)
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, _names(shape.rank), strict=True)]
    ic = ctx.axis(panels.depth, "ic")
    halo = ctx.attr_ints(HALO)
    if joined and halo is None:
        tiles = whole_tiles(pixels, width, ctx.target, dtype.itemsize)
        return _joined(ctx, shape, read, packed, taps, ic, panels, tiles)
    before, behind = (halo[: shape.rank], halo[shape.rank :]) if halo is not None else ((0,) * shape.rank,) * 2

    def formula(*i: IntExpr) -> Reduction:
        *at, no, ni = i[1:]
        if halo is None:
            at[-1] = clamped(at[-1], rows)
        else:  # a border, which repeats the results at the edge
            at = [
                minimum(maximum(p - b, 0), size - 1) for p, b, size in zip(at, before, shape.out_spatial, strict=True)
            ]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        return sum_over(read(i[0], panels.channel(no, ic.index), where) * packed[(no, *taps, ic, ni)], *taps, ic)

    sizes = [b + size + e for b, size, e in zip(before, shape.out_spatial, behind, strict=True)]
    if halo is None:
        sizes[-1] = whole_tiles(rows, width, ctx.target, dtype.itemsize)
    full = (shape.batch, *sizes, panels.count, as_expr(width))
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["n", *_names(shape.rank), "no", "ni"]))
    return lambda n, c, at: acc[(n, *(p + b for p, b in zip(at, before, strict=True)), *panels.place(c))]


def _has_short_tiles(shape: ConvShape, height: int) -> bool:
    """True if a row of the result is at most a few tiles of ``height`` and a rest, and all sizes are known."""
    row = shape.out_spatial[-1].value()
    known = all(d.is_const for d in (shape.batch, *shape.out_spatial))
    return known and row is not None and row < _LONG_ROW * height and row % height != 0


def _joined(
    ctx: LowerContext, shape: ConvShape, read: Reader, packed: Tensor, taps: Sequence[ReduceAxis], ic: ReduceAxis,
    panels: Panels, tiles: IntExpr,
) -> Reader:  # fmt: skip
    """All pixels of the batch as the rows of one product."""
    rows = product((shape.batch, *shape.out_spatial))
    steps = [t for t, k in zip(taps, shape.kernel, strict=True) if k != 1]

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        n, *at = unflatten(clamped(m, rows), shape.out_spatial)
        offsets = [t.index if t in steps else const(0) for t in taps]
        where = [p * s + o * d for p, s, o, d in zip(at, shape.strides, offsets, shape.dilations, strict=True)]
        return sum_over(read(n, panels.channel(no, ic.index), where) * packed[(no, *offsets, ic, ni)], *steps, ic)

    full = (tiles, panels.count, as_expr(panels.width))
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
    return lambda n, c, at: acc[(flatten((n, *at), shape.out_spatial), *panels.place(c))]


def _depthwise(ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader) -> Reader:
    """One filter a channel (or a few): the channel is the vector axis, the weight lies ``[taps..., channel]``."""
    w = ctx.input(1)
    multiplier = shape.out_channels // shape.groups
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, _names(shape.rank), strict=True)]
    columns = shape.out_spatial[-1]
    packed: Tensor | None = None
    if ctx.constants[1] is not None:
        packed = ctx.packed(1, _channels_last_taps, (*shape.kernel, shape.out_channels), "taps_channel", dtype)

    def formula(*i: IntExpr) -> Reduction:
        n, at, c = i[0], (*i[1:-2], clamped(i[-2], columns)), i[-1]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        weight = w[(c, const(0), *taps)].cast(dtype) if packed is None else packed[(*taps, c)]
        return sum_over(read(n, c // multiplier, where) * weight, *taps)

    width = 2 * ctx.target.lanes(dtype.itemsize)
    last = whole_tiles(columns, width, ctx.target, dtype.itemsize)
    full = (shape.batch, *shape.out_spatial[:-1], last, shape.out_channels)
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["n", *_names(shape.rank), "c"]))
    return lambda n, c, at: acc[(n, *at, c)]


def _channels_last_taps(w: np.ndarray) -> np.ndarray:
    """``[C, 1, taps...] -> [taps..., C]``."""
    return np.moveaxis(w[:, 0], 0, -1)


def _suits_lanes(ctx: LowerContext, shape: ConvShape, dtype: DType) -> bool:
    """True if vectors along the input channels are better filled, and enough of them are added for the last sums."""
    lanes = ctx.target.lanes(dtype.itemsize)
    ic, oc = shape.channels.value(), shape.out_channels.value()
    if shape.groups > 1 or ctx.constants[1] is None or lanes == 1 or not ic or not oc or ic % lanes:
        return False
    useful = oc / (-(-oc // lanes) * lanes)
    return useful <= _FULL_ENOUGH and math.prod(shape.kernel) * ic >= ctx.target.costs.lane_sum * lanes


def _lane_sums(ctx: LowerContext, shape: ConvShape, dtype: DType, read: Reader) -> Reader:
    """``acc[n, out..., oc, lane]`` over every ``lanes``-th input channel, then the sum of the lanes.

    The weight lies ``[oc, taps..., ic]``, so that a step reads neighbouring channels of both operands.
    """
    lanes, oc = ctx.target.lanes(dtype.itemsize), shape.out_channels
    columns, parts = shape.out_spatial[-1], shape.channels // lanes

    def transform(w: np.ndarray) -> np.ndarray:
        last = np.moveaxis(w, 1, -1)
        return np.ascontiguousarray(last.reshape(*last.shape[:-1], -1, lanes), dtype.numpy)

    packed = ctx.packed(1, transform, (oc, *shape.kernel, parts, lanes), f"lanes_{lanes}", dtype)
    taps = [ctx.axis(k, f"k{n}") for k, n in zip(shape.kernel, _names(shape.rank), strict=True)]
    part = ctx.axis(parts, "ic")

    def formula(*i: IntExpr) -> Reduction:
        at, (c, lane) = (*i[1:-3], clamped(i[-3], columns)), i[-2:]
        where = [p * s + t.index * d for p, s, t, d in zip(at, shape.strides, taps, shape.dilations, strict=True)]
        return sum_over(read(i[0], part.index * lanes + lane, where) * packed[(c, *taps, part, lane)], *taps, part)

    height, _ = ctx.target.lane_tile(oc.value() or 1)
    whole = columns if columns.value() is not None else ceildiv(columns, height) * height
    full = (shape.batch, *shape.out_spatial[:-1], whole, oc)
    names = ["n", *_names(shape.rank), "c"]
    acc = ctx.stage(compute(ctx.name("acc"), (*full, lanes), formula, axis_names=[*names, "lane"]))
    lane = ctx.axis(const(lanes), "lane")
    sums = ctx.stage(compute(ctx.name("sums"), full, lambda *i: sum_over(acc[(*i, lane)], lane), axis_names=names))
    return lambda n, c, at: sums[(n, *at, c)]


Weight = Callable[[int], Tensor]
ReadWeight = Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]


def conv_weight(
    ctx: LowerContext, shape: ConvShape, dtype: DType, to_oihw: Callable[[np.ndarray], np.ndarray], key: str,
    read: ReadWeight,
) -> Weight:  # fmt: skip
    """``weight(width)``: panels ``[no, taps..., ic, ni]``, group by group, packed at build time or by a stage.

    ``to_oihw`` turns the constant into ``[OC, IC / g, taps...]``; ``read(oc, ic, taps)`` is the same for values.
    """
    per_group, in_group = shape.out_channels // shape.groups, shape.channels // shape.groups

    def weight(width: int) -> Tensor:
        panels = ceildiv(per_group, width)
        full: tuple[IntLike, ...] = (panels * shape.groups, *shape.kernel, in_group, width)

        def transform(w: np.ndarray) -> np.ndarray:
            return _pack_oihw(to_oihw(w), shape.groups, width, dtype.numpy)

        if ctx.constants[1] is not None:
            return ctx.packed(1, transform, full, f"{key}_g{shape.groups}_{width}", dtype)

        def formula(*i: IntExpr) -> Val:
            g, no = (i[0] // panels, i[0] % panels) if shape.groups > 1 else (const(0), i[0])
            taps, ic, ni = i[1:-2], i[-2], i[-1]
            col = no * width + ni
            value = read(g * per_group + col, ic, taps).cast(dtype)
            n = per_group.value()
            whole = n is not None and n % width == 0
            return value if whole else select(in_range(col, 0, per_group), value, constant(0, dtype))

        names = ["no", *(f"k{n}" for n in _names(shape.rank)), "ic", "ni"]
        return ctx.stage(compute(ctx.name("pack"), full, formula, axis_names=names))

    return weight


def _pack_oihw(w: np.ndarray, groups: int, width: int, dtype: np.dtype) -> np.ndarray:
    """``[OC, IC / g, taps...] -> [no, taps..., ic, ni]``, the panels of each group together."""
    oc, ic, taps = w.shape[0] // groups, w.shape[1], w.shape[2:]
    grouped = w.reshape(groups, oc, ic, *taps)
    parts = [
        pack_columns(np.moveaxis(part, (0, 1), (-1, -2)).reshape(-1, oc), width, dtype).reshape(-1, *taps, ic, width)
        for part in grouped
    ]
    return parts[0] if groups == 1 else np.concatenate(parts)


def _winograd(ctx: LowerContext, shape: ConvShape, dtype: DType, algorithm: str) -> Reader:
    """The convolution over tiles of the output; the input is padded to whole tiles.

    Where its size is symbolic, which seldom is one of whole tiles, that would always be a copy. There the last tiles
    read the last row and column again instead, for results that nobody reads.
    """
    known = WINOGRAD.get(algorithm)
    plain = shape.kernel == (3, 3) and shape.groups == 1 and {*shape.dilations} == {1}
    if known is None or not plain or {*shape.strides} != {known.stride} or ctx.constants[1] is None:
        raise ctx.unsupported(f"algorithm {algorithm!r} for this convolution")
    if dtype != dtypes.float32:
        raise ctx.unsupported(f"algorithm {algorithm!r} in {dtype}")
    grid = TileGrid.of(shape.batch, shape.out_spatial, known.tile)
    reach = [(t * known.tile - 1) * known.stride + 3 for t in (grid.rows, grid.columns)]
    sides = zip(reach, shape.pads_begin, shape.spatial, shape.pads_end, strict=True)
    missing = [r - b - s if r.is_const else e for r, b, s, e in sides]
    whole = dataclasses.replace(shape, pads_end=tuple(const(0) if (m.value() or 0) < 0 else m for m in missing))
    padded = padded_input(ctx, whole, dtype)
    sizes = [b + s + e for b, s, e in zip(whole.pads_begin, whole.spatial, whole.pads_end, strict=True)]

    def read(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        return padded(n, c, [clamped(p, size) for p, size in zip(at, sizes, strict=True)])

    return transformed_product(ctx, algorithm, grid, shape.channels, shape.out_channels, read)


def lower_conv(ctx: LowerContext) -> tuple[Tensor, ...]:
    """``Conv`` (X, W [, B])."""
    shape = conv_shape(ctx)
    dtype = wide(ctx.output().dtype)
    w = ctx.input(1)
    algorithm = ctx.attr_str("algorithm", "direct")
    if algorithm != "direct":
        return (_with_bias(ctx, shape, dtype, _winograd(ctx, shape, dtype, algorithm)),)
    read = padded_input(ctx, shape, dtype)
    if shape.groups > 1 and shape.channels // shape.groups == 1:
        acc = _depthwise(ctx, shape, dtype, read)
    elif _suits_lanes(ctx, shape, dtype):
        acc = _lane_sums(ctx, shape, dtype, read)
    else:
        narrow = (shape.out_channels // shape.groups).value() if ctx.constants[1] is not None else None
        lanes = ctx.target.lanes(dtype.itemsize)
        beside = groups_in_a_vector(narrow, shape.groups, lanes) if narrow else 1
        shape = dataclasses.replace(shape, groups=shape.groups // beside)
        weight = conv_weight(
            ctx, shape, dtype, lambda a: side_by_side(a, shape.groups, beside), f"oihw_{beside}",
            lambda oc, ic, k: w[(oc, ic, *k)],
        )  # fmt: skip
        acc = _dense(ctx, shape, dtype, read, weight, shape.out_channels // shape.groups)
    return (_with_bias(ctx, shape, dtype, acc),)


def lower_conv_transpose(ctx: LowerContext) -> tuple[Tensor, ...]:
    """``ConvTranspose`` (X, W [, B]): a convolution a phase of the strides over the input.

    Where it is dilated, most phases have no tap, or the first one depends on a symbolic size, it is one over the input
    with zeros between its elements.
    """
    shape = _transposed_shape(ctx)
    dtype = wide(ctx.output().dtype)
    plain = all(d == 1 for d in shape.dilations) and all(b.is_const for b in shape.pads_begin)
    taps = math.prod(-(-k // s) * s for k, s in zip(shape.kernel, shape.strides, strict=True))
    plain &= taps <= _MOST_PHASES * math.prod(shape.kernel)
    return (_with_bias(ctx, shape, dtype, (_phases if plain else _stuffed)(ctx, shape, dtype)),)


def _transposed_shape(ctx: LowerContext) -> ConvShape:
    """Geometry of a ``ConvTranspose`` node, ``auto_pad`` and ``output_shape`` resolved."""
    shape = _unpadded(ctx, ctx.input(1).shape[1] * ctx.attr_int("group", 1))
    rank, auto = shape.rank, ctx.attr_str("auto_pad", "NOTSET")
    pads = ctx.attr_ints("pads") or (0,) * 2 * rank
    begin, end = [const(p) for p in pads[:rank]], [const(p) for p in pads[rank:]]
    extra = ctx.attr_ints("output_padding") or (0,) * rank
    if auto in ("SAME_UPPER", "SAME_LOWER") or ctx.attr_ints("output_shape") is not None:
        sizes = zip(shape.spatial, shape.out_spatial, shape.kernel, shape.strides, shape.dilations, strict=True)
        for d, (i, o, k, s, dilation) in enumerate(sizes):
            total = (i - 1) * s + extra[d] + (k - 1) * dilation + 1 - o
            begin[d], end[d] = halves(total, auto == "SAME_UPPER")
    return dataclasses.replace(shape, pads_begin=tuple(begin), pads_end=tuple(end))


def _phases(ctx: LowerContext, shape: ConvShape, dtype: DType) -> Reader:
    """Outputs whose place has the same remainder by the strides are a convolution of the input with some of the taps.

    Output ``o`` of a dimension with stride ``s`` and padding ``b`` is ``sum over t of x[q - t] * w[r + s*t]`` with
    ``q, r = (o + b) // s, (o + b) % s``. All phases ``r`` together are one convolution with ``s`` times the output
    channels, its taps turned around and padded with zeros to ``ceil(k / s)`` in every phase; a shuffle puts them in
    their places.
    """
    w = ctx.input(1)
    begin = [int(b) for b in shape.pads_begin]
    first = [b // s for b, s in zip(begin, shape.strides, strict=True)]
    taps = tuple(-(-k // s) for k, s in zip(shape.kernel, shape.strides, strict=True))
    sizes = [
        ceildiv(o + b, s) - f for o, b, s, f in zip(shape.out_spatial, begin, shape.strides, first, strict=True)
    ]
    lead = [t - 1 - f for t, f in zip(taps, first, strict=True)]
    tail = [q + t - 1 - p - i for q, t, p, i in zip(sizes, taps, lead, shape.spatial, strict=True)]
    per_group, in_group = shape.out_channels // shape.groups, shape.channels // shape.groups
    phases = 1
    for s in shape.strides:
        phases *= s
    inner = dataclasses.replace(
        shape, out_channels=shape.out_channels * phases, out_spatial=tuple(sizes), kernel=taps,
        strides=(1,) * shape.rank, pads_begin=tuple(map(const, lead)), pads_end=tuple(tail),
    )  # fmt: skip

    def to_oihw(a: np.ndarray) -> np.ndarray:
        grouped = a.reshape(shape.groups, a.shape[0] // shape.groups, *a.shape[1:])
        room = [(0, t * s - k) for t, s, k in zip(taps, shape.strides, shape.kernel, strict=True)]
        full = np.pad(grouped, [(0, 0), (0, 0), (0, 0), *room])
        split = full.reshape(*full.shape[:3], *(n for t, s in zip(taps, shape.strides, strict=True) for n in (t, s)))
        at = range(3, 3 + 2 * shape.rank, 2)  # g, ic, oc, then (tap, phase) a dimension
        order = np.flip(split, axis=tuple(at)).transpose(0, *(d + 1 for d in at), 2, 1, *at)
        return order.reshape(-1, order.shape[shape.rank + 2], *taps)

    def read_weight(oc: IntExpr, ic: IntExpr, k: Sequence[IntExpr]) -> Val:
        group, column = oc // (phases * per_group), oc % (phases * per_group)
        phase = unflatten(column // per_group, tuple(map(const, shape.strides[1:])))
        place = [(t - 1 - i) * s + r for t, i, s, r in zip(taps, k, shape.strides, phase, strict=True)]
        value = w[(group * in_group + ic, column % per_group, *place)]
        for p, n, t, s in zip(place, shape.kernel, taps, shape.strides, strict=True):
            if t * s != n:
                value = select(in_range(p, 0, n), value, constant(0, value.dtype))
        return value

    weight = conv_weight(ctx, inner, dtype, to_oihw, "iohw_phases", read_weight)
    acc = _dense(ctx, inner, dtype, padded_input(ctx, inner, dtype), weight, per_group * phases)
    names = ["n", *_names(shape.rank), "c"]
    columns = shape.out_channels * phases
    full = (shape.batch, *sizes, columns)
    whole = ctx.stage(compute(ctx.name("phases"), full, lambda *i: acc(i[0], i[-1], i[1:-1]), axis_names=names))

    def result(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        moved = [p + b for p, b in zip(at, begin, strict=True)]
        remainders = [p % s for p, s in zip(moved, shape.strides, strict=True)]
        phase = flatten(remainders, tuple(map(const, shape.strides[1:])))
        source = [p // s - f for p, s, f in zip(moved, shape.strides, first, strict=True)]
        return whole[(n, *source, (c // per_group * phases + phase) * per_group + c % per_group)]

    return result


def _stuffed(ctx: LowerContext, shape: ConvShape, dtype: DType) -> Reader:
    x, w = ctx.input(0), ctx.input(1)
    per_group = shape.out_channels // shape.groups
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
    source = ctx.stage(compute(ctx.name("stuffed"), full, stuffed, axis_names=["n", *_names(shape.rank), "c"]))
    unit = dataclasses.replace(
        shape, strides=(1,) * shape.rank, pads_begin=tuple(const(1) for _ in reach)
    )  # a stage stands in front: never the pointwise form
    in_group = shape.channels // shape.groups

    def to_oihw(a: np.ndarray) -> np.ndarray:
        g = a.reshape(shape.groups, a.shape[0] // shape.groups, *a.shape[1:])
        flipped = np.flip(np.swapaxes(g, 1, 2), axis=tuple(range(3, g.ndim)))
        return flipped.reshape(-1, *flipped.shape[2:])

    def read_weight(oc: IntExpr, ic: IntExpr, k: Sequence[IntExpr]) -> Val:
        flipped = [size - 1 - t for size, t in zip(shape.kernel, k, strict=True)]
        return w[((oc // per_group) * in_group + ic, oc % per_group, *flipped)]

    weight = conv_weight(ctx, unit, dtype, to_oihw, "iohw_flipped", read_weight)
    return _dense(ctx, unit, dtype, lambda n, c, at: source[(n, *at, c)], weight, per_group)


RULES: dict[str, Rule] = {"Conv": lower_conv, "ConvTranspose": lower_conv_transpose}
