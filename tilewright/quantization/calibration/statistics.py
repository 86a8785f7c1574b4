"""Statistics of layers' operands channel by channel, gathered sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Channels:
    """``mean`` and ``largest`` magnitude of each channel, float64 [channels]."""

    mean: np.ndarray
    largest: np.ndarray


def collect_channels(runs: Iterable[Mapping[str, np.ndarray]], axes: Mapping[str, int]) -> dict[str, Channels]:
    """Statistics of each tensor of ``axes``, name to axis of channels."""
    sums: dict[str, np.ndarray] = {}
    largest: dict[str, np.ndarray] = {}
    counts = dict.fromkeys(axes, 0)
    for values in runs:
        for name, axis in axes.items():
            rows = np.moveaxis(values[name], axis, -1).reshape(-1, values[name].shape[axis])
            total, most = rows.sum(0, dtype=np.float64), np.abs(rows).max(0, initial=0.0).astype(np.float64)
            sums[name] = sums[name] + total if name in sums else total
            largest[name] = np.maximum(largest[name], most) if name in largest else most
            counts[name] += len(rows)
    return {n: Channels(sums[n] / max(counts[n], 1), largest[n]) for n in sums}


def collect_hessians(runs: Iterable[Mapping[str, np.ndarray]], names: Iterable[str]) -> dict[str, np.ndarray]:
    """``2 X^T X`` of each tensor seen as rows [n, channels], float32 [channels, channels]: the Hessian of a product's
    square error, which is the same for each column of its weight."""
    out: dict[str, np.ndarray] = {}
    wanted = set(names)
    for values in runs:
        for name in wanted:
            rows = values[name].reshape(-1, values[name].shape[-1])
            found = 2.0 * (rows.T @ rows)
            out[name] = out[name] + found if name in out else found
    return out
