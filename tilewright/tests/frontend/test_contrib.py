"""Fused operators of onnxruntime's domain against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.frontend.table import CONVERTERS
from tilewright.tests.frontend.against_ort import node_model, results

RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("left", "right", "attrs"), [
    ((3, 4), (4, 5), {"alpha": 0.3}), ((4, 3), (4, 5), {"transA": 1}), ((3, 4), (5, 4), {"transB": 1, "alpha": 2.0}),
    ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}), ((2, 6, 3, 4), (2, 6, 5, 4), {"transB": 1}),
    ((3, 2, 4), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1}), ((3, 2, 6, 4), (2, 6, 4, 5), {"transBatchA": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}), ((4,), (4, 5), {"transA": 1}),
])  # fmt: skip
def test_fused_matmul(left: tuple[int, ...], right: tuple[int, ...], attrs: dict[str, float]) -> None:
    pytest.importorskip("onnxruntime")
    feed = {"a": real(*left), "b": real(*right)}
    (ours,), (theirs,) = results(node_model("FusedMatMul", feed, {}, ["a", "b"], TensorProto.FLOAT, **attrs), feed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, strict=True)


def test_operands_of_unknown_rank_and_absent_ones() -> None:
    model = node_model("FusedMatMul", {"a": real(3, 4)}, {"b": real(3, 5)}, ["a", "b"], TensorProto.FLOAT, transA=1)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r"'node' \(FusedMatMul\): input 0 has an unknown rank"):
        from_onnx(model)


@pytest.mark.parametrize("op", sorted(op for domain, op in CONVERTERS if domain == "com.microsoft"))
def test_a_node_without_inputs_is_an_error_of_the_model(op: str) -> None:
    with pytest.raises(ModelError, match=rf"node 'node' \({op}\): expected an input 0, got none"):
        from_onnx(node_model(op, {}, {}, [], TensorProto.FLOAT))
