"""What rotary positions and grouped attention with a cache mean, row by row in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """A head [..., size] turned by the angles of its place [..., half]; elements behind 2 * half stay."""
    half = cos.shape[-1]
    y = x.astype(np.float64)
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight


def group_query(feed: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output [batch, steps, heads * size] and the caches. ``feed``: by the names of the operator's inputs. Rows of
    the output behind the end of a padded prompt are NaN, those of the caches behind the end of a sequence too."""
    heads, shared = attrs["num_heads"], attrs["kv_num_heads"]
    q, k, v = _projections(feed, heads, shared)
    batch, steps, _, size = q.shape
    if "q_norm_weight" in feed:
        epsilon = attrs.get("qk_norm_epsilon", 1e-6)
        q = rms_norm(q, feed["q_norm_weight"], attrs.get("q_norm_epsilon", epsilon))
        k = rms_norm(k, feed["k_norm_weight"], attrs.get("k_norm_epsilon", epsilon))
    total = int(feed["total_sequence_length"].reshape(-1)[0])
    room = max(total, feed["past_key"].shape[2] if "past_key" in feed else 0)
    caches = [np.full((batch, shared, room, size), np.nan) for _ in range(2)]
    out = np.full((batch, steps, heads, size), np.nan)
    for b in range(batch):
        seen = int(feed["seqlens_k"].reshape(-1)[b]) + 1
        first = 0 if steps == total else seen - steps
        for n in range(steps):
            if first + n < seen:
                _write(feed, attrs, caches, (k, v), b, n, first + n, steps == total)
        if "past_key" in feed:
            for c, name in zip(caches, ("past_key", "past_value"), strict=True):
                c[b, :, :first] = feed[name][b, :, :first]
        for n in range(min(steps, seen - first)):
            own = _angled(feed, attrs, q[b, n], b, n, first + n, steps == total)
            for h in range(heads):
                out[b, n, h] = _attended(feed, attrs, own[h], caches, (b, h, n), first + n, seen)
    return out.reshape(batch, steps, -1), caches


def _projections(feed: Mapping[str, np.ndarray], heads: int, shared: int) -> list[np.ndarray]:
    if "key" in feed:
        parts = [feed["query"], feed["key"], feed["value"]]
        return [x.reshape(*x.shape[:2], n, -1) for x, n in zip(parts, (heads, shared, shared), strict=True)]
    x = feed["query"]
    return np.split(x.reshape(*x.shape[:2], heads + 2 * shared, -1), [heads, heads + shared], axis=2)


def _angled(feed: Any, attrs: Any, x: np.ndarray, b: int, n: int, place: int, is_first: bool) -> np.ndarray:
    if not attrs.get("do_rotary"):
        return x.astype(np.float64)
    if "position_ids" in feed:
        place = int(feed["position_ids"][0, 0]) + n if is_first else int(feed["position_ids"][b, n])
    return rotate(x, feed["cos_cache"][place], feed["sin_cache"][place], bool(attrs.get("rotary_interleaved")))


def _write(feed: Any, attrs: Any, caches: Any, new: Any, b: int, n: int, row: int, is_first: bool) -> None:
    caches[0][b, :, row] = _angled(feed, attrs, new[0][b, n], b, n, row, is_first)
    caches[1][b, :, row] = new[1][b, n]


def _attended(
    feed: Any, attrs: Any, q: np.ndarray, caches: Any, at: tuple[int, int, int], place: int, seen: int
) -> Any:
    b, h, n = at
    low, high = 0, seen
    if attrs.get("causal", 1):
        high = place + 1
        window = attrs.get("local_window_size", -1)
        low = max(high - window, 0) if window > 0 else 0
    g = h // (attrs["num_heads"] // attrs["kv_num_heads"])
    scores = caches[0][b, g, low:high] @ q * (attrs.get("scale") or q.size**-0.5)
    if attrs.get("softcap"):
        scores = attrs["softcap"] * np.tanh(scores / attrs["softcap"])
    if "attention_bias" in feed:
        bias = feed["attention_bias"]
        scores = scores + bias[b % bias.shape[0], h % bias.shape[1], n, low:high]
    sink = float(feed["head_sink"][h]) if "head_sink" in feed else 0.0 if attrs.get("smooth_softmax") else -np.inf
    top = max(scores.max(), sink)
    weights = np.exp(scores - top)
    return weights / (weights.sum() + np.exp(sink - top)) @ caches[1][b, g, low:high]
