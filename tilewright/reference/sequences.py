"""Sequences are Python lists of arrays; an optional is its element, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.slicing import require_parts

Attrs = Mapping[str, Any]


def _position(x: Any) -> int:
    return int(np.asarray(x).reshape(-1)[0])


def _given(inputs: Sequence[Any], i: int) -> bool:
    return i < len(inputs) and inputs[i] is not None


def _construct(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [list(inputs)]


def _empty(_: Attrs, __: Sequence[Any], ___: int) -> list[object]:
    return [[]]


def _at(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [inputs[0][_position(inputs[1])]]


def _insert(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    out = list(inputs[0])
    if not _given(inputs, 2):
        return [[*out, inputs[1]]]
    at = _position(inputs[2])
    if not -len(out) <= at <= len(out):
        raise IndexError(f"expected a position in [{-len(out)}, {len(out)}], got {at}")
    out.insert(at, inputs[1])
    return [out]


def _erase(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    out = list(inputs[0])
    del out[_position(inputs[1]) if _given(inputs, 1) else -1]
    return [out]


def _length(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [np.array(len(inputs[0]), np.int64)]


def _split(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """Pieces of one size (the last may be smaller), of given sizes, or one element each; none of nothing."""
    x = np.asarray(inputs[0])
    axis = attrs.get("axis", 0) % x.ndim
    length = x.shape[axis]
    if not _given(inputs, 1):
        parts = [np.take(x, [i], axis) for i in range(length)]
        return [parts if attrs.get("keepdims", 1) else [p.squeeze(axis) for p in parts]]
    sizes = np.asarray(inputs[1])
    if sizes.ndim == 0:
        size = int(sizes)
        if size < 1:
            raise ValueError(f"expected pieces of at least one element, got {size}")
        return [[np.take(x, range(at, min(at + size, length)), axis) for at in range(0, length, size)]]
    require_parts(sizes, length)
    return [np.split(x, np.cumsum(sizes)[:-1], axis)]


def _optional(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [inputs[0] if _given(inputs, 0) else None]


def _get_element(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    if inputs[0] is None:
        raise ValueError("expected an optional that has an element, got an empty one")
    return [inputs[0]]


def _has_element(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [np.array(_given(inputs, 0))]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
}
