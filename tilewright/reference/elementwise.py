"""Elementwise operators where onnx.reference is slow, knows too few types or forgets to broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in ``x``'s type."""
    wide = x.astype(np.float64)
    return np.fromiter(map(math.erf, wide.reshape(-1).tolist()), np.float64, wide.size).reshape(x.shape).astype(x.dtype)


def _erf(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [erf(inputs[0])]


def _gelu(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x = inputs[0]
    d = x.astype(np.float64)
    if attrs.get("approximate", "none") == "tanh":
        y = 0.5 * d * (1 + np.tanh(np.sqrt(2 / np.pi) * (d + 0.044715 * d**3)))
    else:
        y = 0.5 * d * (1 + erf(d / np.sqrt(2.0)))
    return [y.astype(x.dtype)]


def _leaky_relu(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """The slope has a part in results below zero alone, also one that is not finite."""
    x = inputs[0]
    scaled = x.astype(np.float64) * attrs.get("alpha", float(np.float32(0.01)))
    return [np.where(x < 0, scaled.astype(x.dtype), x)]


def _prelu(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x, slope = inputs
    return [np.where(x < 0, x * slope, x)]


def _softplus(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [np.asarray(np.logaddexp(inputs[0], np.zeros((), inputs[0].dtype)))]


def _mish(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x = inputs[0]
    return [np.asarray(x * np.tanh(np.logaddexp(x, np.zeros((), x.dtype))))]


def _softsign(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x = inputs[0]
    return [np.asarray(x / (1 + np.abs(x)))]


def _identity(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [inputs[0]]


def _mean(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    total = reduce(np.add, inputs)
    return [(total / len(inputs)).astype(total.dtype)]


def _clip(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """As the standard's function body has it: a bound that is NaN bounds nothing."""
    x, *bounds = inputs
    low, high = ([None if v is None else v.reshape(()) for v in bounds] + [None, None])[:2]
    x = x if low is None else np.where(x < low, low, x)
    return [np.asarray(x if high is None else np.where(high < x, high, x))]


def _pow(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """In the base's type. Powers of integers wrap, and those to negative numbers are cut off (0 gives 0)."""
    x, exponent = inputs
    if x.dtype.kind not in "iu" or exponent.dtype.kind not in "iu":
        real = [v if v.dtype.kind in "iu" or v.dtype == np.float64 else v.astype(np.float32) for v in inputs]
        return [np.power(*real).astype(x.dtype)]
    left = exponent.astype(x.dtype)
    square, left = np.broadcast_arrays(x, left)
    below = left < 0
    out = np.where(below & (np.abs(x) != 1), np.zeros_like(x), np.ones_like(x))
    left = np.where(below, left & 1, left)
    while left.any():
        out = np.where(left & 1 == 1, out * square, out)
        square, left = square * square, left >> 1
    return [out]


def _sum(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    """The sum of one operand is that operand; onnx.reference begins with 0, which makes 0 of -0."""
    return [reduce(np.add, inputs)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Clip": _clip,
    "Erf": _erf,
    "Gelu": _gelu,
    "Identity": _identity,
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "Pow": _pow,
    "Softplus": _softplus,
    "Mish": _mish,
    "Softsign": _softsign,
    "Mean": _mean,
    "Sum": _sum,
}
