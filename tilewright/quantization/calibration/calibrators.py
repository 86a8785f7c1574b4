"""From a tensor's distribution to the range that its 256 levels cover; what is outside saturates.

``minmax`` covers all elements. ``percentile`` leaves out equally many at both ends. ``entropy`` and ``mse`` try ranges
that are cut at a threshold of the magnitude: the one loses least information (Migacz, 8-bit inference with TensorRT,
GTC 2017), the other has the least mean square error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.quantization.calibration.histogram import BINS, Histogram, Range
from tilewright.quantization.options import Calibrator

LEVELS = 256
_STEP = 8
"""Bins between two thresholds that are tried."""
_RARE = 1e-9
"""Stands for a probability of 0 where the other distribution has more."""


@dataclass(frozen=True, slots=True)
class Scale:
    """``x ~ (q - zero) * scale`` for ``q`` of uint8."""

    scale: np.float32
    zero: int

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """``x`` quantized and dequantized, in the type of ``x``."""
        q = np.clip(np.rint(x / self.scale) + self.zero, 0, LEVELS - 1)
        return np.asarray((q - self.zero) * self.scale, x.dtype)


def scale_of(r: Range) -> Scale:
    """Asymmetric, with 0 exact. The scale of a tensor of zeros is 1."""
    scale = np.float32((r.high - r.low) / (LEVELS - 1))
    if scale < np.finfo(np.float32).tiny:
        return Scale(np.float32(1), 0)
    return Scale(scale, int(np.clip(np.rint(-r.low / float(scale)), 0, LEVELS - 1)))


def choose_range(h: Histogram, calibrator: Calibrator, percentile: float) -> Range:
    """The range of a distribution by a calibrator; never wider than all elements."""
    if calibrator == "minmax" or h.range.low == h.range.high or not h.counts.any():
        return h.range
    if calibrator == "percentile":
        return _percentile(h, percentile)
    if calibrator == "entropy":
        smooth = _without_zeros(h)
        return min(_cut(h), key=lambda r: _divergence(smooth, r))
    if calibrator == "mse":
        return min(_cut(h), key=lambda r: _mean_square(h, r))
    raise InternalError(f"no calibrator {calibrator}")


def _percentile(h: Histogram, percent: float) -> Range:
    """Linear inside of a bin."""
    share = np.concatenate(([0.0], np.cumsum(h.counts) / h.counts.sum()))
    edges = np.linspace(h.range.low, h.range.high, BINS + 1)
    tail = (100.0 - percent) / 200.0
    return Range(min(_quantile(edges, share, tail), 0.0), max(_quantile(edges, share, 1.0 - tail), 0.0))


def _quantile(edges: np.ndarray, share: np.ndarray, at: float) -> float:
    k = int(np.clip(np.searchsorted(share, at, "left"), 1, BINS))
    inside = share[k] - share[k - 1]
    part = (at - share[k - 1]) / inside if inside > 0 else 0.0
    return float(edges[k - 1] + np.clip(part, 0.0, 1.0) * (edges[k] - edges[k - 1]))


def _cut(h: Histogram) -> Iterator[Range]:
    """The whole range, then ranges of less and less magnitude, down to one bin a level."""
    low, high = h.range.low, h.range.high
    width = (high - low) / BINS
    yield h.range
    threshold = max(-low, high) - _STEP * width
    while threshold > 0:
        cut = Range(max(low, -threshold), min(high, threshold))
        if cut.high - cut.low < LEVELS * width:
            return
        yield cut
        threshold -= _STEP * width


def _without_zeros(h: Histogram) -> Histogram:
    """The distribution with as much around 0 as beside it: zeros, as a Relu makes them, are exact at every scale."""
    k = int(np.argmin(np.abs(h.centres)))
    counts = h.counts.copy()
    counts[k] = min(counts[k], *(counts[j] for j in (k - 1, k + 1) if 0 <= j < BINS))
    return Histogram(h.range, counts)


def _divergence(h: Histogram, r: Range) -> float:
    """The Kullback-Leibler divergence of what saturation leaves from what 256 levels tell of it."""
    centres = h.centres
    first, last = np.searchsorted(centres, r.low), np.searchsorted(centres, r.high)
    inside = h.counts[first:last].astype(np.float64)
    p = inside.copy()
    p[0] += h.counts[:first].sum()
    p[-1] += h.counts[last:].sum()
    level = (np.arange(len(p)) * LEVELS) // len(p)
    seen = p > 0
    bins = np.bincount(level[seen], minlength=LEVELS)
    q = np.where(seen, np.bincount(level, inside, LEVELS)[level] / np.maximum(bins[level], 1), 0.0)
    p /= p.sum()
    q = np.maximum(q / max(q.sum(), 1.0), _RARE)
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


def _mean_square(h: Histogram, r: Range) -> float:
    centres = h.centres
    difference = scale_of(r).rounded(centres) - centres
    return float((h.counts * difference * difference).sum())
