"""Resize on (N, C, spatial...) arrays: one axis at a time, each output a weighted sum of a few inputs.

An output size from ``scales`` is ``floor(size * scale)`` in float32, the type of the scales, as in ONNX Runtime: with
400 * 0.64f the exact product lies just below 256, the float32 product is 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]
_LARGEST_SIZE = 2.0**62


def scaled_size(size: int, scale: float) -> int:
    """The output size along an axis for a float32 scale."""
    with np.errstate(over="ignore"):
        product = np.float32(size) * np.float32(scale)
    if not 0 <= product < _LARGEST_SIZE:
        raise ValueError(f"expected scales that give sizes of 0 to 2**62, got {scale} for a size of {size}")
    return math.floor(product)


def _geometry(
    shape: Sequence[int], axes: Sequence[int], scales: np.ndarray | None, sizes: np.ndarray | None, policy: str
) -> list[tuple[int, float]]:
    """Output size and scale for each of ``axes``."""
    if sizes is None or sizes.size == 0:
        if scales is None:
            raise ValueError("expected scales or sizes, got neither")
        return [(scaled_size(shape[a], s), float(s)) for a, s in zip(axes, scales.reshape(-1), strict=True)]
    given = [(shape[a], int(m)) for a, m in zip(axes, sizes.reshape(-1), strict=True)]
    if policy == "stretch":
        return [(m, m / n if n else 1.0) for n, m in given]
    r = (min if policy == "not_larger" else max)((m / n for n, m in given if n), default=1.0)
    return [(math.floor(r * shape[a] + 0.5), r) for a in axes]


def _coordinates(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """The place in the input (size ``n``) of each of the ``m`` outputs."""
    x = np.arange(m, dtype=np.float64)
    width = scale * n
    if mode == "align_corners":
        return x * 0 if width == 1 else x * (n - 1) / (width - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if width == 1:
            return x * 0 + (end - start) * (n - 1) / 2 + start * (n - 1)
        return x * (end - start) * (n - 1) / (width - 1) + start * (n - 1)
    half = (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return x * 0 if width == 1 else half
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - m / width) + half
    if mode == "half_pixel":
        return half
    raise ValueError(f"expected a coordinate_transformation_mode of ONNX, got {mode!r}")


_NEAREST: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _taps(attrs: Attrs, x: np.ndarray, n: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Input places (not yet clamped) and their weights, both [outputs, taps]."""
    mode = attrs.get("mode", "nearest")
    if mode == "nearest":
        places = _NEAREST[attrs.get("nearest_mode", "round_prefer_floor")](x)[:, None]
        return places.astype(np.int64), np.ones(places.shape)
    shrink = min(scale, 1.0) if attrs.get("antialias") else 1.0
    base = np.floor(x)
    radius = 1 if mode == "linear" else 2
    start = math.floor(-radius / shrink) + 1
    offsets = np.arange(start, 2 - start) if shrink < 1 else np.arange(1 - radius, radius + 1)
    t = (offsets[None, :] - (x - base)[:, None]) * shrink
    weights = np.clip(1 - np.abs(t), 0, 1) if mode == "linear" else _cubic(t, attrs.get("cubic_coeff_a", -0.75))
    places = base[:, None].astype(np.int64) + offsets[None, :]
    if attrs.get("exclude_outside"):
        weights = np.where((places < 0) | (places >= n), 0.0, weights)
    total = weights.sum(axis=1, keepdims=True)
    return places, weights / np.where(total == 0, 1.0, total)


def _along(attrs: Attrs, data: np.ndarray, axis: int, m: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    n = data.shape[axis]
    transform = attrs.get("coordinate_transformation_mode", "half_pixel")
    x = _coordinates(transform, n, m, scale, roi)
    places, weights = _taps(attrs, x, n, scale)
    clamped = np.clip(places, 0, n - 1)
    moved = np.moveaxis(data, axis, -1)
    out = np.zeros((*moved.shape[:-1], m))
    for k in range(places.shape[1]):
        terms = moved[..., clamped[:, k]] * weights[:, k]
        out += np.where(weights[:, k] == 0, 0, terms) if attrs.get("antialias") else terms
    if transform == "tf_crop_and_resize":
        out[..., (x < 0) | (x > n - 1)] = attrs.get("extrapolation_value", 0.0)
    return np.moveaxis(out, -1, axis)


def _resize(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, roi, scales, sizes = (*inputs, None, None, None)[:4]
    axes = [a % x.ndim for a in attrs.get("axes") or range(x.ndim)]
    crop = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    wanted = _geometry(x.shape, axes, scales, sizes, attrs.get("keep_aspect_ratio_policy", "stretch"))
    out = x.astype(np.float64)
    for k, (a, (m, scale)) in enumerate(zip(axes, wanted, strict=True)):
        region = (float(roi[k]), float(roi[len(axes) + k])) if crop and roi is not None else (0.0, 1.0)
        if m != x.shape[a] or scale != 1.0 or region != (0.0, 1.0):
            out = _along(attrs, out, a, m, scale, region)
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        out = np.clip(np.rint(out), info.min, info.max)
    return [out.astype(x.dtype)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {"Resize": _resize}
