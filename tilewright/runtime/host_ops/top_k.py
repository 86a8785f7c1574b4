"""The k largest or smallest elements along an axis, on arrays: what is not among them is not sorted.

The meaning is ONNX's (the reference room sorts everything): in order, and of equal elements the one with the lower
index first. NaN counts as greater than any number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_SORTED_WHOLE = 4
"""If more than one element in so many is wanted, sorting all of them costs no more than choosing first."""

_ONE_BY_ONE = 16
"""So many are found faster by looking for the best one again and again than by sorting a part."""


def top_k(attrs: Mapping[str, Any], inputs: Sequence[object]) -> list[object]:
    """Values and int64 indices, the axis now of length k. Inputs: the elements, and k. Raises ValueError for a k that
    the axis does not have."""
    x, k = np.asarray(inputs[0]), int(np.asarray(inputs[1]).reshape(-1)[0])
    axis = attrs.get("axis", -1)
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    n = rows.shape[-1]
    if not 0 <= k <= n:
        raise ValueError(f"expected k from 0 to the {n} elements of axis {axis}, got {k}")
    flat = rows.reshape(math.prod(rows.shape[:-1]), n)
    keys = flat if flat.dtype.kind in "fiu" else flat.astype(np.float32)  # bfloat16 and the like
    chosen = _best(keys, k, bool(attrs.get("largest", 1)))
    shape = (*rows.shape[:-1], k)
    values = np.take_along_axis(flat, chosen, 1).reshape(shape)
    return [np.ascontiguousarray(np.moveaxis(a, -1, axis)) for a in (values, chosen.reshape(shape))]


def _best(keys: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Indices of the best ``k`` of each row, in order."""
    count, n = keys.shape
    if k * _SORTED_WHOLE > n or (keys.dtype.kind == "f" and np.isnan(keys).any()):
        return _in_order(keys, largest)[:, :k]
    if k == 0:
        return np.zeros((count, 0), np.int64)
    if k <= _ONE_BY_ONE and (few := _one_by_one(keys, k, largest)) is not None:
        return few
    limit = np.partition(keys, n - k if largest else k - 1, axis=1)[:, [n - k if largest else k - 1]]
    better = keys > limit if largest else keys < limit
    equal = keys == limit
    missing = k - np.count_nonzero(better, axis=1)[:, None]
    many = np.flatnonzero(np.count_nonzero(equal, axis=1) > missing[:, 0])
    equal[many] &= np.cumsum(equal[many], axis=1) <= missing[many]
    places = np.nonzero(better | equal)[1].reshape(count, k)
    order = _in_order(np.take_along_axis(keys, places, 1), largest)
    return np.take_along_axis(places, order, 1)


def _one_by_one(keys: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """The same for a small ``k``; None if an element is as bad as one that was taken is made, which is then not told
    from it."""
    worst: Any
    if keys.dtype.kind == "f":
        worst = -np.inf if largest else np.inf
    else:
        worst = np.iinfo(keys.dtype).min if largest else np.iinfo(keys.dtype).max
    left, row = keys.copy(), np.arange(len(keys))
    chosen = np.empty((len(keys), k), np.int64)
    for i in range(k):
        chosen[:, i] = (left.argmax if largest else left.argmin)(axis=1)
        if (left[row, chosen[:, i]] == worst).any():
            return None
        left[row, chosen[:, i]] = worst
    return chosen


def _in_order(keys: np.ndarray, largest: bool) -> np.ndarray:
    """The order of each row; of equal elements the first comes first."""
    if not largest:
        return np.argsort(keys, axis=1, kind="stable")
    backwards = np.argsort(keys[:, ::-1], axis=1, kind="stable")[:, ::-1]
    order: np.ndarray = keys.shape[1] - 1 - backwards
    return order
