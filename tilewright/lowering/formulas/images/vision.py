"""Operators of detection and image models: RoiAlign, MaxUnpool, Col2Im, AffineGrid, CenterCropPad."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.index_ranges import unpooled_shape
from tilewright.lowering.context import Lower, LowerContext, clamped_index, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.geometry.windows import windows_for
from tilewright.lowering.indexing import normal_axis, split_index
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    in_range,
    index_value,
    max_over,
    op,
    select,
    sum_over,
    update,
)


# -- RoiAlign --------------------------------------------------------------------------------------------------------
def lower_roi_align(c: LowerContext) -> tuple[Tensor, ...]:
    x, rois, batch, out = c.input(0), c.input(1), c.input(2), c.output()
    ratio = c.attr_int("sampling_ratio", 0)
    if ratio <= 0:
        raise c.unsupported("attribute sampling_ratio = 0: the number of samples depends on the regions")
    scale = c.attr_float("spatial_scale", 1.0)
    half = c.attr_str("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    maximum = c.attr_str("mode", "avg") == "max"
    pooled = out.shape[2:]
    real = widen(rois[const(0), const(0)]).dtype

    def start(r: IntExpr, d: int) -> Val:
        return widen(rois[r, 1 - d]) * scale - (0.5 if half else 0.0)

    def bin_size(r: IntExpr, d: int) -> Val:
        length = (widen(rois[r, 3 - d]) - widen(rois[r, 1 - d])) * scale
        length = length if half else op("max", length, 1.0)
        return length / index_value(pooled[d]).cast(real)

    def coordinates(d: int) -> Tensor:
        """Where sample s of bin p of region r lies in spatial dimension d."""

        def body(r: IntExpr, p: IntExpr, s: IntExpr) -> Val:
            size = bin_size(r, d)
            return start(r, d) + (index_value(p).cast(real) + (index_value(s).cast(real) + 0.5) / float(ratio)) * size

        return c.stage(compute(c.name(f"at{d}"), (rois.shape[0], pooled[d], ratio), body))

    where = [coordinates(0), coordinates(1)]
    sy, sx = c.axis(ratio, "sy"), c.axis(ratio, "sx")

    def sample(r: IntExpr, ch: IntExpr, y: Val, xx: Val) -> Val:
        inside: Val | None = None
        low, high, weight = [], [], []
        for d, v in enumerate((y, xx)):
            extent = x.shape[2 + d]
            last = index_value(extent - 1).cast(real)
            test = (v >= -1.0) & (v <= last + 1.0)
            inside = test if inside is None else inside & test
            v = op("max", op("min", v, last), 0.0)
            base = op("floor", v)
            low.append(base.cast(dtypes.int64).as_index())
            high.append(op("min", base + 1.0, last).cast(dtypes.int64).as_index())
            weight.append(v - base)
        n = clamped_index(batch[r].cast(dtypes.int64), x.shape[0])
        terms = []
        for ky in (0, 1):
            for kx in (0, 1):
                w = (weight[0] if ky else 1.0 - weight[0]) * (weight[1] if kx else 1.0 - weight[1])
                place = (n, ch, (high if ky else low)[0], (high if kx else low)[1])
                terms.append(widen(x[place]) * w)
        value = terms[0]
        for t in terms[1:]:
            value = op("max", value, t) if maximum else value + t
        return value if inside is None else select(inside, value, 0.0)

    def pooled_value(r: IntExpr, ch: IntExpr, ph: IntExpr, pw: IntExpr) -> Reduction:
        v = sample(r, ch, where[0][r, ph, sy.index], where[1][r, pw, sx.index])
        return max_over(v, sy, sx) if maximum else sum_over(v, sy, sx)

    total = c.stage(compute(c.name("roi_samples"), out.shape, pooled_value))
    factor = 1.0 if maximum else 1.0 / (ratio * ratio)
    return (
        compute(
            c.name("roi_align"), out.shape, lambda *i: (total[i] * factor).cast(out.dtype), axis_names=axis_names(4)
        ),
    )


# -- inverse windows -------------------------------------------------------------------------------------------------
def lower_max_unpool(c: LowerContext) -> tuple[Tensor, ...]:
    x, places, out = c.input(0), c.input(1), c.output()
    spread = [d for d in range(x.ndim)]
    shape = unpooled_shape(dict(c.node.attrs), x.shape)
    result = c.stage(
        compute(c.name("unpooled"), out.shape, lambda *i: constant(0, x.dtype), axis_names=axis_names(x.ndim))
    )

    if product(shape) == 0:
        return (result,)

    def body(*i: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
        at = clamped_index(places[i].cast(dtypes.int64), product(shape))
        place = split_index(at, shape, {})
        return tuple(minimum(p, n - 1) if n != s else p for p, s, n in zip(place, shape, out.shape, strict=True)), x[i]

    c.update(update(c.name("unpool"), result, x.shape, body, ordered=spread))
    return (result,)


def lower_col2im(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    block = c.constant_ints(2, "block_shape") or []
    n = len(block)
    if any(s.value() is None for s in out.shape[2:]):
        raise c.unsupported("image_shape (input 1) must be a constant")
    source = compute("image", out.shape, lambda *i: constant(0, x.dtype), axis_names=axis_names(len(out.shape)))
    w = windows_for(c, source.shape, tuple(range(2, 2 + n)), tuple(block))
    steps = [c.axis(b, f"k{k}") for k, b in enumerate(block)]
    counts = [
        (out.shape[2 + k] + w.begin[k] + w.end[k] - (block[k] - 1) * w.dilations[k] - 1) // w.strides[k] + 1
        for k in range(n)
    ]

    def body(*i: IntExpr) -> Reduction:
        inside: Val | None = None
        column, row = const(0), i[1]
        for k in range(n):
            offset = i[2 + k] + w.begin[k] - steps[k].index * w.dilations[k]
            at = offset // w.strides[k]
            test = in_range(at, 0, counts[k]) & index_value(offset % w.strides[k]).equal(0)
            inside = test if inside is None else inside & test
            column = column * counts[k] + at
            row = row * block[k] + steps[k].index
        v = widen(x[i[0], row, column])
        return sum_over(v if inside is None else select(inside, v, 0.0), *steps)

    total = compute(c.name("col2im"), out.shape, body, axis_names=axis_names(len(out.shape)))
    if total.dtype == out.dtype:
        return (total,)
    c.stage(total)
    return (
        compute(
            c.name("col2im_out"),
            out.shape,
            lambda *i: total[i].cast(out.dtype),
            axis_names=axis_names(len(out.shape)),
        ),
    )


# -- grids and crops -------------------------------------------------------------------------------------------------
def lower_affine_grid(c: LowerContext) -> tuple[Tensor, ...]:
    theta, out = c.input(0), c.output()
    corners = c.attr_int("align_corners", 0)
    dims = out.shape[1:-1]
    rank = len(dims)
    real = widen(theta[const(0), const(0), const(0)]).dtype

    def axis_value(i: IntExpr, extent: IntExpr) -> Val:
        x, n = index_value(i).cast(real), index_value(extent).cast(real)
        if corners:
            return x * 2.0 / op("max", n - 1.0, 1.0) - 1.0
        return (x * 2.0 + 1.0) / n - 1.0

    def body(*i: IntExpr) -> Val:
        n, points, row = i[0], i[1:-1], i[-1]
        total = widen(theta[n, row, const(rank)])
        for k in range(rank):
            d = rank - 1 - k
            total = total + widen(theta[n, row, const(k)]) * axis_value(points[d], dims[d])
        return total.cast(out.dtype)

    return (compute(c.name("affine_grid"), out.shape, body, axis_names=axis_names(len(out.shape))),)


def lower_center_crop_pad(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    given = c.attr_ints("axes")
    axes = range(x.ndim) if given is None else [normal_axis(a, x.ndim, c.where) for a in given]
    moved = [d for d in axes if x.shape[d] != out.shape[d]]

    def body(*i: IntExpr) -> Val:
        place, inside = list(i), None
        for d in moved:
            place[d] = i[d] + _offset(x.shape[d], out.shape[d])
            test = in_range(place[d], 0, x.shape[d])
            inside = test if inside is None else inside & test
        v = x[tuple(place)]
        return v if inside is None else select(inside, v, constant(0, x.dtype))

    return (compute(c.name("center_crop_pad"), out.shape, body, axis_names=axis_names(x.ndim)),)


def _offset(have: IntExpr, want: IntExpr) -> IntExpr:
    """What to add to a position of the result: both cropping and padding put the odd element at the end."""
    return maximum(have - want, 0) // 2 - maximum(want - have, 0) // 2


LOWER: dict[str, Lower] = {
    "RoiAlign": lower_roi_align, "MaxUnpool": lower_max_unpool, "Col2Im": lower_col2im,
    "AffineGrid": lower_affine_grid, "CenterCropPad": lower_center_crop_pad,
}  # fmt: skip
