"""Quantization where onnx.reference rounds elsewhere than ONNX's formula, or has no sensible answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.reference.onnx_ops import evaluate_onnx

Attrs = Mapping[str, Any]


def saturate(v: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Rounded numbers as integers of a type, kept inside its range. NaN is the lowest number, as in onnxruntime."""
    info = np.iinfo(dtype)
    inside: np.ndarray = np.where(np.isnan(v), info.min, np.clip(v, info.min, info.max))
    return inside.astype(dtype)


def _dynamic_quantize_linear(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """Where all elements are 0, any scale would do; as in onnxruntime, it is 1."""
    x = inputs[0]
    low, high = np.float32(x.min(initial=0)), np.float32(x.max(initial=0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = saturate(np.rint(-low / scale), np.dtype(np.uint8))
    return [saturate(np.rint(x / scale) + zero.astype(np.float32), zero.dtype), np.asarray(scale), np.asarray(zero)]


def _rows(v: np.ndarray) -> np.ndarray:
    """A parameter of the left operand: one number, one per row, or one for each row of each matrix."""
    return v.reshape(()) if v.size == 1 else v[:, None] if v.ndim == 1 else v


def _columns(v: np.ndarray) -> np.ndarray:
    return v.reshape(()) if v.size == 1 else v


def _qlinear_matmul(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    left = a.astype(np.int32) - _rows(a_zero.astype(np.int32))
    products = np.matmul(left, b.astype(np.int32) - _columns(b_zero.astype(np.int32)))
    a_step, b_step, y_step = (v.astype(np.float32) for v in (_rows(a_scale), _columns(b_scale), _rows(y_scale)))
    scaled = np.rint(products.astype(np.float32) * (a_step * b_step / y_step))
    return [saturate(scaled + _rows(y_zero).astype(np.float32), y_zero.dtype)]


def _quantized_type(attrs: Attrs, inputs: Sequence[Any]) -> DType:
    """That of the zero point, else of the attribute, else uint8."""
    if len(inputs) > 2 and inputs[2] is not None:
        return dtypes.from_numpy(inputs[2].dtype)
    number = int(attrs.get("output_dtype", 0))
    return dtypes.from_numpy(helper.tensor_dtype_to_np_dtype(number)) if number else dtypes.uint8


_BEYOND = 2.0**24
"""Steps from zero that every quantized type saturates at."""


def _quantize_linear(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    """onnx.reference, with numbers that stay finite when they are divided by the scale: it wraps infinities. NaN
    becomes the lowest number of an integer type, as in onnxruntime."""
    x, scale = inputs[:2]
    if x.dtype.kind == "f" and x.size and scale.size:
        far = min(_BEYOND * float(np.abs(scale.astype(np.float64)).max()), float(np.finfo(x.dtype).max))
        if _quantized_type(attrs, inputs).is_integer:
            x = np.where(np.isnan(x), -far, x)
        x = np.clip(x, -far, far).astype(x.dtype)
    return evaluate_onnx("QuantizeLinear", attrs, [x, *inputs[1:]], n_outputs)


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize_linear,
}
