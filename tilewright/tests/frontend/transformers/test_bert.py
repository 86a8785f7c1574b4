"""The fused operators of transformer models, and their quantized forms, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.tests.frontend.against_ort import Arrays, node_model, results
from tilewright.tests.frontend.models import model_of

pytest.importorskip("onnxruntime")

B, S, N, H, D, P = 3, 7, 2, 4, 9, 5
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def real(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(model: Any, feed: Arrays, tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(*results(model, feed), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, strict=True)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


PADDING = (np.arange(S) < np.array([[7], [3], [5]])).astype(np.int32)
MASKS: dict[str, np.ndarray | None] = {
    "none": None, "ends": ints(7, 3, 5), "ends_and_starts": ints(7, 6, 5, 0, 2, 1), "keys": PADDING,
    "pairs": np.random.default_rng(3).integers(0, 2, (B, S, S)).astype(np.int32) | np.eye(S, dtype=np.int32),
    "dummy": np.zeros((B, 1), np.int32), "dummy_of_all": np.ones((1, 1), np.int32),
}  # fmt: skip
SYMBOLIC: dict[str, list[int | str | None]] = {"x": ["batch", "steps", D]}


def attention(mask: np.ndarray | None, quantized: bool, shapes: Any = None, **attrs: Any) -> tuple[Any, Arrays]:
    constants = {"w": real(D, 3 * N * H, seed=1) / 2, "bias": real(3 * N * H, seed=2)}
    feed = {"x": real(B, S, D)}
    inputs = ["x", "w", "bias", "" if mask is None else "m"]
    if mask is not None:
        feed["m"] = mask
    if quantized:
        constants["w"] = np.random.default_rng(1).integers(-64, 64, (D, 3 * N * H)).astype(np.int8)
        constants |= {"xs": np.array(0.02, np.float32), "ws": np.array(0.01, np.float32)}
        constants |= {"xz": np.array(128, np.uint8), "wz": np.array(0, np.int8)}
        feed["x"] = np.random.default_rng(0).integers(0, 256, (B, S, D)).astype(np.uint8)
        inputs = [*inputs[:3], "xs", "ws", inputs[3], "xz", "wz"]
    op = "QAttention" if quantized else "Attention"
    return node_model(op, feed, constants, inputs, FLOAT, shapes=shapes, num_heads=N, **attrs), feed


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, quantized: bool, causal: int) -> None:
    given = MASKS[mask]
    agree(*attention(given, quantized, unidirectional=causal))
    shapes = dict(SYMBOLIC)
    if given is not None and not mask.startswith("dummy"):
        names: dict[str, list[int | str | None]] = {
            "ends": ["batch"], "ends_and_starts": ["twice"], "keys": ["batch", "steps"],
            "pairs": ["batch", "steps", "steps"],
        }  # fmt: skip
        shapes["m"] = names[mask]
    agree(*attention(given, quantized, shapes, unidirectional=causal))


def test_attention_takes_its_scale_and_the_value_of_masked_scores_from_attributes() -> None:
    for quantized in (False, True):
        agree(*attention(PADDING, quantized, scale=0.3, mask_filter_value=-3.0))


def test_quantized_attention_by_column() -> None:
    model, feed = attention(None, True)
    for t in model.graph.initializer:
        if t.name == "ws":
            t.CopyFrom(helper.make_tensor("ws", FLOAT, [3 * N * H], np.linspace(0.005, 0.02, 3 * N * H)))
        if t.name == "wz":
            t.CopyFrom(helper.make_tensor("wz", TensorProto.INT8, [3 * N * H], [0] * (3 * N * H)))
    agree(model, feed)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("steps", [1, S])
def test_attention_with_a_past(quantized: bool, steps: int) -> None:
    model, feed = attention(None, quantized, unidirectional=1)
    feed["x"] = feed["x"][:, :steps].copy()
    feed["past"] = real(2, B, N, P, H, seed=5)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = steps
    model.graph.input.append(helper.make_tensor_value_info("past", FLOAT, [2, "batch", N, "past", H]))
    node = model.graph.node[0]
    node.input.extend([""] * ((8 if quantized else 4) - len(node.input)))
    node.input.append("past")
    node.output.append("present")
    model.graph.output.append(helper.make_tensor_value_info("present", FLOAT, None))
    agree(model, feed)


def test_attention_with_a_bias_of_the_scores_and_sizes_of_its_own() -> None:
    constants = {"w": real(D, 2 * N * H + N * 3, seed=1) / 2, "bias": real(2 * N * H + N * 3, seed=2)}
    feed = {"x": real(B, S, D), "scores": real(1, N, S, S, seed=4)}
    model = node_model("Attention", feed, constants, ["x", "w", "bias", "", "", "scores"], FLOAT, num_heads=N,
                       qkv_hidden_sizes=[N * H, N * H, N * 3])  # fmt: skip
    agree(model, feed)


# -- normalization -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("skip", [(B, S, D), (1, S, D), (S, D)])
def test_skip_layer_normalization(skip: tuple[int, ...]) -> None:
    feed = {"x": real(B, S, D), "skip": real(*skip, seed=1)}
    constants = {"gamma": real(D, seed=2), "beta": real(D, seed=3), "bias": real(D, seed=4)}
    for inputs in (["x", "skip", "gamma", "beta", "bias"], ["x", "skip", "gamma", "", "bias"], ["x", "skip", "gamma"]):
        for outputs in ([FLOAT], [FLOAT, 0, 0, FLOAT]):
            agree(node_model("SkipLayerNormalization", feed, constants, inputs, outputs, epsilon=1e-5), feed)


IDS: Arrays = {"ids": ints(*[[k % 11 for k in range(b, b + S)] for b in range(B)]),
               "segments": ints(*[[(b + k) % 2 for k in range(S)] for b in range(B)]), "mask": PADDING}  # fmt: skip
ID_SHAPES: dict[str, list[int | str | None]] = {k: ["batch", "steps"] for k in IDS}


def chosen(*names: str) -> Arrays:
    return {k: v for k, v in IDS.items() if k in names}


def test_embeddings() -> None:
    tables = {"w": real(11, D), "p": real(S + 2, D, seed=1), "s": real(2, D, seed=2), "g": real(D, seed=3),
              "b": real(D, seed=4)}  # fmt: skip
    inputs = ["ids", "segments", "w", "p", "s", "g", "b", "mask"]
    op = "EmbedLayerNormalization"
    agree(node_model(op, IDS, tables, inputs, [FLOAT, INT32], shapes=ID_SHAPES), IDS)
    feed = IDS | {"at": ints([6, 5, 4, 3, 2, 1, 0])}
    agree(node_model(op, feed, tables, [*inputs, "at"], [FLOAT, INT32, FLOAT], epsilon=1e-5), feed)
    feed = chosen("ids")
    agree(node_model(op, feed, tables, ["ids", "", "w", "p", "", "g", "b"], [FLOAT, INT32], shapes=ID_SHAPES), feed)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_embeddings(dtype: Any) -> None:
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    shapes = {"w": (11, D), "p": (S + 2, D), "s": (2, D), "g": (D,), "b": (D,)}
    constants = {k: rng.integers(info.min, info.max + 1, s).astype(dtype) for k, s in shapes.items()}
    constants |= {f"{k}s": np.array(rng.random() / 20 + 0.01, np.float32) for k in shapes}
    constants |= {f"{k}z": np.array(int(rng.integers(info.min, info.max)), dtype) for k in shapes}
    inputs = ["ids", "segments", *shapes, "mask", *(f"{k}s" for k in shapes), *(f"{k}z" for k in shapes)]
    agree(node_model("QEmbedLayerNormalization", IDS, constants, inputs, [FLOAT, INT32], shapes=ID_SHAPES), IDS)
    without = [n if not n.startswith(("s", "mask")) else "" for n in inputs]
    feed = chosen("ids")
    agree(node_model("QEmbedLayerNormalization", feed, constants, without, [FLOAT, INT32]), feed)


def test_layer_normalization_before_onnx_had_it() -> None:
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], "norm", axis=-1, epsilon=1e-5)
    model = model_of([node], {"x": [B, S, D]}, ["y"], 12, constants={"g": real(D, seed=1), "b": real(D, seed=2)})
    agree(model, {"x": real(B, S, D)})


def test_refusals() -> None:
    model, _ = attention(None, False, do_rotary=1)
    with pytest.raises(UnsupportedError, match=r"node 'node' \(Attention\): attribute do_rotary is not supported"):
        from_onnx(model)
    model, _ = attention(np.zeros((B, 1, S, S), np.int32), False)
    with pytest.raises(UnsupportedError, match="a mask of unknown rank, or not of rank 1 to 3"):
        from_onnx(model)
    model, _ = attention(None, False)
    model.graph.node[0].attribute[0].i = 0
    with pytest.raises(ModelError, match="expected an attribute num_heads >= 1, got 0"):
        from_onnx(model)
