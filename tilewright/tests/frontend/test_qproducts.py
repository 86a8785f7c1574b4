"""Products of quantized matrices against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.tests.frontend.against_ort import Arrays, dtype_code, largest_difference, node_model, results

pytest.importorskip("onnxruntime")

PAIRS = [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)]


def activations(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def weights(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Seven bits: on CPUs without dot products of bytes, onnxruntime's sums of 16 bits saturate for eight."""
    low, high = (-64, 64) if dtype is np.int8 else (0, 128)
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


def parameters(columns: int | None, dtype: Any) -> Arrays:
    """Scales of both operands and zero points, one or one per column of the second."""
    rng = np.random.default_rng(2)
    shape = () if columns is None else (columns,)
    zero = np.zeros(shape, dtype) if dtype is np.int8 else np.asarray(rng.integers(60, 68, shape)).astype(dtype)
    return {"sa": np.array(0.021, np.float32), "sb": np.asarray(rng.random(shape) / 50 + 0.01).astype(np.float32),
            "zb": zero}  # fmt: skip


GEMM = ["a", "sa", "za", "b", "sb", "zb", "c", "sy", "zy"]
BIASES = [None, (), (1,), (5,), (1, 5), (7, 1), (7, 5)]


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize(("trans", "alpha"), [((0, 0), 1.0), ((1, 0), 0.5), ((0, 1), 1.7), ((1, 1), 1.0)])
def test_gemm(left: Any, right: Any, per_column: bool, trans: tuple[int, int], alpha: float) -> None:
    for k, shape in enumerate(BIASES):
        a, b = activations((7, 33), left, k), weights((33, 5), right)
        feed = {"a": np.ascontiguousarray(a.T) if trans[0] else a}
        constants = parameters(5 if per_column else None, right)
        constants |= {"za": np.array(99 if left is np.uint8 else -29, left)}
        constants |= {"b": np.ascontiguousarray(b.T) if trans[1] else b}
        constants |= {"sy": np.array(0.37, np.float32), "zy": np.array(101 if left is np.uint8 else -27, left)}
        if shape is not None:
            constants["c"] = np.asarray(np.random.default_rng(3).integers(-3000, 3000, shape)).astype(np.int32)
        attrs = {"transA": trans[0], "transB": trans[1], "alpha": alpha}
        inputs = [n if n != "c" or shape is not None else "" for n in GEMM]
        model = node_model("QGemm", feed, constants, inputs, dtype_code(a), **attrs)
        assert largest_difference(model, feed) == 0
        model = node_model("QGemm", feed, constants, inputs[:7], TensorProto.FLOAT, **attrs)
        ours, theirs = results(model, feed)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


def test_gemm_of_a_symbolic_batch() -> None:
    feed = {"a": activations((3, 17), np.uint8)}
    constants = parameters(None, np.int8) | {"za": np.array(3, np.uint8), "b": weights((17, 1), np.int8)}
    constants |= {"sy": np.array([0.5], np.float32), "zy": np.array([0], np.uint8)}
    inputs = [n if n != "c" else "" for n in GEMM]
    model = node_model("QGemm", feed, constants, inputs, TensorProto.UINT8, shapes={"a": ["n", 17]})
    assert largest_difference(model, feed) == 0


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 33), (1, 1, 33)])
def test_matmul_integer_to_float(left: Any, right: Any, per_column: bool, shape: tuple[int, ...]) -> None:
    feed = {"a": activations(shape, left)}
    constants = parameters(5 if per_column else None, right)
    constants |= {"za": np.array([99 if left is np.uint8 else -29], left), "b": weights((33, 5), right)}
    constants |= {"bias": np.linspace(-1, 1, 5, dtype=np.float32)}
    for inputs in (["a", "b", "sa", "sb", "za", "zb", "bias"], ["a", "b", "sa", "sb", "", "zb"],
                   ["a", "b", "sa", "sb", "za"], ["a", "b", "sa", "sb"]):  # fmt: skip
        model = node_model("MatMulIntegerToFloat", feed, constants, inputs, TensorProto.FLOAT,
                           shapes={"a": ["n", *shape[1:]]})  # fmt: skip
        ours, theirs = results(model, feed)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-4)


def test_matmul_integer_to_float_of_stacks() -> None:
    feed = {"a": activations((2, 3, 7, 33), np.uint8), "b": weights((3, 33, 5), np.uint8)}
    constants = parameters(None, np.uint8) | {"za": np.array(9, np.uint8)}
    model = node_model("MatMulIntegerToFloat", feed, constants, ["a", "b", "sa", "sb", "za", "zb"], TensorProto.FLOAT)
    ours, theirs = results(model, feed)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 33), (1, 33)])
def test_dynamic_quantize_matmul(right: Any, per_column: bool, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    constants = parameters(5 if per_column else None, right) | {"b": weights((33, 5), right)}
    constants |= {"bias": np.linspace(-1, 1, 5, dtype=np.float32)}
    for inputs in (["a", "b", "sb", "zb", "bias"], ["a", "b", "sb", "", "bias"], ["a", "b", "sb"]):
        model = node_model("DynamicQuantizeMatMul", {"a": x}, constants, inputs, TensorProto.FLOAT,
                           shapes={"a": ["n", *shape[1:]]})  # fmt: skip
        for feed in ({"a": x}, {"a": x + 9}, {"a": x * 0}):
            ours, theirs = results(model, feed)
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
