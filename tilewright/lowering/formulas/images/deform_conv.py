"""DeformConv: a convolution whose taps lie beside their places by offsets that are read, with bilinear samples.

A corner of a sample outside the image counts as zero (Dai et al., 2017; Zhu et al., 2019 for the mask).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import Lower, LowerContext, clamped_index, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, index_value, op, select, sum_over


@dataclass(frozen=True, slots=True)
class Corner:
    """One of the two neighbours of a sample along an axis: where to read, its weight, whether it is in the image."""

    at: IntExpr
    weight: Val
    inside: Val


def lower_deform_conv(c: LowerContext) -> tuple[Tensor, ...]:
    x, w, offset, out = c.input(0), c.input(1), c.input(2), c.output()
    if x.ndim != 4:
        raise c.unsupported(f"{x.ndim - 2} spatial axes; native code has two")
    strides, dilations = (c.attr_ints(k) or (1, 1) for k in ("strides", "dilations"))
    pads = c.attr_ints("pads") or (0, 0, 0, 0)
    channels, filters = w.shape[1], out.shape[1]
    columns = w.shape[3]
    taps = w.shape[2] * columns
    shared = x.shape[1] // c.attr_int("offset_group", 1)
    """Input channels that have offsets in common."""
    real = widen(x[tuple(const(0) for _ in x.shape)]).dtype

    def sample(n: IntExpr, ch: IntExpr, ky: IntExpr, kx: IntExpr, oy: IntExpr, ox: IntExpr) -> Val:
        tap = ch // shared * taps + ky * columns + kx
        corners: list[tuple[Corner, Corner]] = []
        for d, (k, o) in enumerate(((ky, oy), (kx, ox))):
            place = index_value(o * strides[d] + k * dilations[d] - pads[d]).cast(real)
            v = place + widen(offset[n, tap * 2 + d, oy, ox])
            low = op("floor", v)
            part = v - low
            corners.append((_corner(low, x.shape[2 + d], 1.0 - part), _corner(low + 1.0, x.shape[2 + d], part)))
        value: Val | None = None
        for row in corners[0]:
            for column in corners[1]:
                term = widen(x[n, ch, row.at, column.at]) * (row.weight * column.weight)
                term = select(row.inside & column.inside, term, 0.0)
                value = term if value is None else value + term
        if value is None:
            raise c.unsupported("no corners")
        return value * widen(c.input(4)[n, tap, oy, ox]) if c.has_input(4) else value

    samples = c.stage(compute(c.name("samples"), (x.shape[0], x.shape[1], w.shape[2], columns, *out.shape[2:]), sample))
    ic, ky, kx = c.axis(channels, "ic"), c.axis(w.shape[2], "ky"), c.axis(columns, "kx")
    per_group = filters // c.attr_int("group", 1)

    def product(n: IntExpr, f: IntExpr, oy: IntExpr, ox: IntExpr) -> Reduction:
        ch = f // per_group * channels + ic.index
        weight = widen(w[f, ic.index, ky.index, kx.index])
        return sum_over(samples[n, ch, ky.index, kx.index, oy, ox] * weight, ic, ky, kx)

    total = c.stage(compute(c.name("acc"), out.shape, product, axis_names=axis_names(4)))

    def result(n: IntExpr, f: IntExpr, oy: IntExpr, ox: IntExpr) -> Val:
        v = total[n, f, oy, ox]
        return (v + widen(c.input(3)[f]) if c.has_input(3) else v).cast(out.dtype)

    return (compute(c.name("deform_conv"), out.shape, result, axis_names=axis_names(4)),)


def _corner(at: Val, extent: IntExpr, weight: Val) -> Corner:
    """The corner at this coordinate along one axis."""
    last = index_value(extent - 1).cast(at.dtype)
    held = op("max", op("min", at, last), 0.0)
    return Corner(clamped_index(held.cast(dtypes.int64), extent), weight, (at >= 0.0) & (at <= last))


LOWER: dict[str, Lower] = {"DeformConv": lower_deform_conv}
