"""Distributions of a tensor's elements, gathered sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import ModelError

BINS = 2048


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest element, with 0 between them."""

    low: float
    high: float

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts`` [2048]: elements in equal parts of ``range``."""

    range: Range
    counts: np.ndarray

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin, float64."""
        edges = np.linspace(self.range.low, self.range.high, BINS + 1)
        return np.asarray((edges[:-1] + edges[1:]) / 2)


def range_of(name: str, values: np.ndarray) -> Range:
    """Raises ModelError for a tensor with NaN or infinity."""
    if values.size == 0:
        return Range(0.0, 0.0)
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ModelError(f"activation {name!r}: expected finite numbers on the calibration data, "
                         f"got values from {low} to {high}")  # fmt: skip
    return Range(min(low, 0.0), max(high, 0.0))


def collect_ranges(runs: Iterable[Mapping[str, np.ndarray]]) -> dict[str, Range]:
    """The range of each tensor over all samples. Raises ModelError for NaN and infinity."""
    out: dict[str, Range] = {}
    for values in runs:
        for name, array in values.items():
            found = range_of(name, array)
            out[name] = out[name] | found if name in out else found
    return out


def collect_histograms(runs: Iterable[Mapping[str, np.ndarray]], ranges: Mapping[str, Range]) -> dict[str, Histogram]:
    """The histogram of each tensor over ``ranges``, which the same samples gave."""
    counts = {n: np.zeros(BINS, np.int64) for n in ranges}
    for values in runs:
        for name, array in values.items():
            r = ranges[name]
            width = (r.high - r.low) / BINS
            if width > 0:
                at = ((array.ravel() - np.float32(r.low)) * np.float32(1 / width)).astype(np.int32)
                counts[name] += np.bincount(np.clip(at, 0, BINS - 1), minlength=BINS)
            else:
                counts[name][0] += array.size
    return {n: Histogram(ranges[n], c) for n, c in counts.items()}
