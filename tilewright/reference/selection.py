"""Elements that a condition chooses: how many there are only the values tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


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


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Compress": _compress,
    "NonZero": _non_zero,
}
