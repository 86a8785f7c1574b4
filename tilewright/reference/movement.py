"""Moves of elements that onnx.reference refuses, of no elements and by negative pads, or where it loses a NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def _flatten(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x = np.asarray(inputs[0])
    axis = attrs.get("axis", 1)
    head = x.shape[:axis] if axis else ()
    return [x.reshape(math.prod(head), math.prod(x.shape[len(head) :]))]


def _pad(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """Negative pads remove elements; what the other modes repeat is what these leave."""
    x, pads = np.asarray(inputs[0]), [int(p) for p in inputs[1]]
    fill, axes = (inputs[i] if len(inputs) > i else None for i in (2, 3))
    given = range(x.ndim) if axes is None else [int(a) for a in axes]
    if not all(-x.ndim <= a < x.ndim for a in given):
        raise ValueError(f"expected axes in [{-x.ndim}, {x.ndim - 1}], got {[*given]}")
    places = [a % x.ndim for a in given]
    low, high = [0] * x.ndim, [0] * x.ndim
    if len(pads) != 2 * len(places):
        raise ValueError(f"expected {2 * len(places)} pads, got {len(pads)}")
    for k, a in enumerate(places):
        low[a], high[a] = pads[k], pads[len(pads) // 2 + k]
    sizes = [n + p + q for n, p, q in zip(x.shape, low, high, strict=True)]
    if any(n < 0 for n in sizes):
        raise ValueError(f"expected pads that leave sizes >= 0, got {sizes}")
    mode = attrs.get("mode", "constant")
    if mode == "constant":
        return [_padded_by(x, low, high, np.zeros((), x.dtype) if fill is None else np.asarray(fill).reshape(()))]
    x = x[tuple(slice(max(-p, 0), n - max(-q, 0)) for p, q, n in zip(low, high, x.shape, strict=True))]
    return [np.pad(x, [(max(p, 0), max(q, 0)) for p, q in zip(low, high, strict=True)], mode)]


def _padded_by(x: np.ndarray, low: Sequence[int], high: Sequence[int], fill: np.ndarray) -> np.ndarray:
    out = np.full([n + p + q for n, p, q in zip(x.shape, low, high, strict=True)], fill, x.dtype)
    kept = [(max(-p, 0), max(min(n, n + q), max(-p, 0))) for n, p, q in zip(x.shape, low, high, strict=True)]
    out[tuple(slice(a + p, b + p) for (a, b), p in zip(kept, low, strict=True))] = x[tuple(slice(*k) for k in kept)]
    return out


def _gather_nd(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, indices = (np.asarray(i) for i in inputs)
    batch = np.indices(indices.shape[:-1], sparse=True)[: attrs.get("batch_dims", 0)]
    return [x[(*batch, *np.moveaxis(indices, -1, 0))]]


_COMBINED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, indices, updates = (np.asarray(i) for i in inputs)
    axis, out = attrs.get("axis", 0) % x.ndim, np.array(x)
    places = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    combine = _COMBINED.get(attrs.get("reduction") or "none")
    if combine is None:
        out[tuple(places)] = updates
    else:
        combine.at(out, tuple(places), updates)
    return [out]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Flatten": _flatten,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "ScatterElements": _scatter_elements,
}
