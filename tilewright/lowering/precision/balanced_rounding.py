"""Weights rounded to bfloat16 so that their errors cancel in sums.

What a convolution multiplies mostly has a mean that is not zero (ReLU and its kin), and neighbouring pixels are alike.
So the error of a result is not only ``sum(e^2)`` of the errors ``e`` of its weights, times the variance of what they
multiply, but ``sum(e)^2`` times the square of its mean besides, over the taps of a channel and over a whole filter.
Each weight stays one of the two numbers next to it; of those nearly halfway between, as many take the other one as
lower that. Nothing needs data. Source: Guo et al., SQuant: On-the-Fly Data-Free Quantization via Diagonal Hessian
Approximation (ICLR 2022), for integers.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.core import dtypes
from tilewright.core.io.stored import cast_elements
from tilewright.graph_ir.ir import Constant

_MEAN = 0.5
"""The square of the mean of what is multiplied, of its variance: 0.47 of the positive half of a normal distribution."""

_AT_ONCE = 1 << 16
"""Weights of a turn, so that what it makes of them stays small."""

_FEWEST = 16
"""Weights of a filter that may, and four times the square root of their number besides."""

_TURNS = 2
"""Taps of a channel that may take the other number: more seldom pay."""


def rounded_weight(op: str, weight: Constant) -> Constant:
    """The weight of a product of operator ``op`` in bfloat16: of a convolution so that errors cancel."""
    return Constant(balanced(weight.array)) if op == "Conv" else weight.converted(dtypes.bfloat16.numpy)


def balanced(w: np.ndarray) -> np.ndarray:
    """The kernels ``[oc, ic, taps...]`` of float32 in bfloat16."""
    v = np.ascontiguousarray(w).reshape(*w.shape[:2], math.prod(w.shape[2:]))
    out = np.empty(v.shape, dtypes.bfloat16.numpy)
    if not out.size:
        return out.reshape(w.shape)
    filters = max(1, _AT_ONCE // v[0].size)
    for first in range(0, len(v), filters):
        out[first : first + filters] = _balanced(v[first : first + filters])
    return out.reshape(w.shape)


def _balanced(v: np.ndarray) -> np.ndarray:
    nearest = cast_elements(v, dtypes.bfloat16.numpy)
    bits = nearest.view(np.uint16)
    with np.errstate(invalid="ignore"):
        own = nearest.astype(np.float32) - v
        beside = np.where((own < 0) == (v > 0), bits + np.uint16(1), bits - np.uint16(1)).view(nearest.dtype)
        moved = beside.astype(np.float32) - nearest.astype(np.float32)
    stays = ~(np.isfinite(own) & np.isfinite(moved))
    own[stays] = 0.0
    moved[stays | (own == 0) | (np.abs(v) < np.finfo(np.float32).tiny)] = 0.0
    takes = np.zeros(v.shape, bool)
    if v.shape[2] > 1:
        _balance_taps(*(x.reshape(-1, v.shape[2]) for x in (own, moved, takes)))
    _balance_filters(*(x.reshape(len(v), -1) for x in (own, moved, takes)))
    out: np.ndarray = np.where(takes, beside, nearest)
    return out


def _balance_taps(own: np.ndarray, moved: np.ndarray, takes: np.ndarray) -> None:
    """Let taps of a channel take the number beside while that lowers the error. ``own[channel, tap]``: the errors;
    ``moved``: what they become more by it, 0 where there is none to take."""
    channels, errors, change = np.arange(len(own)), own.T.copy(), moved.T.copy()  # along taps, many at a time
    for _ in range(_TURNS):
        total = errors.sum(0)
        lowers = change * (2 * errors + change + _MEAN * (2 * total + change))  # of sum(e^2) + _MEAN sum(e)^2
        best = lowers.argmin(0)
        (pays,) = np.nonzero(lowers.min(0) < 0)
        channels, best, errors, change = channels[pays], best[pays], errors[:, pays], change[:, pays]
        each = np.arange(len(channels))
        errors[best, each] += change[best, each]
        change[best, each] = 0.0  # once taken, it stays
        takes[channels, best] = True


def _balance_filters(own: np.ndarray, moved: np.ndarray, takes: np.ndarray) -> None:
    """Likewise over whole filters, ``own[filter, weight]``, those with the least loss first."""
    total = np.where(takes, own + moved, own).sum(1, keepdims=True)
    amount = np.abs(moved)
    loss = (2 * own + moved) * np.sign(moved)
    loss[takes | (moved * total >= 0)] = np.inf
    count = min(own.shape[1], _FEWEST + 4 * math.isqrt(own.shape[1]))
    order = loss.argpartition(count - 1, 1)[:, :count]
    order = np.take_along_axis(order, np.take_along_axis(loss, order, 1).argsort(1), 1)
    amounts, losses = (np.take_along_axis(x, order, 1) for x in (amount, loss))
    left = np.abs(total) - np.cumsum(amounts, 1) + amounts / 2
    pays = np.logical_and.accumulate(losses < 2 * _MEAN * left, 1)
    np.put_along_axis(takes, order, np.take_along_axis(takes, order, 1) | pays, 1)
