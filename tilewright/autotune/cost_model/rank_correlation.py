"""Spearman's rank correlation: whether a model orders candidates as the machine does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rank_correlation(scores: Sequence[float] | np.ndarray, seconds: Sequence[float] | np.ndarray) -> float | None:
    """Spearman's correlation of scores (higher for faster) with speed, -1 to 1; None if too few differ."""
    a, b = np.asarray(scores, np.float64), -np.asarray(seconds, np.float64)
    keep = np.isfinite(a) & np.isfinite(b)
    if keep.sum() < 3:
        return None
    x, y = _ranks(a[keep]), _ranks(b[keep])
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum() / norm) if norm > 0 else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2.0)[inverse]
