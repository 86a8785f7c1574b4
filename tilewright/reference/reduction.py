"""Reductions and norms along axes where onnx.reference errs in types, empty lists of axes or signs.

Integers keep their type and wrap; a mean of integers is truncated; roots and logarithms of integers are taken in
float64 and truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.onnx_ops import evaluate_onnx

Attrs = Mapping[str, Any]


def _axes(attrs: Attrs, inputs: Sequence[Any]) -> tuple[int, ...] | None:
    """The axes; None for all of them, an empty tuple for none."""
    given = inputs[1] if len(inputs) > 1 else attrs.get("axes")
    if given is not None and len(given):
        return tuple(int(a) for a in given)
    return () if attrs.get("noop_with_empty_axes") else None


def _sum(x: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    return np.asarray(np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=True))


def _through_float64(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    return np.asarray(f(x)) if x.dtype.kind == "f" else np.asarray(f(x.astype(np.float64)))


def _mean(x: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    total = _sum(x, axes)
    count = x.size // max(total.size, 1)
    if x.dtype.kind == "f":
        return np.asarray(np.mean(x, axis=axes, keepdims=True)) if x.size else np.full(total.shape, np.nan, x.dtype)
    whole, rest = np.divmod(total, x.dtype.type(max(count, 1)))
    return np.asarray(whole + ((whole < 0) & (rest != 0)).astype(x.dtype))


def _log_sum_exp(x: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, np.where(np.isnan(top), top, 0))
    return np.asarray(np.log(np.sum(np.exp(wide - shift), axis=axes, keepdims=True)) + shift)


def _reduce(f: Callable[[np.ndarray, tuple[int, ...] | None], np.ndarray]) -> Callable[..., list[object]]:
    def definition(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
        x, axes = np.asarray(inputs[0]), _axes(attrs, inputs)
        out = np.asarray(f(x, axes)).astype(x.dtype)
        if attrs.get("keepdims", 1) == 0:
            dropped = tuple(range(x.ndim)) if axes is None else axes
            out = out.reshape([n for k, n in enumerate(out.shape) if k not in [a % x.ndim for a in dropped]])
        return [out]

    return definition


def _log_softmax(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """onnx.reference takes the logarithm of the softmax, which is zero where this is below -104."""
    (x,) = inputs
    axis = attrs.get("axis", -1)
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return [np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))).astype(x.dtype)]


def _lp_normalization(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    (x,) = inputs
    axis, p = attrs.get("axis", -1), attrs.get("p", 2)
    total = np.sum(np.abs(x) if p == 1 else x * x, axis=axis, keepdims=True)
    norm = total if p == 1 else np.sqrt(total)
    return [np.where(norm == 0, 0, x / norm).astype(x.dtype)]


def _lrn(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """The window of channel c is [c - floor((size - 1) / 2), c + ceil((size - 1) / 2)]."""
    (x,) = inputs
    size = attrs["size"]
    alpha, beta, bias = attrs.get("alpha", 1e-4), attrs.get("beta", 0.75), attrs.get("bias", 1.0)
    low, high = (size - 1) // 2, size // 2
    square = np.zeros_like(x)
    for c in range(x.shape[1]):
        square[:, c] = np.sum(np.square(x[:, max(0, c - low) : c + high + 1]), axis=1)
    return [(x / (bias + alpha / size * square) ** beta).astype(x.dtype)]


def _arg(op: str) -> Callable[..., list[object]]:
    """The place of an extreme; onnx.reference refuses arrays of no elements, which have no places to tell."""

    def definition(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
        x, axis = np.asarray(inputs[0]), attrs.get("axis", 0)
        if x.size:
            return evaluate_onnx(op, attrs, inputs, n_outputs)
        shape = [n if k != axis % x.ndim else 1 for k, n in enumerate(x.shape)]
        if 0 not in shape:
            raise ValueError(f"expected elements along axis {axis}, got none")
        return [np.zeros(shape if attrs.get("keepdims", 1) else np.delete(shape, axis), np.int64)]

    return definition


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "ReduceSum": _reduce(_sum),
    "ReduceSumSquare": _reduce(lambda x, axes: _sum(x * x, axes)),
    "ReduceL1": _reduce(lambda x, axes: _sum(np.abs(x), axes)),
    "ReduceL2": _reduce(lambda x, axes: _through_float64(np.sqrt, _sum(x * x, axes))),
    "ReduceLogSum": _reduce(lambda x, axes: _through_float64(np.log, _sum(x, axes))),
    "ReduceLogSumExp": _reduce(_log_sum_exp),
    "ArgMax": _arg("ArgMax"),
    "ArgMin": _arg("ArgMin"),
    "ReduceMean": _reduce(_mean),
    "ReduceProd": _reduce(lambda x, axes: np.multiply.reduce(x, axis=axes, dtype=x.dtype, keepdims=True)),
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_normalization,
    "LRN": _lrn,
}
