"""Seeded random arrays to run models with."""

from __future__ import annotations

import numpy as np

from tilewright.core.dtypes import DType


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Floats normal, bytes over their range, other integers 0 or 1 (valid as ids and as masks), text one word."""
    if dtype.itemsize == 0:
        return np.full(shape, "text", dtype=object)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return rng.integers(0, 256 if dtype.name == "uint8" else 2, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)
