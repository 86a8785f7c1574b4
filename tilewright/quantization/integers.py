"""Weights as integers: symmetric, the zero point 0, rounded to the nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LARGEST = {"int8": 127, "int4": 7}
"""The largest magnitude of an element. The one more that the types have below 0 would make them asymmetric."""

_BIAS_ROOM = 2.0**30
"""How large a bias may be in units of its scale, so that an int32 holds its sum with the products."""


@dataclass(frozen=True, slots=True)
class IntegerWeight:
    """``w ~ q * scale`` with ``q`` of int8 (4 bits a byte each are still int8 here) in the shape of ``w``.

    ``scale``: float32; a scalar, or [channels] along ``axis``, or in blocks of ``block`` along it, with the shape of
    ``w`` but ceil(length / block) there.
    """

    q: np.ndarray
    scale: np.ndarray
    axis: int = 0
    block: int = 0

    @property
    def dequantized(self) -> np.ndarray:
        """The weight that the integers stand for, float32, as DequantizeLinear computes it."""
        return np.asarray(self.q * _spread(self.scale, self.q.shape, self.axis, self.block), np.float32)


def weight_scale(w: np.ndarray, axis: int | None, kind: str = "int8") -> np.ndarray:
    """One scale, or [channels] along ``axis``. Channels of zeros take the smallest scale of others, a weight of zeros
    only takes 1."""
    others = None if axis is None else tuple(k for k in range(w.ndim) if k != axis)
    return _scale_for(np.abs(w).max(axis=others), kind)


def block_scale(w: np.ndarray, axis: int, block: int, kind: str) -> np.ndarray:
    """A scale for each ``block`` elements along ``axis``, the last block as long as what is left."""
    starts = np.arange(0, w.shape[axis], block)
    return _scale_for(np.maximum.reduceat(np.abs(w), starts, axis=axis), kind)


def _scale_for(largest: np.ndarray, kind: str) -> np.ndarray:
    scale = np.asarray(largest / np.float32(LARGEST[kind]), np.float32)
    used = scale[scale >= np.finfo(np.float32).tiny]
    least = used.min() if used.size else np.float32(1)
    return np.asarray(np.where(scale >= np.finfo(np.float32).tiny, scale, least), np.float32)


def with_bias_room(scale: np.ndarray, bias: np.ndarray, x_scale: np.float32) -> np.ndarray:
    """Scales at least so large that ``bias`` is an int32 in units of ``scale * x_scale``."""
    least = np.abs(bias) / (np.float64(x_scale) * _BIAS_ROOM)
    least = np.asarray(least if scale.ndim else least.max(initial=0.0), np.float32)
    return np.asarray(np.maximum(scale, least), np.float32)


def rounded_weight(
    w: np.ndarray, scale: np.ndarray, axis: int = 0, block: int = 0, kind: str = "int8"
) -> IntegerWeight:
    """``w`` at these scales, to the nearest integer, half to even."""
    most = LARGEST[kind]
    q = np.clip(np.rint(w / _spread(scale, w.shape, axis, block)), -most, most).astype(np.int8)
    return IntegerWeight(q, scale, axis, block)


def rounded_bias(bias: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int32 in units of ``scale`` (a scalar or [channels])."""
    q = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    return np.clip(q, -(2.0**31), 2.0**31 - 1).astype(np.int32)


def _spread(scale: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Scales in a shape that broadcasts with the weight's."""
    if block:
        return np.repeat(scale, block, axis=axis).take(np.arange(shape[axis]), axis=axis)
    return scale.reshape([-1 if k == axis else 1 for k in range(len(shape))]) if scale.ndim else scale
