"""Winograd's minimal filtering algorithms for 3x3 kernels: the matrices, and how much rounding they cost.

``Y = A^T [(G g G^T) * (B^T d B)] A``: a tile of ``tile x tile`` outputs from a patch of ``(tile - 1) * stride + 3``
inputs a side, one product for each position of the patch instead of nine for each output. Sources: Winograd, Arithmetic
Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), whose
matrices those of stride 1 are. B^T and A^T are given as passes over a patch, which have the fewest operations.

With stride 2 the outputs are the sum of two filters of stride 1: the outer two weights over the inputs at even places,
and the middle one over those at odd places. The first is a minimal filter of two taps (at the points 0, 1, -1, 2 and
infinity for four outputs), the second one product per output: (5 + 4)^2 = 81 products for 16 outputs instead of 144, or
25 for 4 instead of 36.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Matrix = tuple[tuple[float, ...], ...]

Pass = Callable[[Sequence[Any]], list[Any]]
"""A linear map of what can be added and multiplied by integers: values of formulas, or rows of a matrix."""

_PATCHES = 8
_CHANNELS = 16
_SHORT = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Winograd:
    """One of them. ``tile``: outputs a side; ``stride``: inputs from output to output; ``g``: the matrix G; ``before``,
    ``after``: multiply by B^T and A^T; ``whole``: for each row of G a factor that makes it whole numbers."""

    tile: int
    stride: int
    g: Matrix
    before: Pass
    after: Pass
    whole: tuple[int, ...]

    @property
    def patch(self) -> int:
        """Inputs, and products, a side."""
        return (self.tile - 1) * self.stride + 3

    @property
    def b_t(self) -> np.ndarray:
        """B^T, float64."""
        return np.stack(self.before(list(np.eye(self.patch))))

    @property
    def a_t(self) -> np.ndarray:
        """A^T, float64."""
        return np.stack(self.after(list(np.eye(self.patch))))

    @property
    def whole_g(self) -> np.ndarray:
        """G with rows of whole numbers, int64."""
        return np.asarray(np.rint(np.asarray(self.g) * np.asarray(self.whole)[:, None]), np.int64)

    @property
    def scale(self) -> int:
        """How often a result of :meth:`whole_after` is that of ``after``, a side."""
        return math.lcm(*self.whole)

    @property
    def places(self) -> int:
        """How many bits of a sum of whole numbers the power of two in ``scale`` squared takes."""
        return (self.scale**2 & -(self.scale**2)).bit_length() - 1

    @property
    def inverse(self) -> int:
        """What undoes the odd factor of ``scale`` squared modulo 2^32, as an int32."""
        unsigned = pow(self.scale**2 >> self.places, -1, 1 << 32)
        return int(np.array(unsigned, np.uint32).view(np.int32))

    def whole_after(self, m: Sequence[Any]) -> list[Any]:
        """``scale`` times A^T times the products of whole numbers."""
        shares = [self.scale // factor for factor in self.whole]
        return self.after([v if share == 1 else v * share for v, share in zip(m, shares, strict=True)])


def _before_2(d: Sequence[Any]) -> list[Any]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _after_2(m: Sequence[Any]) -> list[Any]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _before_3(d: Sequence[Any]) -> list[Any]:
    far, near = d[3] - d[1], d[3] - d[2]
    return [far + (d[0] - d[2]) * 2, near - d[1] * 2, near - (d[2] - d[1]) * 2, far, d[4] - d[2] - far * 2]


def _after_3(m: Sequence[Any]) -> list[Any]:
    total, difference = m[1] + m[2], m[1] - m[2]
    return [m[0] + total + m[3], difference + m[3] * 2, total + m[3] * 4 + m[4]]


def _before_4(d: Sequence[Any]) -> list[Any]:
    even, odd = d[4] - d[2] * 4, d[3] - d[1] * 4
    near, far = d[4] - d[2], d[3] - d[1]
    return [
        d[4] - d[2] * 5 + d[0] * 4, even + odd, even - odd, near + far * 2, near - far * 2, d[5] - d[3] * 5 + d[1] * 4,
    ]  # fmt: skip


def _after_4(m: Sequence[Any]) -> list[Any]:
    sum1, sum2, diff1, diff2 = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [m[0] + sum1 + sum2, diff1 + diff2 * 2, sum1 + sum2 * 4, m[5] + diff1 + diff2 * 8]


def _before_2_stride_2(d: Sequence[Any]) -> list[Any]:
    return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]


def _after_2_stride_2(m: Sequence[Any]) -> list[Any]:
    return [m[0] + m[1] + m[3], m[1] + m[2] + m[4]]


def _before_4_stride_2(d: Sequence[Any]) -> list[Any]:
    return [*_before_3(d[0::2]), *d[1::2]]


def _after_4_stride_2(m: Sequence[Any]) -> list[Any]:
    total, difference = m[1] + m[2], m[1] - m[2]
    return [
        m[0] + total + m[3] + m[5], difference + m[3] * 2 + m[6], total + m[3] * 4 + m[7],
        difference + m[3] * 8 + m[4] + m[8],
    ]  # fmt: skip


WINOGRAD: dict[str, Winograd] = {
    "winograd2": Winograd(
        2, 1, ((1.0, 0.0, 0.0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0.0, 0.0, 1.0)), _before_2, _after_2,
        (2, 2, 2, 2),
    ),
    "winograd3": Winograd(
        3,
        1,
        (
            (1 / 2, 0.0, 0.0), (-1 / 2, -1 / 2, -1 / 2), (-1 / 6, 1 / 6, -1 / 6), (1 / 6, 1 / 3, 2 / 3),
            (0.0, 0.0, 1.0),
        ),
        _before_3,
        _after_3,
        (6, 6, 6, 6, 6),
    ),
    "winograd4": Winograd(
        4,
        1,
        (
            (1 / 4, 0.0, 0.0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6), (0.0, 0.0, 1.0),
        ),
        _before_4,
        _after_4,
        (24, 24, 24, 24, 24, 12),
    ),
    "winograd2_stride2": Winograd(
        2,
        2,
        ((1.0, 0.0, 0.0), (1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 1.0, 0.0)),
        _before_2_stride_2,
        _after_2_stride_2,
        (1, 1, 1, 1, 1),
    ),
    "winograd4_stride2": Winograd(
        4,
        2,
        (
            (1 / 2, 0.0, 0.0), (-1 / 2, 0.0, -1 / 2), (-1 / 6, 0.0, 1 / 6), (1 / 6, 0.0, 1 / 3), (0.0, 0.0, 1.0),
            *((0.0, 1.0, 0.0),) * 4,
        ),
        _before_4_stride_2,
        _after_4_stride_2,
        (6,) * 9,
    ),
}  # fmt: skip


def transformed_weight(w: np.ndarray, known: Winograd, whole: bool = False) -> np.ndarray:
    """``G g G^T`` for each of the kernels ``[oc, ic, 3, 3]``, as ``[patch, patch, ic, oc]`` in float64. ``whole``: of
    the matrix of whole numbers."""
    g = np.asarray(known.whole_g if whole else known.g, np.float64)
    oc, ic = w.shape[:2]
    flat = np.ascontiguousarray(w.reshape(oc, ic, 9).transpose(2, 1, 0), np.float64).reshape(9, -1)
    return np.asarray(np.kron(g, g) @ flat).reshape(known.patch, known.patch, ic, oc)  # one large product


@dataclass(frozen=True, slots=True)
class WholeKernels:
    """What is to be known of kernels of integers: the ``largest`` of them, and for each output channel the sums of
    those above and below 0, int64 ``[oc]``."""

    largest: int
    up: np.ndarray
    down: np.ndarray

    @staticmethod
    def of(w: np.ndarray) -> WholeKernels:
        """Of the kernels ``[oc, ic, 3, 3]``."""
        up = np.maximum(w, 0).sum((1, 2, 3), dtype=np.int64)
        largest = max(-int(w.min(initial=0)), int(w.max(initial=0)))
        return WholeKernels(largest, up, w.sum((1, 2, 3), dtype=np.int64) - up)

    def middles(self, known: Winograd, low: int, high: int) -> np.ndarray | str:
        """The middle of the sums of each output channel in whole numbers, int32 ``[oc]``, all of them 0 where sums
        around 0 are told apart anyway; or why they cannot be computed so. ``low``, ``high``: the least and the greatest
        element of a patch."""
        largest = int(np.abs(known.whole_g).sum(1).max()) ** 2 * self.largest
        if largest > _SHORT:
            return f"transformed weights of up to {largest}, an int16 holds {_SHORT}"
        least, most = self.up * low + self.down * high, self.up * high + self.down * low
        apart, room = int((most - least).max(initial=0)), 1 << (32 - known.places)
        if apart >= room:
            return f"sums that lie up to {apart} apart, expected less than {room}"
        found = np.where(np.maximum(most, -least) < room // 2, 0, (most + least + 1) // 2)
        return found.astype(np.int32)


def rounded(x: np.ndarray) -> np.ndarray:
    """``x`` in bfloat16."""
    with np.errstate(over="ignore"):
        return x.astype(ml_dtypes.bfloat16)


def estimated_error(w: np.ndarray, known: Winograd, reduced: bool = False) -> float:
    """The largest error of float32 results on random patches, in units of their channel's root mean square.
    ``reduced``: what is multiplied is rounded to bfloat16, and so are weight and patches to begin with.

    ``w`` are the kernels ``[oc, ic, 3, 3]`` themselves, of which a sample of output channels is tried, on inputs of
    both signs and on inputs as they come out of a ReLU. Exact results are those of the definition in float64.
    """
    some = w[:: max(1, -(-w.shape[0] // _CHANNELS))]
    size = known.patch
    d = np.random.default_rng(0).standard_normal((_PATCHES, w.shape[1], size, size)).astype(np.float32)
    d[_PATCHES // 2 :] = np.maximum(d[_PATCHES // 2 :], 0)
    narrow: Callable[[np.ndarray], np.ndarray] = rounded if reduced else lambda x: x
    some, d = narrow(some).astype(np.float32), narrow(d).astype(np.float32)
    b, a = (np.asarray(x, np.float32) for x in (known.b_t, known.a_t))
    u = narrow(transformed_weight(some, known)).astype(np.float32)
    v = narrow(b @ d @ b.T).astype(np.float32)
    products = np.moveaxis(v, (2, 3), (0, 1)) @ u
    got = a @ np.moveaxis(products, (0, 1), (2, 3)) @ a.T
    windows = np.lib.stride_tricks.sliding_window_view(d.astype(np.float64), (3, 3), axis=(2, 3))
    windows = windows[:, :, :: known.stride, :: known.stride]
    want = np.einsum("tchwij,ocij->tohw", windows, some.astype(np.float64), optimize=True)
    scale = np.sqrt(np.mean(want * want, axis=(0, 2, 3), keepdims=True))
    error = np.abs(got - want) / np.where(scale == 0.0, 1.0, scale)
    return float(error.max(initial=0.0))
