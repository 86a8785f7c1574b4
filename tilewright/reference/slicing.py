"""Slices of tensors and of shapes.

Unlike Python's, a backward slice whose start lies before the first element begins at the first element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def slice_ranges(shape: Sequence[int], inputs: Sequence[Any]) -> list[range]:
    """The positions taken along each axis by a Slice with these operands (of the first one only the shape is read)."""
    starts, ends, axes, steps = (_ints(inputs[i]) if i < len(inputs) else None for i in range(1, 5))
    if starts is None or ends is None:
        raise ValueError("expected starts and ends")
    out = [range(d) for d in shape]
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        a = k if axes is None else axes[k]
        step = 1 if steps is None else steps[k]
        if step < 0:
            start = max(start, -shape[a])
        out[a] = range(*slice(start, end, step).indices(shape[a]))
    return out


def _ints(x: Any) -> list[int] | None:
    return None if x is None else [int(v) for v in np.asarray(x).reshape(-1)]


def _slice(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x = np.asarray(inputs[0])
    for a, taken in enumerate(slice_ranges(x.shape, inputs)):
        if taken != range(x.shape[a]):
            x = np.take(x, np.array(taken, np.int64), a)
    return [x]


def require_parts(sizes: np.ndarray, length: int) -> None:
    """Raises ValueError unless sizes of pieces make up ``length``."""
    if int(sizes.sum()) != length or (sizes < 0).any():
        raise ValueError(f"expected sizes that add up to {length}, got {sizes.tolist()}")


def _split(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    """Pieces of given sizes, or of one size but for the last, which may be smaller or empty."""
    x = np.asarray(inputs[0])
    axis = attrs.get("axis") or 0
    length = x.shape[axis]
    if len(inputs) > 1 and inputs[1] is not None:
        sizes = np.asarray(inputs[1])
        require_parts(sizes, length)
    else:
        parts = attrs.get("num_outputs") or n_outputs
        sizes = np.diff(np.minimum(np.arange(parts + 1) * -(-length // parts), length))
    return [np.take(x, range(end - size, end), axis) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]


def _shape(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """onnx.reference takes an end before the first axis for one counted from the last."""
    start, end = attrs.get("start") or 0, attrs.get("end")
    return [np.array(np.asarray(inputs[0]).shape[start:end], np.int64)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
}
