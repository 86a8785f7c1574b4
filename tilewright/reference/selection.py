"""Elements chosen by a condition, by being different or by an index: how many there are only the values tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def _gather_elements(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """The indices may be of smaller shape than the data, which onnx.reference refuses."""
    x, indices = inputs
    axis = attrs.get("axis", 0)
    at = list(np.ogrid[tuple(map(slice, indices.shape))])
    at[axis] = indices
    return [x[tuple(at)]]


def _compress(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """What the condition says of elements beyond those of the axis does not count."""
    x, condition = np.asarray(inputs[0]), np.asarray(inputs[1])
    axis = attrs.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return [np.take(x, np.flatnonzero(condition[: x.shape[axis]]), axis)]


def _non_zero(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """A coordinate a row, none for a scalar."""
    x = np.asarray(inputs[0])
    return [np.argwhere(np.atleast_1d(x)).T[: x.ndim].astype(np.int64)]


def _unique(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    """Distinct elements or slices, sorted or in the order of their first occurrence.

    onnx.reference sorts whenever the values are the only output.
    """
    (x,) = inputs
    axis = attrs.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attrs.get("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        values, first, counts = np.take(values, order, axis=axis or 0), first[order], counts[order]
        inverse = place[inverse]
    out: list[object] = [values, *(a.astype(np.int64) for a in (first, inverse, counts))]
    return out[: max(n_outputs, 1)]


def _look_up(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """Elements of a table at the bits of bytes."""
    x, table = inputs
    return [table[np.asarray(x).view(np.uint8)]]


def _one_hot(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """Exactly one of the two values each; onnx.reference computes them from their difference."""
    indices, depth, (off, on) = np.asarray(inputs[0]), int(np.asarray(inputs[1]).reshape(-1)[0]), inputs[2]
    if depth < 0:
        raise ValueError(f"expected a depth of at least 0, got {depth}")
    axis = attrs.get("axis", -1) % (indices.ndim + 1)
    wrapped = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    places = np.arange(depth).reshape([-1 if k == axis else 1 for k in range(indices.ndim + 1)])
    return [np.where(wrapped == places, on, off)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Compress": _compress,
    "GatherElements": _gather_elements,
    "LookUp": _look_up,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Unique": _unique,
}
