"""The geometry of convolutions of any rank, grouped, dilated, strided, and the two ends that all implementations share:
reading the padded input, and adding the bias to the sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext, wide
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.padding import halves
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, select


@dataclass(frozen=True)
class ConvShape:
    """The geometry of one convolution. Spatial tuples have one entry a spatial dimension.

    ``of_pixel``: None, or the channels of a pixel where those of the pixels behind it in a row count as its channels,
    too: the taps of a row are channels then (:meth:`rows_as_channels`).
    """

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
    of_pixel: IntExpr | None = None

    @cached_property
    def rank(self) -> int:
        return len(self.spatial)

    @cached_property
    def per_group(self) -> IntExpr:
        """Output channels of a group."""
        return self.out_channels // self.groups

    @cached_property
    def depth(self) -> IntExpr:
        """Input channels of a group."""
        return self.channels // self.groups

    @cached_property
    def is_pointwise(self) -> bool:
        """True for one tap, stride 1 and no padding: a product of matrices over all pixels."""
        return all(k == 1 for k in self.kernel) and all(s == 1 for s in self.strides) and not self.needs_padding

    @cached_property
    def needs_padding(self) -> bool:
        return any(p != 0 for p in (*self.pads_begin, *self.pads_end))

    def element(self, n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        """The index of an element of the input or output in its own layout."""
        if self.of_pixel is not None:
            *before, last = at
            return (n, *before, last + c // self.of_pixel, c % self.of_pixel)
        return (n, *at, c) if self.channels_last else (n, c, *at)

    def inside(self, at: Sequence[IntExpr]) -> Val | None:
        """Whether a place of the padded input, counted from the image's first element, is one of the image; None where
        no dimension is padded."""
        sides = zip(at, self.spatial, self.pads_begin, self.pads_end, strict=True)
        tests = [in_range(p, 0, size) for p, size, begin, end in sides if begin != 0 or end != 0]
        return reduce(lambda a, b: a & b, tests) if tests else None

    @property
    def unpadded(self) -> ConvShape:
        """The convolution of the padded image."""
        none = (const(0),) * self.rank
        sizes = zip(self.pads_begin, self.spatial, self.pads_end, strict=True)
        return dataclasses.replace(self, spatial=tuple(b + s + e for b, s, e in sizes), pads_begin=none, pads_end=none)

    def rows_as_channels(self) -> ConvShape | None:
        """The convolution of the padded image with the taps of a row as channels, which lie together in memory; None if
        they do not."""
        if not self.channels_last or self.groups > 1 or self.dilations[-1] != 1:
            return None
        return dataclasses.replace(
            self.unpadded, channels=self.channels * self.kernel[-1], kernel=(*self.kernel[:-1], 1),
            of_pixel=self.channels,
        )  # fmt: skip

    def taps_as_columns(self) -> ConvShape:
        """The convolution of which each tap of a row has results of its own: those of a pixel are sums of neighbours'.
        It fills tiles where there are few channels to compute."""
        *down, across = self.kernel
        *high, wide = self.out_spatial
        return dataclasses.replace(
            self, out_channels=self.out_channels * across, out_spatial=(*high, wide + across - 1), kernel=(*down, 1)
        )


def conv_shape(facts: NodeFacts) -> ConvShape:
    """Geometry of a ``Conv`` node, ``auto_pad`` resolved."""
    return facts.once("conv_shape", lambda: _conv_shape(facts))


def _conv_shape(facts: NodeFacts) -> ConvShape:
    w = facts.input_shape(1)
    shape = _unpadded(facts, w[0])
    if any(not d.is_const for d in w):
        raise facts.unsupported("a weight of symbolic size")
    begin, end = _pads(facts, shape)
    return dataclasses.replace(shape, pads_begin=begin, pads_end=end)


def transposed_shape(facts: NodeFacts) -> ConvShape:
    """Geometry of a ``ConvTranspose`` node, ``auto_pad`` and ``output_shape`` resolved."""
    return facts.once("transposed_shape", lambda: _transposed_shape(facts))


def _transposed_shape(facts: NodeFacts) -> ConvShape:
    shape = _unpadded(facts, facts.input_shape(1)[1] * facts.attr_int("group", 1))
    rank, auto = shape.rank, facts.attr_str("auto_pad", "NOTSET")
    pads = facts.attr_ints("pads") or (0,) * 2 * rank
    begin, end = [const(p) for p in pads[:rank]], [const(p) for p in pads[rank:]]
    extra = facts.attr_ints("output_padding") or (0,) * rank
    if auto in ("SAME_UPPER", "SAME_LOWER") or facts.attr_ints("output_shape") is not None:
        sizes = zip(shape.spatial, shape.out_spatial, shape.kernel, shape.strides, shape.dilations, strict=True)
        for d, (i, o, k, s, dilation) in enumerate(sizes):
            total = (i - 1) * s + extra[d] + (k - 1) * dilation + 1 - o
            begin[d], end[d] = halves(total, auto == "SAME_UPPER")
    return dataclasses.replace(shape, pads_begin=tuple(begin), pads_end=tuple(end))


def _unpadded(facts: NodeFacts, out_channels: IntExpr) -> ConvShape:
    """What ``Conv`` and ``ConvTranspose`` have in common: the geometry of the node as if it had no padding."""
    x, y = facts.input_shape(0), facts.output()
    rank = len(x) - 2
    last = facts.attr_str("data_layout", "NCHW") == "NHWC"
    return ConvShape(
        batch=x[0],
        channels=x[-1 if last else 1],
        out_channels=out_channels,
        spatial=x[1:-1] if last else x[2:],
        out_spatial=y.shape[1:-1] if last else y.shape[2:],
        kernel=_static_taps(facts),
        strides=facts.attr_ints("strides") or (1,) * rank,
        dilations=facts.attr_ints("dilations") or (1,) * rank,
        pads_begin=(const(0),) * rank,
        pads_end=(const(0),) * rank,
        groups=facts.attr_int("group", 1),
        channels_last=last,
    )


def _static_taps(facts: NodeFacts) -> tuple[int, ...]:
    taps = facts.input_shape(1)[2:]
    if any(not d.is_const for d in taps):
        raise facts.unsupported(f"a kernel of symbolic size {', '.join(map(str, taps))}")
    return tuple(int(d) for d in taps)


def _pads(facts: NodeFacts, shape: ConvShape) -> tuple[tuple[IntExpr, ...], tuple[IntExpr, ...]]:
    rank, auto = shape.rank, facts.attr_str("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        sizes = zip(shape.spatial, shape.out_spatial, shape.kernel, shape.strides, shape.dilations, strict=True)
        for i, o, k, s, d in sizes:
            before, behind = halves((o - 1) * s + (k - 1) * d + 1 - i, auto == "SAME_UPPER")
            begin.append(before)
            end.append(behind)
        return tuple(begin), tuple(end)
    pads = (facts.attr_ints("pads") or (0,) * 2 * rank) if auto != "VALID" else (0,) * 2 * rank
    return tuple(const(p) for p in pads[:rank]), tuple(const(p) for p in pads[rank:])


Reader = Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]
"""An element at ``(n, c, place)``."""


def computed_type(facts: NodeFacts) -> DType:
    """The type in which a convolution is computed."""
    return wide(facts.output().dtype)


def with_bias(ctx: LowerContext, shape: ConvShape, acc: Reader) -> tuple[Tensor]:
    """The result from the sums, ``acc(n, c, at)``."""
    dtype = computed_type(ctx)
    bias = ctx.inputs[2] if ctx.has_input(2) else None

    def biased(n: IntExpr, c: IntExpr, at: Sequence[IntExpr]) -> Val:
        value = acc(n, c, at)
        return value if bias is None else value + bias[c].cast(dtype)

    return conv_result(ctx, shape, biased)


def conv_result(ctx: LowerContext, shape: ConvShape, value: Reader) -> tuple[Tensor]:
    """The result of which ``value(n, c, at)`` are the elements, in its own layout and type."""
    out = ctx.output()

    def result(*i: IntExpr) -> Val:
        n, at, c = (i[0], i[1:-1], i[-1]) if shape.channels_last else (i[0], i[2:], i[1])
        return value(n, c, at).cast(out.dtype)

    spatial = spatial_names(shape.rank)
    names = ["n", *spatial, "c"] if shape.channels_last else ["n", "c", *spatial]
    return (compute(ctx.name("conv"), out.shape, result, axis_names=names),)


def spatial_names(rank: int) -> list[str]:
    """Names of the spatial axes."""
    return ["d", "h", "w"][-rank:] if rank <= 3 else [f"s{i}" for i in range(rank)]


def padded_input(ctx: LowerContext, shape: ConvShape, dtype: DType, border: Val | None = None) -> Reader:
    """``read(n, c, at)`` over the padded input; a channels-last stage if padding or another layout asks for a copy.
    ``border``: what it is padded with, None for 0."""
    x = ctx.input(0)
    if not shape.needs_padding and (shape.channels_last or all(k == 1 for k in shape.kernel)):
        return lambda n, c, at: x[shape.element(n, c, at)].cast(dtype)
    extents = [b + s + e for b, s, e in zip(shape.pads_begin, shape.spatial, shape.pads_end, strict=True)]

    def formula(*i: IntExpr) -> Val:
        at = [p - b for p, b in zip(i[1:-1], shape.pads_begin, strict=True)]
        value = x[shape.element(i[0], i[-1], at)].cast(dtype)
        inside = shape.inside(at)
        return value if inside is None else select(inside, value, constant(0, dtype) if border is None else border)

    full = (shape.batch, *extents, shape.channels)
    padded = ctx.stage(compute(ctx.name("padded"), full, formula, axis_names=["n", *spatial_names(shape.rank), "c"]))
    return lambda n, c, at: padded[(n, *at, c)]
