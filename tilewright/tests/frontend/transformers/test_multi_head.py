"""MultiHeadAttention against a reference in numpy, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tilewright
from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.inspect.ort import OnnxRuntimeError, open_session, translated_errors
from tilewright.tests.frontend.against_ort import node_model
from tilewright.tests.frontend.transformers.references import Arrays

B, S, L, N, H, P = 2, 4, 6, 3, 8, 5
NAMES = ("query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value",
         "past_sequence_length", "cache_indirection")  # fmt: skip
RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def heads_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], N, -1).transpose(0, 2, 1, 3).astype(np.float64)


def reference(feed: Arrays, attrs: dict[str, Any]) -> list[np.ndarray]:
    """The output, and keys and values with those of the past."""
    q = feed["query"]
    if q.ndim == 5:
        q, k, v = (q[:, :, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(3))
    else:
        width = q.shape[2]
        bias = feed.get("bias", np.zeros(2 * width + feed["query"].shape[-1] * 2, np.float32))
        key = feed["key"]
        q = heads_of(q + bias[:width])
        if key.ndim == 5:
            k, v = (key[:, :, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(2))
        elif key.ndim == 4:
            k, v = key, feed["value"]
        else:
            value = feed["value"]
            k = heads_of(key + bias[width : 2 * width])
            v = heads_of(value + bias[2 * width :][: value.shape[2]])
    if "past_key" in feed:
        k, v = (np.concatenate(pair, 2) for pair in ((feed["past_key"], k), (feed["past_value"], v)))
    scores = q @ np.swapaxes(k, -1, -2) * attrs.get("scale", q.shape[-1] ** -0.5)
    scores = scores + feed.get("attention_bias", np.zeros(1))
    keys, hidden = np.arange(k.shape[2]), attrs.get("mask_filter_value", -10000.0)
    mask = feed.get("key_padding_mask")
    if mask is not None:
        seen = keys < mask[:, None] if mask.ndim == 1 else mask > 0
        seen = seen[:, None, None] if seen.ndim == 2 else seen[:, None]
        scores = scores + np.where(seen, 0, hidden)
    if attrs.get("unidirectional"):
        scores = np.where(keys <= np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ v
    return [y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1), k, v]


def plain(rows: int = L, value: int = H) -> Arrays:
    return {"query": real(B, S, N * H), "key": real(B, rows, N * H), "value": real(B, rows, N * value)}


PAST = {"past_key": real(B, N, P, H), "past_value": real(B, N, P, H)}
CASES: dict[str, tuple[Arrays, dict[str, Any]]] = {
    "plain": (plain(), {}), "wide_values": (plain(value=5), {"scale": 0.3}),
    "bias": (plain(value=4) | {"bias": real(N * (2 * H + 4))}, {}),
    "causal": (plain(S), {"unidirectional": 1}),
    "lengths": (plain() | {"key_padding_mask": np.array([4, 6], np.int32)}, {}),
    "keys": (plain() | {"key_padding_mask": np.array([[1] * 4 + [0] * 2, [1] * 6], np.int32)}, {}),
    "pairs": (plain() | {"key_padding_mask": RNG.integers(0, 2, (B, S, L)).astype(np.int32) | np.eye(S, L, dtype="i4")},
              {"mask_filter_value": -3.0}),
    "scores_bias": (plain() | {"attention_bias": real(B, N, S, L)}, {}),
    "scores_bias_of_all": (plain() | {"attention_bias": real(1, 1, S, L)}, {}),
    "past": (plain(S) | PAST, {"unidirectional": 1}), "past_bias": (plain(S) | PAST | {"bias": real(3 * N * H)}, {}),
    "other_by_head": ({"query": real(B, S, N * H), "key": real(B, N, L, H), "value": real(B, N, L, H)}, {}),
    "packed_pairs": ({"query": real(B, S, N * H), "key": real(B, L, N, 2, H)}, {}),
    "packed": ({"query": real(B, S, N, 3, H)}, {}),
}  # fmt: skip


def model_of(feed: Arrays, attrs: dict[str, Any], outputs: int = 1, symbolic: bool = True) -> Any:
    inputs = [n if n in feed else "" for n in NAMES]
    while not inputs[-1]:
        inputs.pop()
    shapes: dict[str, Any] = {}
    if symbolic:
        rows = "rows" if feed.get("key", feed["query"]).shape[1] == L else "steps"
        shapes = {k: ["batch", "steps" if k == "query" else rows, *feed[k].shape[2:]]
                  for k in ("query", "key", "value") if k in feed and feed[k].ndim != 4}  # fmt: skip
        shapes |= {k: ["batch", N, "past", H] for k in ("past_key", "past_value")}
    codes = [TensorProto.FLOAT] * outputs
    return node_model("MultiHeadAttention", feed, {}, inputs, codes, shapes=shapes, num_heads=N, **attrs)


@pytest.mark.parametrize("case", list(CASES))
def test_multi_head_attention(case: str) -> None:
    feed, attrs = CASES[case]
    outputs = 3 if "past" in case else 1
    model = model_of(feed, attrs, outputs)
    wanted = reference(feed, attrs)[:outputs]
    ours = tilewright.compile(model).run(feed)
    for k, want in enumerate(wanted):
        np.testing.assert_allclose(ours[f"y{k}"], want, 1e-5, 1e-5)
    if case.startswith("packed"):  # onnxruntime's CPU kernel does not take these
        return
    try:
        session = open_session(model, 1)
        with translated_errors():
            theirs = wanted if session is None else session.run(None, feed)
    except OnnxRuntimeError:
        assert case == "pairs"
        return
    for got, want in zip(theirs, wanted, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(("feed", "told"), [
    ({**plain(), "past_sequence_length": np.array([1], np.int32)}, r"input 8 \(past_sequence_length\) is not"),
    ({**plain(), "cache_indirection": np.zeros((1, 1, 1), np.int32)}, r"input 9 \(cache_indirection\) is not"),
    ({"query": real(B, S, N, 3, H), "bias": real(3 * N * H)}, "a bias with packed queries, keys and values"),
    ({"query": real(B, S, N * H), "key": real(B, L, N, 2, H), "bias": real(3 * N * H)}, "a bias with packed keys"),
    ({"query": real(B, S, N * H), "key": real(B, L, N * H)}, "got ranks 3, 3, 0"),
    ({**plain(), "key_padding_mask": np.zeros((1, 1, 1, 1), np.int32)}, "a key_padding_mask of unknown rank"),
])  # fmt: skip
def test_refusals(feed: Arrays, told: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"node 'node' \(MultiHeadAttention\): .*{told}"):
        from_onnx(model_of(feed, {}, symbolic=False))


def test_the_product_of_queries_and_keys_is_no_output() -> None:
    with pytest.raises(UnsupportedError, match=r"output 3 \(qk\) is not supported"):
        from_onnx(model_of(plain(), {}, 4))


def test_one_of_two_pasts() -> None:
    with pytest.raises(ModelError, match="expected inputs 6 and 7"):
        from_onnx(model_of({**plain(S), "past_key": real(B, N, P, H)}, {}))
