"""DynamicQuantizeLSTM against onnxruntime (one thread: it quantizes the states of a thread's sequences together)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.tests.frontend.against_ort import Arrays, node_model, results

pytest.importorskip("onnxruntime")

FLOAT = TensorProto.FLOAT
INPUTS = ["x", "w", "r", "b", "", "h", "c", "", "ws", "wz", "rs", "rz"]
HIDDEN, SIZE = 5, 7


def operands(directions: int, steps: int, batch: int, dtype: Any = np.int8, per_channel: bool = False) -> Arrays:
    rng = np.random.default_rng(0)
    count = (directions, 4 * HIDDEN) if per_channel else (directions,)
    low, high = (-64, 64) if dtype is np.int8 else (0, 128)
    found: Arrays = {}
    for name, rows in (("w", SIZE), ("r", HIDDEN)):
        found[name] = rng.integers(low, high, (directions, rows, 4 * HIDDEN)).astype(dtype)
        found[f"{name}s"] = (rng.random(count) / 100 + 0.005).astype(np.float32)
        found[f"{name}z"] = np.full(count, 0 if dtype is np.int8 else 64, dtype)
    real = {"x": (steps, batch, SIZE), "b": (directions, 8 * HIDDEN), "h": (directions, batch, HIDDEN),
            "c": (directions, batch, HIDDEN), "p": (directions, 3 * HIDDEN)}  # fmt: skip
    return found | {k: rng.standard_normal(s).astype(np.float32) / 2 for k, s in real.items()}


def agree(all_operands: Arrays, inputs: list[str], at_run_time: str = "x", outputs: tuple[int, ...] = (FLOAT,) * 3,
          **attrs: Any) -> None:  # fmt: skip
    feed = {k: v for k, v in all_operands.items() if k in at_run_time}
    constants = {k: v for k, v in all_operands.items() if k in inputs and k not in feed}
    shapes: Any = {"x": ["steps", "batch", SIZE], "l": ["batch"], "h": [None, "batch", HIDDEN],
                   "c": [None, "batch", HIDDEN]}  # fmt: skip
    model = node_model("DynamicQuantizeLSTM", feed, constants, inputs, list(outputs), hidden_size=HIDDEN,
                       shapes={k: v for k, v in shapes.items() if k in feed}, **attrs)  # fmt: skip
    pairs = list(zip(*results(model, feed), strict=True))
    for ours, theirs in pairs:  # a state next to halfway between two integers may be rounded to either
        np.testing.assert_allclose(ours, theirs, atol=1e-3, strict=True)
    assert np.median(np.abs(pairs[0][0] - pairs[0][1])) < 1e-6


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (6, 1), (5, 3)])
def test_directions_and_scales(direction: str, dtype: Any, per_channel: bool, steps: int, batch: int) -> None:
    found = operands(2 if direction == "bidirectional" else 1, steps, batch, dtype, per_channel)
    agree(found, [n if n not in "bhc" else "" for n in INPUTS], direction=direction)
    agree(found, INPUTS, "xhc", direction=direction)


def test_outputs_may_be_left_out() -> None:
    found = operands(1, 4, 2)
    agree(found, INPUTS, "xhc", (FLOAT,))
    agree(found, INPUTS, "xhc", (0, FLOAT, FLOAT))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lengths(direction: str) -> None:
    """onnxruntime takes zeros for the states of sequences that have ended, which changes the scale of the others."""
    found = operands(2 if direction == "bidirectional" else 1, 6, 3) | {"l": np.array([6, 2, 4], np.int32)}
    inputs = ["" if n in ("h", "c") else "l" if k == 4 else n for k, n in enumerate(INPUTS)]
    feed = {k: found[k] for k in ("x", "l")}
    constants = {k: v for k, v in found.items() if k in inputs and k not in feed}
    model = node_model("DynamicQuantizeLSTM", feed, constants, inputs, [FLOAT] * 3, hidden_size=HIDDEN,
                       direction=direction)  # fmt: skip
    for ours, theirs in zip(*results(model, feed), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-3, strict=True)
        assert ((ours == 0) == (theirs == 0)).all()


def test_peepholes_clip_and_coupled_gates() -> None:
    found = operands(2, 4, 2)
    inputs = [n if k != 7 else "p" for k, n in enumerate(INPUTS)]
    agree(found, inputs, "xhc", direction="bidirectional")
    agree(found, inputs, "xhc", direction="bidirectional", clip=0.3)
    agree(found, INPUTS, "xhc", direction="bidirectional", input_forget=1)


ACTIVATIONS = [("HardSigmoid", "Relu", "Elu"), ("Sigmoid", "Softsign", "Softplus"),
               ("Affine", "LeakyRelu", "ScaledTanh"), ("ThresholdedRelu", "Tanh", "Relu")]  # fmt: skip


@pytest.mark.parametrize("names", ACTIVATIONS)
def test_activations(names: tuple[str, ...]) -> None:
    numbers = {"activation_alpha": [0.3, 0.4, 0.6], "activation_beta": [0.45, 0.7]}
    agree(operands(1, 3, 2), INPUTS, "xhc", activations=list(names), **numbers)


def test_refusals() -> None:
    found = operands(1, 2, 1)

    def refused(**attrs: Any) -> None:
        constants = {k: v for k, v in found.items() if k in INPUTS and k != "x"}
        from_onnx(node_model("DynamicQuantizeLSTM", {"x": found["x"]}, constants, INPUTS, FLOAT, **attrs))

    with pytest.raises(ModelError, match="an attribute direction of forward, reverse or bidirectional, got sideways"):
        refused(direction="sideways")
    with pytest.raises(ModelError, match="expected 3 activations, got 1"):
        refused(activations=["Relu"])
    with pytest.raises(UnsupportedError, match="attribute activations: unknown name 'gelu'"):
        refused(activations=["Gelu", "Relu", "Relu"])
