"""Products of quantized tensors in units of the result: one factor, rounded where onnxruntime rounds it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.tests.frontend.against_ort import largest_difference, node_model

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
@pytest.mark.parametrize("steps", [(0.3, 0.1, 0.06), (0.7, 0.1, 0.14), (0.1, 0.3, 0.0075), (0.02, 0.013, 0.031)])
def test_results_next_to_halfway_between_two_integers(op: str, steps: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(0)
    x_shape, w_shape = ((1, 1, 8, 8), (64, 1, 1, 1)) if op == "QLinearConv" else ((64, 1), (1, 64))
    feed = {"x": rng.integers(0, 256, x_shape).astype(np.uint8)}
    constants = {k: np.array(v, np.float32) for k, v in zip(("sx", "sw", "sy"), steps, strict=True)}
    constants |= {"zx": np.array(7, np.uint8), "zw": np.array(0, np.int8), "zy": np.array(101, np.uint8)}
    constants["w"] = rng.integers(-7, 8, w_shape).astype(np.int8)
    inputs = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    model = node_model(op, feed, constants, inputs, TensorProto.UINT8, domain="")
    assert largest_difference(model, feed) == 0
