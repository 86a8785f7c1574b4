"""Random contents of tensors, by element type: ordinary numbers, and now and then what breaks things."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes

WORDS = np.array(["", "a", "Abc", "tile", "x y", "7"], object)


def random_array(
    rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], kind: str = "any", wild: str = ""
) -> np.ndarray:
    """An array of random elements.

    ``kind``: ``any``; ``finite`` (never wild); ``positive`` (floats in [0.2, 3]); ``unit`` (floats in [-1, 1]);
    ``small`` (integers in [0, 5)). ``wild``: as a draft's, for ``any`` alone; extreme integers come in it too.
    """
    t = dtypes.from_numpy(dtype)
    if t.kind == "s":
        return np.asarray(WORDS[rng.integers(0, len(WORDS), shape)], object)
    if t.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if t.is_integer:
        return _integers(rng, t, shape, kind, wild)
    return _floats(rng, dtype, shape, kind, wild)


def _integers(rng: np.random.Generator, t: dtypes.DType, shape: tuple[int, ...], kind: str, wild: str) -> np.ndarray:
    low, high = (0, 2**t.bits - 1) if t.kind == "u" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)
    if kind == "small":
        return np.asarray(rng.integers(0, min(5, high + 1), shape)).astype(t.numpy)
    if kind == "positive":
        return np.asarray(rng.integers(1, min(9, high + 1), shape)).astype(t.numpy)
    few = np.asarray(rng.integers(max(low, -9), min(high, 12) + 1, shape)).astype(t.numpy)
    if kind == "any" and (wild or rng.random() < 0.2):
        edges = np.array([low, low + 1, high - 1, high, high // 2 + 1], object)[rng.integers(0, 5, shape)]
        return np.asarray(np.where(rng.random(shape) < 0.3, np.asarray(edges).astype(t.numpy), few), t.numpy)
    return few


def _floats(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], kind: str, wild: str) -> np.ndarray:
    if kind == "positive":
        x = rng.uniform(0.2, 3, shape)
    elif kind == "unit":
        x = rng.uniform(-1, 1, shape)
    elif rng.random() < 0.15:
        x = np.round(rng.standard_normal(shape) * 2)  # ties, zeros, halves that round
        x = x / 2 if rng.random() < 0.5 else x
    else:
        x = rng.standard_normal(shape) * float(rng.choice([0.1, 1, 1, 1, 4]))
    if wild and kind == "any" and rng.random() < 0.6:
        info = np.finfo(dtype) if dtype in (np.float16, np.float32, np.float64) else None
        top, tiny = (float(info.max), float(info.smallest_subnormal)) if info else (64.0, 2.0**-6)
        odd = np.array([top, -top, top / 3, tiny, tiny * 5] if wild == "huge" else [np.nan, np.inf, -np.inf, 0.0, -0.0])
        x = np.where(rng.random(shape) < 0.12, odd[rng.integers(0, len(odd), shape)], x)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)
