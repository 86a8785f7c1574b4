"""Matrix products that onnx.reference lacks, and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def _fused_attention(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """``softmax(scale * Q @ K^T + mask) @ V``; with ``causal``, query s does not see key t > s + T - S."""
    q, k, v = inputs[:3]
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(attrs.get("scale", 1.0))
    if len(inputs) > 3 and inputs[3] is not None:
        scores = scores + inputs[3]
    if attrs.get("causal"):
        s, t = scores.shape[-2:]
        hidden = np.arange(t)[None, :] > np.arange(s)[:, None] + (t - s)
        scores = np.where(hidden, -np.inf, scores)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    if attrs.get("nan_rows_to_zero"):
        weights = np.where(np.isnan(weights), 0, weights)
    return [np.matmul(weights, v).astype(q.dtype)]


def _matmul_integer(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    a, b = (x.astype(np.int32) for x in inputs[:2])
    if len(inputs) > 2 and inputs[2] is not None:
        za = inputs[2].astype(np.int32)
        a = a - (za if za.ndim != 1 or za.size == 1 else za[:, None])
    if len(inputs) > 3 and inputs[3] is not None:
        b = b - inputs[3].astype(np.int32)
    return [np.matmul(a, b)]


def _matmul_dequantized(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    x, q, scale = inputs[:3]
    zero = inputs[3] if len(inputs) > 3 and inputs[3] is not None else np.zeros(scale.shape, q.dtype)
    block = q.shape[0] // scale.shape[0]
    low, step = (np.repeat(v, block, axis=0) for v in (zero.astype(np.int32), scale))
    return [np.matmul(x, ((q.astype(np.int32) - low) * step).astype(x.dtype))]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "FusedAttention": _fused_attention,
    "MatMulDequantized": _matmul_dequantized,
    "MatMulInteger": _matmul_integer,
}
