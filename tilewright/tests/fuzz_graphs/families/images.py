"""Resampling of images: Resize, GridSample, AffineGrid, regions of interest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val
from tilewright.tests.fuzz_graphs.families.windows import image

SHARE = 1.0


def resize(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("Upsample before")
    n = d.one_of([1, 2, 2, 2, 3])
    types: list[object] = [np.float32] * 5 + [np.float64, np.uint8, np.int8, np.float16]
    x = image(d, d.integer(1, 4), 1, n, types)
    mode = d.one_of(["nearest", "linear", "linear", "cubic"])
    ways = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
    ways += ["tf_crop_and_resize"] if d.chance(0.3) else []
    ways += ["half_pixel_symmetric"] if d.opset >= 19 else []
    attrs: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": d.one_of(ways)}
    if mode == "nearest":
        attrs["nearest_mode"] = d.one_of(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        attrs["cubic_coeff_a"] = d.one_of([-0.75, -0.5])
        attrs["exclude_outside"] = d.integer(0, 1)
    roi: Val | None = None
    axes = list(range(x.rank))
    if d.opset >= 18:
        if d.chance(0.5):
            axes = [2 + k for k in range(n)]
            attrs["axes"] = [a - x.rank for a in axes] if d.chance(0.3) else axes
        if d.chance(0.25) and mode != "nearest":
            attrs["antialias"] = 1
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        part = [0.0 if a < 2 else d.one_of([0.0, 0.2, -0.1]) for a in axes]
        part += [1.0 if a < 2 else d.one_of([1.0, 0.8, 1.3]) for a in axes]
        roi = d.given(np.array(part, np.float32), 0.9)
        attrs["extrapolation_value"] = d.one_of([0.0, 7.0])
    scales = [1.0 if a < 2 else d.one_of([1.0, 2.0, 0.5, 1.5, 0.7, 3.0]) for a in axes]
    if d.chance(0.6):
        return d.emit("Resize", [x, roi, d.given(np.array(scales, np.float32), 0.9)], attrs)
    if d.opset >= 18 and "axes" in attrs and d.chance(0.3):
        attrs["keep_aspect_ratio_policy"] = d.one_of(["not_larger", "not_smaller"])
    if not x.is_static and len(axes) == x.rank:
        raise Rejected("sizes name the other axes too")
    sizes = [x.shape[a] if a < 2 else d.integer(1, 9) for a in axes]
    return d.emit("Resize", [x, roi, None, d.ints(sizes)], attrs)


def upsample(d: Draft) -> object:
    if d.opset >= 10:
        raise Rejected("deprecated")
    x = image(d, d.integer(1, 4), 1, 2, [np.float32])
    scales = d.given(np.array([1, 1, d.one_of([1.0, 2.0, 3.0]), d.one_of([1.0, 2.0, 1.5])], np.float32), 1.0)
    return d.emit("Upsample", [x, scales], {"mode": d.one_of(["nearest", "linear"])})


def grid_sample(d: Draft) -> object:
    if d.opset < 16:
        raise Rejected("from 16 on")
    n = 3 if d.opset >= 20 and d.chance(0.2) else 2
    x = image(d, d.integer(1, 3), 1, n, [np.float32, np.float32, np.float64])
    modes = ["linear", "nearest", "cubic"] if d.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    mode = d.one_of(modes[: 2 if n == 3 else 3])
    out = [d.dim(True) for _ in range(n)]
    grid = d.new(x.dtype, (x.dims[0], *out, n), 0.2, "any" if d.chance(0.5) else "unit")
    attrs = {"mode": mode, "padding_mode": d.one_of(["zeros", "border", "reflection"]),
             "align_corners": d.integer(0, 1)}  # fmt: skip
    return d.emit("GridSample", [x, grid], attrs)


def affine_grid(d: Draft) -> object:
    if d.opset < 20:
        raise Rejected("from 20 on")
    n = d.integer(2, 3)
    batch = d.integer(1, 2)
    theta = d.new(np.float32, (batch, n, n + 1), 0.3)
    size = d.ints([batch, d.integer(1, 3), *(d.integer(1, 5) for _ in range(n))])
    return d.emit("AffineGrid", [theta, size], {"align_corners": d.integer(0, 1)})


def _boxes(d: Draft, count: int, size: float) -> np.ndarray:
    start = d.rng.uniform(0, size * 0.6, (count, 2))
    return np.concatenate([start, start + d.rng.uniform(0.5, size * 0.5, (count, 2))], 1).astype(np.float32)


def roi_align(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    x = image(d, d.integer(1, 3), 2, 2, [np.float32])
    count = d.integer(1, 4)
    boxes = d.given(_boxes(d, count, min(x.dims[2])), 0.4)
    which = d.ints([d.integer(0, min(x.dims[0]) - 1) if min(x.dims[0]) else 0 for _ in range(count)], constant=0.4)
    attrs: dict[str, object] = {"output_height": d.integer(1, 4), "output_width": d.integer(1, 4),
                                "sampling_ratio": d.integer(0, 3), "spatial_scale": d.one_of([1.0, 0.5]),
                                "mode": d.one_of(["avg", "max"])}  # fmt: skip
    if d.opset >= 16:
        attrs["coordinate_transformation_mode"] = d.one_of(["half_pixel", "output_half_pixel"])
    return d.emit("RoiAlign", [x, boxes, which], attrs)


def max_roi_pool(d: Draft) -> object:
    x = image(d, d.integer(1, 3), 3, 2, [np.float32])
    if not x.is_static or x.shape[0] == 0:
        raise Rejected("fixed sizes")
    count = d.integer(1, 3)
    boxes = np.floor(_boxes(d, count, min(x.shape[2:])))
    rows = np.concatenate([d.rng.integers(0, x.shape[0], (count, 1)), boxes], 1).astype(np.float32)
    attrs = {"pooled_shape": [d.integer(1, 3), d.integer(1, 3)], "spatial_scale": 1.0}
    return d.emit("MaxRoiPool", [x, d.given(rows, 0.4)], attrs)


def suppression(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    count = d.integer(1, 9)
    batch, classes = d.integer(1, 2), d.integer(1, 3)
    boxes = d.given(np.stack([_boxes(d, count, 10.0) for _ in range(batch)]), 0.2)
    order = d.rng.permutation(batch * classes * count).reshape(batch, classes, count)
    scores = d.given(order.astype(np.float32) / 50, 0.2)
    most = d.scalar(d.integer(0, 4), np.int64)
    limits = [d.scalar(d.one_of([0.3, 0.5, 0.7]), np.float32)]
    if d.chance(0.6):
        limits.append(d.scalar(0.2, np.float32))
    return d.emit("NonMaxSuppression", [boxes, scores, most, *limits], {"center_point_box": d.integer(0, 1)})


GENERATORS: Mapping[str, object] = {
    "Resize": resize, "ResizeAgain": resize, "Upsample": upsample, "GridSample": grid_sample, "AffineGrid": affine_grid,
    "RoiAlign": roi_align, "MaxRoiPool": max_roi_pool, "NonMaxSuppression": suppression,
}  # fmt: skip
