"""Sizes of results that depend on the contents of small operands: target shapes, pads, ranges, axes.

A compiled model asks for these sizes when inference could not give them, before it runs the native code. ``inputs`` are
the operator's own; only the shapes of the large ones are read. A Slice also tells where it begins in each dimension,
and how much is left behind its end (of steps of 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.slicing import slice_ranges
from tilewright.reference.spatial.resize import scaled_size

Attrs = Mapping[str, Any]
Shape = tuple[int, ...]
_TOO_LARGE = 1 << 62
SizeRule = Callable[[Attrs, Sequence[Any]], Sequence[Shape]]


def _ints(x: Any) -> list[int]:
    return [int(v) for v in np.asarray(x).reshape(-1)]


def _optional_ints(inputs: Sequence[Any], i: int) -> list[int] | None:
    return _ints(inputs[i]) if i < len(inputs) and inputs[i] is not None else None


def _reshape(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    source, target = inputs[0].shape, _ints(inputs[1])
    if not attrs.get("allowzero", 0):
        target = [source[k] if d == 0 else d for k, d in enumerate(target)]
    count = math.prod(source)
    if -1 in target:
        rest = math.prod(d for d in target if d != -1)
        target = [(count // rest if rest else 0) if d == -1 else d for d in target]
    if math.prod(target) != count or min(target, default=0) < 0:
        raise ValueError(f"expected a shape for {count} elements, got {_ints(inputs[1])}")
    return (tuple(target),)


def _axes(given: Any, rank: int) -> set[int]:
    axes = [a % rank for a in _ints(given)]
    if len(set(axes)) != len(axes):
        raise ValueError(f"expected axes that differ, got {_ints(given)}")
    return set(axes)


def _squeeze(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    shape = inputs[0].shape
    axes = _axes(inputs[1], len(shape))
    if any(shape[a] != 1 for a in axes):
        raise ValueError(f"expected size 1 along axes {sorted(axes)}, got shape {shape}")
    return (tuple(d for k, d in enumerate(shape) if k not in axes),)


def _unsqueeze(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    rank = inputs[0].ndim + len(_ints(inputs[1]))
    new = _axes(inputs[1], rank)
    dims = iter(inputs[0].shape)
    return (tuple(1 if k in new else next(dims) for k in range(rank)),)


def _expand(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    return (np.broadcast_shapes(inputs[0].shape, tuple(_ints(inputs[1]))),)


def _constant_of_shape(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    return (tuple(_ints(inputs[0])),)


def _tile(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    return (tuple(d * r for d, r in zip(inputs[0].shape, _ints(inputs[1]), strict=True)),)


def _pad(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    out, pads = list(inputs[0].shape), _ints(inputs[1])
    axes = _optional_ints(inputs, 3)
    axes = list(range(len(out))) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise ValueError(f"expected {2 * len(axes)} pads, got {len(pads)}")
    for k, a in enumerate(axes):
        out[a] += pads[k] + pads[len(axes) + k]
    return (tuple(out),)


def _range(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    start, limit, delta = (np.asarray(x).reshape(-1)[0] for x in inputs)
    if delta == 0:
        raise ValueError("expected a delta other than 0")
    if not all(map(math.isfinite, (float(start), float(limit), float(delta)))):
        raise ValueError(f"expected finite start, limit and delta, got {start}, {limit} and {delta}")
    if np.asarray(start).dtype.kind in "iu":
        return ((max(-(-(int(limit) - int(start)) // int(delta)), 0),),)
    return ((max(math.ceil((float(limit) - float(start)) / float(delta)), 0),),)


def _slice(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    shape = inputs[0].shape
    taken = slice_ranges(shape, inputs)
    rests = (max(d - t.start - len(t), 0) for d, t in zip(shape, taken, strict=True))
    return tuple(map(len, taken)), tuple(max(t.start, 0) for t in taken), tuple(rests)


def _one_hot(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    out = list(inputs[0].shape)
    axis = attrs.get("axis", -1)
    out.insert(axis if axis >= 0 else axis + len(out) + 1, _ints(inputs[1])[0])
    return (tuple(out),)


def _resize(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    out = list(inputs[0].shape)
    axes = list(attrs.get("axes") or range(len(out)))
    if attrs.get("data_layout") == "NHWC":  # the operands are in the order N, C, spatial
        place = [0, len(out) - 1, *range(1, len(out) - 1)]
        axes = [place[a] for a in axes]
    sizes = _optional_ints(inputs, 3)
    if not sizes:
        for a, s in zip(axes, np.asarray(inputs[2]).reshape(-1), strict=True):
            out[a] = scaled_size(out[a], float(s))
        return (tuple(out),)
    policy = attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratios = [m / out[a] for a, m in zip(axes, sizes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = [math.floor(ratio * out[a] + 0.5) for a in axes]
    for a, m in zip(axes, sizes, strict=True):
        out[a] = m
    return (tuple(out),)


def _center_crop_pad(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    out = list(inputs[0].shape)
    for a, d in zip(attrs.get("axes") or range(len(out)), _ints(inputs[1]), strict=True):
        out[a] = d
    return (tuple(out),)


def _affine_grid(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    n, _channels, *space = _ints(inputs[1])
    return ((n, *space, len(space)),)


def _window(_: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    return ((_ints(inputs[0])[0],),)


def _reduce(attrs: Attrs, inputs: Sequence[Any]) -> Sequence[Shape]:
    shape = inputs[0].shape
    axes = _axes(inputs[1], len(shape))
    if not axes and not attrs.get("noop_with_empty_axes", 0):
        axes = set(range(len(shape)))
    keep = attrs.get("keepdims", 1)
    return (tuple(1 if k in axes else d for k, d in enumerate(shape) if keep or k not in axes),)


SIZES: Mapping[str, SizeRule] = {
    "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Expand": _expand,
    "ConstantOfShape": _constant_of_shape, "Tile": _tile, "Pad": _pad, "Range": _range, "Slice": _slice,
    "OneHot": _one_hot, "Resize": _resize, "AffineGrid": _affine_grid, "CenterCropPad": _center_crop_pad,
    "BlackmanWindow": _window, "HammingWindow": _window, "HannWindow": _window,
    **{f"Reduce{name}": _reduce for name in (
        "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare",
    )},
}  # fmt: skip


def result_sizes(op: str, attrs: Attrs, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The shape of each output as an int64 vector. Raises ValueError for sizes that no tensor has."""
    shapes = SIZES[op](attrs, inputs)
    for s in shapes:
        if not all(0 <= d < _TOO_LARGE for d in s):
            raise ValueError(f"expected sizes of 0 to 2**62, got {list(s)}")
    return [np.array(s, np.int64).reshape(len(s)) for s in shapes]
