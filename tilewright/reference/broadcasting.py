"""Our own operators that make broadcasting explicit; :mod:`tilewright.graph_ir.ops.own` says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def _common_sizes(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    sizes = [1] * int(attrs["rank"])
    for axis, operand, dim in zip(attrs["axes"], attrs["operands"], attrs["dims"], strict=True):
        (sizes[axis],) = np.broadcast_shapes((sizes[axis],), (inputs[operand].shape[dim],))
    return [np.array(sizes, np.int64)]


def _broadcast_to(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x, sizes = inputs
    shape = tuple(d if s == 1 else int(s) for d, s in zip(x.shape, sizes, strict=True))
    return [np.ascontiguousarray(np.broadcast_to(x, shape))]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "BroadcastTo": _broadcast_to,
    "CommonSizes": _common_sizes,
}
