"""GridSample over any number of axes; onnx.reference goes element by element, with coordinates in float32 always."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]
_CUBIC = -0.75


def _ends(size: int, corners: bool) -> tuple[float, float]:
    """Where reflection turns back."""
    return (0.0, size - 1.0) if corners else (-0.5, size - 0.5)


def _reflect(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """``x`` mirrored at both ends until it lies between them."""
    period = 2 * (high - low)
    if period == 0:
        return np.full(x.shape, low, x.dtype)
    u = np.mod(x - x.dtype.type(low), x.dtype.type(period))
    mirrored: np.ndarray = np.minimum(u, period - u) + low
    return mirrored.astype(x.dtype)


def _coordinate(v: np.ndarray, size: int, nearest: bool, padding: str, corners: bool) -> np.ndarray:
    """Places along an axis of ``size`` elements from numbers between -1 and 1, in their type."""
    x = (v + 1) / 2 * (size - 1) if corners else ((v + 1) * size - 1) / 2
    x = np.rint(x) if nearest else x
    low, high = _ends(size, corners)
    outside = (x < low) | (x > high)
    if padding == "border":
        x = np.where(outside, np.clip(x, 0, size - 1), x)
    elif padding == "reflection":
        x = np.where(outside, _reflect(x, low, high), x)
    return x.astype(v.dtype)


def _read(image: np.ndarray, spots: Sequence[np.ndarray], padding: str, corners: bool) -> np.ndarray:
    """``image`` (channels, sizes) at whole places of any shape, given as floats; NaN is no place, or the first one."""
    inside = np.ones(spots[0].shape, bool)
    at = []
    for spot, size in zip(spots, image.shape[1:], strict=True):
        if padding == "zeros":
            inside &= (spot >= 0) & (spot <= size - 1)
        elif padding == "reflection":
            spot = _reflect(spot, *_ends(size, corners))
        at.append(np.clip(np.nan_to_num(spot), 0, size - 1).astype(np.int64))
    return np.where(inside, image[(slice(None), *at)], image.dtype.type(0))


def _weight(mode: str, ratio: np.ndarray, tap: int) -> np.ndarray:
    if mode == "linear":
        return ratio if tap else 1 - ratio
    d, a = np.abs(ratio - tap), _CUBIC
    near: np.ndarray = ((a + 2) * d - (a + 3)) * d * d + 1
    far: np.ndarray = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return near if tap in (0, 1) else far


def _grid_sample(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, grid = inputs
    mode = attrs.get("mode", "linear").removeprefix("bi")
    padding, corners = attrs.get("padding_mode", "zeros"), bool(attrs.get("align_corners", 0))
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    if out.size == 0:
        return [out]
    for image, numbers, y in zip(x, grid, out, strict=True):
        here = [
            _coordinate(numbers[..., -1 - d], size, mode == "nearest", padding, corners)
            for d, size in enumerate(x.shape[2:])
        ]
        if mode == "nearest":
            y[:] = _read(image, here, padding, corners)
            continue
        bases = [np.floor(v) for v in here]
        for taps in itertools.product(range(2) if mode == "linear" else range(-1, 3), repeat=len(here)):
            v = _read(image, [b + t for b, t in zip(bases, taps, strict=True)], padding, corners)
            for b, at, t in zip(bases, here, taps, strict=True):
                v = v * _weight(mode, at - b, t).astype(x.dtype)
            y += v
    return [out]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {"GridSample": _grid_sample}
