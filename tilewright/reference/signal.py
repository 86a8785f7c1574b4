"""Signals and encoded images where onnx.reference raises on valid input or forgets what was asked for."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.reference.onnx_ops import evaluate_onnx

Attrs = Mapping[str, Any]


def _dft(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    """numpy transforms no signal of no samples, whose bins are sums of nothing."""
    x, length, axis = (*inputs, None, None)[:3]
    a = -2 if axis is None else int(np.asarray(axis).reshape(()))
    inverse, onesided = attrs.get("inverse", 0), attrs.get("onesided", 0)
    size = x.shape[a] if length is None else int(np.asarray(length).reshape(()))
    if size or (inverse and onesided):
        return evaluate_onnx("DFT", attrs, inputs, n_outputs)
    shape = [*x.shape[:-1], 2]
    shape[a % x.ndim] = 1 if onesided else 0
    return [np.zeros(shape, x.dtype)]


def _image_decoder(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """Pixels of an encoded image, uint8 [height, width, 3 or 1]. Raises ValueError for what is no image."""
    try:
        from PIL import Image
    except ImportError as e:
        raise UnsupportedError("ImageDecoder: needs Pillow, which is not installed") from e
    wanted = attrs.get("pixel_format", "RGB")
    if wanted not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"expected pixel_format RGB, BGR or Grayscale, got {wanted!r}")
    try:
        with Image.open(io.BytesIO(inputs[0].tobytes())) as image:
            pixels = np.asarray(image.convert("L" if wanted == "Grayscale" else "RGB"))
    except Image.DecompressionBombError as e:
        raise ValueError(str(e)) from e
    if wanted == "Grayscale":
        return [pixels[:, :, None]]
    return [np.ascontiguousarray(pixels[:, :, ::-1] if wanted == "BGR" else pixels)]


DEFINITIONS = {"DFT": _dft, "ImageDecoder": _image_decoder}
