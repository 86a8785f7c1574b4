"""How a dimension is resized at sizes known when the model is built: positions and weights as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.tensor_ir.compute import Val


@dataclass(frozen=True, slots=True)
class Spec:
    """How one dimension is resized. ``roi``: its part of the region of interest (start, end), numbers or loaded.
    ``loaded``: the scale that only the run knows. ``real``: the type of weights and sums."""

    mode: str
    transform: str
    nearest: str
    antialias: bool
    exclude_outside: bool
    cubic: float
    scale: float | None
    real: DType
    roi: tuple[float | Val, float | Val] = (0.0, 1.0)
    loaded: Val | None = None

    @property
    def is_filter(self) -> bool:
        """Whether the weights are those of an antialiasing filter."""
        return self.antialias and self.mode != "nearest"


def _coordinates(s: Spec, n: int, m: int, scale: float) -> np.ndarray:
    """Where each of ``m`` outputs lies among ``n`` inputs."""
    i = np.arange(m, dtype=np.float64)
    width = scale * n
    if s.transform == "align_corners":
        return np.zeros(m) if width == 1 else i * (n - 1) / (width - 1)
    if s.transform == "asymmetric":
        return i / scale
    if s.transform == "tf_crop_and_resize":
        a, b = s.roi
        if isinstance(a, Val) or isinstance(b, Val):
            raise TypeError("a loaded region has no table")
        if width == 1:
            return np.full(m, 0.5 * (a + b) * (n - 1))
        return i * (b - a) * (n - 1) / (width - 1) + a * (n - 1)
    x = (i + 0.5) / scale - 0.5
    if s.transform == "pytorch_half_pixel":
        return np.zeros(m) if width == 1 else x
    if s.transform == "half_pixel_symmetric":
        return (n / 2) * (1 - m / width) + x
    return x


def _nearest_weights(rule: str, ratio: np.ndarray) -> np.ndarray:
    left = {
        "round_prefer_floor": ratio <= 0.5, "round_prefer_ceil": ratio < 0.5, "floor": ratio < 1,
        "ceil": np.zeros(ratio.shape, np.bool_),
    }[rule]  # fmt: skip
    return np.stack([left, ~left], axis=1).astype(np.float64)


def _cubic_kernel(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    with np.errstate(all="ignore"):  # the coefficient is the file's: any number
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        return np.where(x <= 1, near, np.where(x < 2, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a, 0.0))


def reach(s: Spec, scale: float) -> tuple[int, float]:
    """Taps to each side of a coordinate, and by how much narrower than the output's steps the filter is."""
    shrink = min(scale, 1.0) if s.antialias and s.mode != "nearest" else 1.0
    return math.ceil((2 if s.mode == "cubic" else 1) / shrink), shrink


def _weights(s: Spec, ratio: np.ndarray, scale: float) -> np.ndarray:
    """The weights [outputs, taps] around coordinates, ``ratio`` in (0, 1] behind the tap at the middle's left."""
    if s.mode == "nearest":
        return _nearest_weights(s.nearest, ratio)
    side, shrink = reach(s, scale)
    offsets = (np.arange(1 - side, 1 + side) - ratio[:, None]) * shrink
    w = np.clip(1 - np.abs(offsets), 0, 1) if s.mode == "linear" else _cubic_kernel(offsets, s.cubic)
    total: np.ndarray = w / w.sum(axis=1, keepdims=True) if s.antialias else w
    return total


def tap_tables(s: Spec, n: int, m: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions int64 [m, taps], weights [m, taps], and whether each output lies inside the region."""
    x = _coordinates(s, n, m, scale)
    base = np.ceil(x) - 1
    weights = _weights(s, x - base, scale)
    taps = weights.shape[1]
    at = np.arange(taps) + base[:, None] - (taps // 2 - 1)
    if s.exclude_outside:
        weights = np.where((at < 0) | (at >= n), 0.0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(at, 0, n - 1).astype(np.int64), weights.astype(s.real.numpy), (x >= 0) & (x <= n - 1)
