"""Winograd's minimal filtering algorithms for 3x3 kernels: the matrices, and how much rounding they cost.

``Y = A^T [(G g G^T) * (B^T d B)] A``: a tile of ``tile x tile`` outputs from a patch of ``(tile - 1) * stride + 3``
inputs a side, one product for each position of the patch instead of nine for each output. Sources: Winograd, Arithmetic
Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), whose
matrices those of stride 1 are.

With stride 2 the outputs are the sum of two filters of stride 1: the outer two weights over the inputs at even places,
and the middle one over those at odd places. The first is a minimal filter of two taps (at the points 0, 1, -1, 2 and
infinity for four outputs), the second one product per output: (5 + 4)^2 = 81 products for 16 outputs instead of 144, or
25 for 4 instead of 36.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Matrix = tuple[tuple[float, ...], ...]

_PATCHES = 8
_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Winograd:
    """One of them. ``tile``: outputs a side; ``stride``: inputs from output to output; ``g``, ``b_t``, ``a_t``: the
    matrices G, B^T and A^T."""

    tile: int
    stride: int
    g: Matrix
    b_t: Matrix
    a_t: Matrix

    @property
    def patch(self) -> int:
        """Inputs, and products, a side."""
        return (self.tile - 1) * self.stride + 3


WINOGRAD: dict[str, Winograd] = {
    "winograd2": Winograd(
        2,
        1,
        ((1.0, 0.0, 0.0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0.0, 0.0, 1.0)),
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    "winograd3": Winograd(
        3,
        1,
        (
            (1 / 2, 0.0, 0.0), (-1 / 2, -1 / 2, -1 / 2), (-1 / 6, 1 / 6, -1 / 6), (1 / 6, 1 / 3, 2 / 3),
            (0.0, 0.0, 1.0),
        ),
        ((2, -1, -2, 1, 0), (0, -2, -1, 1, 0), (0, 2, -3, 1, 0), (0, -1, 0, 1, 0), (0, 2, -1, -2, 1)),
        ((1, 1, 1, 1, 0), (0, 1, -1, 2, 0), (0, 1, 1, 4, 1)),
    ),
    "winograd4": Winograd(
        4,
        1,
        (
            (1 / 4, 0.0, 0.0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6), (0.0, 0.0, 1.0),
        ),
        (
            (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
    "winograd2_stride2": Winograd(
        2,
        2,
        ((1.0, 0.0, 0.0), (1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 1.0, 0.0)),
        ((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
        ((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
    ),
    "winograd4_stride2": Winograd(
        4,
        2,
        (
            (1 / 2, 0.0, 0.0), (-1 / 2, 0.0, -1 / 2), (-1 / 6, 0.0, 1 / 6), (1 / 6, 0.0, 1 / 3), (0.0, 0.0, 1.0),
            *((0.0, 1.0, 0.0),) * 4,
        ),
        (
            (2, 0, -1, 0, -2, 0, 1, 0, 0), (0, 0, -2, 0, -1, 0, 1, 0, 0), (0, 0, 2, 0, -3, 0, 1, 0, 0),
            (0, 0, -1, 0, 0, 0, 1, 0, 0), (0, 0, 2, 0, -1, 0, -2, 0, 1),
            (0, 1, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 1, 0, 0, 0),
            (0, 0, 0, 0, 0, 0, 0, 1, 0),
        ),
        (
            (1, 1, 1, 1, 0, 1, 0, 0, 0), (0, 1, -1, 2, 0, 0, 1, 0, 0), (0, 1, 1, 4, 0, 0, 0, 1, 0),
            (0, 1, -1, 8, 1, 0, 0, 0, 1),
        ),
    ),
}  # fmt: skip


def transformed_weight(w: np.ndarray, known: Winograd) -> np.ndarray:
    """``G g G^T`` for each of the kernels ``[oc, ic, 3, 3]``, as ``[patch, patch, ic, oc]`` in float64."""
    g = np.asarray(known.g, np.float64)
    oc, ic = w.shape[:2]
    flat = np.ascontiguousarray(w.reshape(oc, ic, 9).transpose(2, 1, 0), np.float64).reshape(9, -1)
    return np.asarray(np.kron(g, g) @ flat).reshape(known.patch, known.patch, ic, oc)  # one large product


def estimated_error(w: np.ndarray, known: Winograd) -> float:
    """The largest error of float32 results on random patches, in units of their channel's root mean square.

    ``w`` are the kernels ``[oc, ic, 3, 3]`` themselves, of which a sample of output channels is tried, on inputs of
    both signs and on inputs as they come out of a ReLU. Exact results are those of the definition in float64.
    """
    some = w[:: max(1, -(-w.shape[0] // _CHANNELS))]
    size = known.patch
    d = np.random.default_rng(0).standard_normal((_PATCHES, w.shape[1], size, size)).astype(np.float32)
    d[_PATCHES // 2 :] = np.maximum(d[_PATCHES // 2 :], 0)
    b, a = (np.asarray(x, np.float32) for x in (known.b_t, known.a_t))
    u = transformed_weight(some, known).astype(np.float32)
    v = b @ d @ b.T
    products = np.moveaxis(v, (2, 3), (0, 1)) @ u
    got = a @ np.moveaxis(products, (0, 1), (2, 3)) @ a.T
    windows = np.lib.stride_tricks.sliding_window_view(d.astype(np.float64), (3, 3), axis=(2, 3))
    windows = windows[:, :, :: known.stride, :: known.stride]
    want = np.einsum("tchwij,ocij->tohw", windows, some.astype(np.float64), optimize=True)
    scale = np.sqrt(np.mean(want * want, axis=(0, 2, 3), keepdims=True))
    error = np.abs(got - want) / np.where(scale == 0.0, 1.0, scale)
    return float(error.max(initial=0.0))
