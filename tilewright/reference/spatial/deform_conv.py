"""DeformConv over two spatial axes; onnx.reference goes element by element and divides by an image size less 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.spatial.conv_pool import contract

Attrs = Mapping[str, Any]


def _bilinear(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Samples of ``image`` (channels, height, width) at places of any shape; corners outside count as zero."""
    height, width = image.shape[1:]
    total = np.zeros((image.shape[0], *y.shape), image.dtype)
    low_y, low_x = np.floor(y), np.floor(x)
    for row, row_weight in ((low_y, 1 - (y - low_y)), (low_y + 1, y - low_y)):
        for column, column_weight in ((low_x, 1 - (x - low_x)), (low_x + 1, x - low_x)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = tuple(np.where(inside, v, 0).astype(np.int64) for v in (row, column))
            total += np.where(inside, image[:, at[0], at[1]] * (row_weight * column_weight).astype(image.dtype), 0)
    return total


def _deform_conv(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, w, offset = inputs[:3]
    bias, mask = (inputs[k] if len(inputs) > k else None for k in (3, 4))
    if x.ndim != 4:
        raise ValueError(f"expected two spatial axes, got {x.ndim - 2}")
    strides, dilations = (attrs.get(k) or (1, 1) for k in ("strides", "dilations"))
    pads, group, offset_group = attrs.get("pads") or (0,) * 4, attrs.get("group", 1), attrs.get("offset_group", 1)
    n, (kh, kw), (oh, ow) = x.shape[0], w.shape[2:], offset.shape[2:]
    shifts = offset.reshape(n, offset_group, kh, kw, 2, oh, ow)
    factors = np.ones((n, offset_group, kh, kw, oh, ow), x.dtype) if mask is None else mask.reshape(
        n, offset_group, kh, kw, oh, ow)  # fmt: skip
    rows = np.arange(oh)[:, None] * strides[0] - pads[0] + np.arange(kh)[:, None, None, None] * dilations[0]
    columns = np.arange(ow) * strides[1] - pads[1] + np.arange(kw)[:, None, None] * dilations[1]
    out = np.zeros((n, w.shape[0], oh, ow), x.dtype)
    for k in range(n):
        parts = []
        for g, image in enumerate(np.split(x[k], offset_group)):
            places = shifts[k, g]
            parts.append(_bilinear(image, rows + places[:, :, 0], columns + places[:, :, 1]) * factors[k, g])
        for g, (samples, weight) in enumerate(
            zip(np.split(np.concatenate(parts), group), np.split(w, group), strict=True)
        ):
            filters = slice(g * weight.shape[0], (g + 1) * weight.shape[0])
            out[k, filters] = contract(weight, samples, [1, 2, 3], [0, 1, 2])
    return [out if bias is None else out + bias.reshape(1, -1, 1, 1)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {"DeformConv": _deform_conv}
