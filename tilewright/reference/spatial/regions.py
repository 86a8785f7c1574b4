"""Regions of interest: RoiAlign and MaxRoiPool one region at a time, and NonMaxSuppression with limits of any shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.onnx_ops import evaluate_onnx

Attrs = Mapping[str, Any]


def _samples(start: np.floating, length: np.floating, bins: int, ratio: int) -> np.ndarray:
    """Where the samples of each bin lie along an axis: ``ratio`` of them, or with 0 as many as it has elements."""
    size = length / start.dtype.type(bins)
    count = ratio if ratio > 0 else max(math.ceil(size), 0) if np.isfinite(size) else 0
    steps = (np.arange(count, dtype=start.dtype) + start.dtype.type(0.5)) / start.dtype.type(max(count, 1))
    places: np.ndarray = start + (np.arange(bins, dtype=start.dtype)[:, None] + steps) * size
    return places


def _neighbours(v: np.ndarray, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], Any]:
    """The elements on both sides of each place, their weights, and whether the place counts."""
    inside = (v >= -1) & (v <= size)
    v = np.where(inside, np.clip(v, 0, size - 1), 0).astype(v.dtype)
    low = np.floor(v)
    high = np.minimum(low + 1, size - 1)
    return (low.astype(np.int64), high.astype(np.int64)), (1 - (v - low), v - low), inside


def _roi_align(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, boxes, which = inputs
    half = attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    ratio, is_max = attrs.get("sampling_ratio", 0), attrs.get("mode", "avg") == "max"
    bins = (attrs.get("output_height", 1), attrs.get("output_width", 1))
    scaled = boxes * boxes.dtype.type(attrs.get("spatial_scale", 1.0)) - boxes.dtype.type(0.5 if half else 0)
    out = np.zeros((len(boxes), x.shape[1], *bins), x.dtype)
    for y, box, n in zip(out, scaled, which.reshape(-1), strict=True):
        sides = []
        for d in range(2):
            length = box[3 - d] - box[1 - d]
            length = length if half else np.maximum(length, box.dtype.type(1))
            places = _samples(box[1 - d], length, bins[d], ratio)
            sides.append(_neighbours(places.reshape(-1), x.shape[2 + d]))
        (rows, down, inside_y), (columns, right, inside_x) = sides
        terms = [
            x[n][:, rows[i][:, None], columns[j]] * (down[i][:, None] * right[j]).astype(x.dtype)
            for i in range(2) for j in range(2)
        ]  # fmt: skip
        values = np.maximum.reduce(terms) if is_max else (terms[0] + terms[1]) + (terms[2] + terms[3])
        values = np.where(inside_y[:, None] & inside_x, values, 0)
        if values.size:
            cut = values.reshape(x.shape[1], bins[0], -1, bins[1], len(columns[0]) // bins[1])
            y[:] = cut.max(axis=(2, 4)) if is_max else cut.mean(axis=(2, 4))
    return [out]


def _max_roi_pool(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """The largest element of each bin of each region; 0 where a bin lies outside the image."""
    x, regions = inputs
    bins = tuple(attrs["pooled_shape"])
    out = np.zeros((len(regions), x.shape[1], *bins), x.dtype)
    for y, (n, *box) in zip(out, regions, strict=True):
        left, top, right, bottom = (
            math.floor(abs(v) + 0.5) * (-1 if v < 0 else 1)
            for v in np.array(box) * regions.dtype.type(attrs.get("spatial_scale", 1.0))
        )
        for place in np.ndindex(*bins):
            cut = []
            for d, (first, last) in enumerate(((top, bottom), (left, right))):
                size = max(last - first + 1, 1) / bins[d]
                edges = math.floor(place[d] * size) + first, math.ceil((place[d] + 1) * size) + first
                cut.append(slice(*(min(max(e, 0), x.shape[2 + d]) for e in edges)))
            part = x[int(n)][:, cut[0], cut[1]]
            if part[0].size:
                y[(slice(None), *place)] = part.max(axis=(1, 2))
    return [out]


def _non_max_suppression(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    """By onnx.reference, which wants limits of shape (1,), and all of them, although the standard has none of both."""
    given = [*inputs[2:], None, None, None][:3]
    absent = (np.zeros(1, np.int64), np.zeros(1, np.float32), np.full(1, -np.inf, np.float32))
    limits = [a if v is None else v.reshape(-1) for v, a in zip(given, absent, strict=True)]
    return evaluate_onnx("NonMaxSuppression", attrs, [*inputs[:2], *limits], n_outputs)


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool,
    "NonMaxSuppression": _non_max_suppression,
}
