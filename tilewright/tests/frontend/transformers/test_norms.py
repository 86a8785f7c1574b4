"""SimplifiedLayerNormalization and SkipSimplifiedLayerNormalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.inspect.ort import open_session
from tilewright.tests.frontend.against_ort import dtype_code, node_model
from tilewright.tests.frontend.transformers.references import Arrays, rms_norm

B, S, D = 3, 5, 24
RNG = np.random.default_rng(0)


def real(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def check(model: Any, feed: Arrays, wanted: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    ours = tilewright.compile(model).run(feed)
    assert ours.keys() == wanted.keys()
    session = open_session(model, 1)
    theirs = ours if session is None else dict(zip(wanted, session.run(list(wanted), feed), strict=True))
    for name, want in wanted.items():
        assert ours[name].dtype == feed["x"].dtype
        for got in (ours[name], theirs[name]):
            np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_simplified(domain: str) -> None:
    feed, gamma = {"x": real(B, S, D)}, real(D)
    model = node_model("SimplifiedLayerNormalization", feed, {"g": gamma}, ["x", "g"], 1, domain=domain,
                       shapes={"x": ["b", "s", D]}, epsilon=0.1, stash_type=1)  # fmt: skip
    if domain:  # where onnxruntime keeps no kernel
        ours = tilewright.compile(model).run(feed)["y0"]
        np.testing.assert_allclose(ours, rms_norm(feed["x"], gamma, 0.1), 1e-5, 1e-5)
    else:
        check(model, feed, {"y0": rms_norm(feed["x"], gamma, 0.1)})


def test_simplified_by_default_and_in_float16() -> None:
    feed, gamma = {"x": real(B, S, D, dtype=np.float16) * np.float16(0.01)}, real(D, dtype=np.float16)
    code = dtype_code(gamma)
    model = node_model("SimplifiedLayerNormalization", feed, {"g": gamma}, ["x", "g"], code, domain="")
    check(model, feed, {"y0": rms_norm(feed["x"], gamma, 1e-5)}, 2e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(B, S, D), (B, D)])
def test_with_a_skip_connection(shape: tuple[int, ...], bias: bool) -> None:
    feed = {"x": real(*shape), "skip": real(*shape)}
    constants = {"g": real(D), "b": real(D)}
    inputs = ["x", "skip", "g", *(["b"] if bias else [])]
    op = "SkipSimplifiedLayerNormalization"
    total = feed["x"] + feed["skip"] + (constants["b"] if bias else 0)
    normal = rms_norm(total, constants["g"], 1e-3)
    check(node_model(op, feed, constants, inputs, [1, 0, 0, 1], epsilon=1e-3), feed, {"y0": normal, "y3": total})
    check(node_model(op, feed, constants, inputs, 1, epsilon=1e-3), feed, {"y0": normal})


@pytest.mark.parametrize("op", ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_for_training_are_refused(op: str) -> None:
    feed = {"x": real(B, D), "skip": real(B, D)}
    inputs = ["x", "skip", "g"] if op.startswith("Skip") else ["x", "g"]
    model = node_model(op, feed, {"g": real(D)}, inputs, [1, 1])
    with pytest.raises(UnsupportedError, match=r"output 1 \(saved for training\) is not supported"):
        from_onnx(model)
