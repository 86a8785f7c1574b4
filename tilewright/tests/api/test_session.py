"""InferenceSession has ONNX Runtime's shape."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.api.session import InferenceSession
from tilewright.api.session_options import SessionOptions
from tilewright.core.errors import InputError
from tilewright.tests.api.models import perceptron, perceptron_by_hand, saved

X = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)


def test_run(tmp_path: Path) -> None:
    proto = perceptron()
    session = InferenceSession(saved(proto, tmp_path), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, perceptron_by_hand(proto, X), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], y)


def test_signature() -> None:
    session = tilewright.InferenceSession(perceptron())
    assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [("x", ["batch", 32], "tensor(float)")]
    assert [(o.name, o.shape, o.type) for o in session.get_outputs()] == [("y", ["batch", 10], "tensor(float)")]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_free_dimension_override() -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("batch", 3)
    session = InferenceSession(perceptron(), options)
    assert session.get_inputs()[0].shape == [3, 32]


def test_optimized_model_is_written(tmp_path: Path) -> None:
    options = SessionOptions(optimized_model_filepath=str(tmp_path / "optimized.onnx"))
    session = InferenceSession(perceptron(), options)
    again = InferenceSession(str(tmp_path / "optimized.onnx"))
    assert "MatMul" in [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node]
    (want,), (got,) = (s.run(None, {"x": X}) for s in (session, again))
    assert np.array_equal(want, got)


class _Level(Enum):
    ORT_ENABLE_ALL = 99


@pytest.mark.parametrize(
    ("level", "name"), [(0, "none"), (1, "basic"), (2, "extended"), ("all", "all"), (_Level(99), "all")]
)
def test_levels(level: object, name: str) -> None:
    assert SessionOptions(graph_optimization_level=level).level() == name


@pytest.mark.parametrize("level", [4, "best", None])
def test_unknown_level(level: object) -> None:
    with pytest.raises(InputError, match="graph_optimization_level: expected one of"):
        InferenceSession(perceptron(), SessionOptions(graph_optimization_level=level))


def test_threads_option() -> None:
    session = InferenceSession(perceptron(), SessionOptions(intra_op_num_threads=1))
    two = InferenceSession(perceptron(), SessionOptions(intra_op_num_threads=2))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], two.run(None, {"x": X})[0])
