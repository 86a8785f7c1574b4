"""Weights packed several to a byte, against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tilewright.compile import compile  # noqa: A004
from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.tests.frontend.against_ort import Arrays, node_model, results

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def packed(n: int, k: int, bits: int, block: int) -> Arrays:
    blocks = -(-k // block)
    return {
        "b": bytes_of(n, blocks, block * bits // 8),
        "s": (RNG.random((n, blocks)) / 8 + 0.01).astype(np.float32),
        "z": bytes_of(n, -(-blocks * bits // 8)),
        "zf": RNG.random((n, blocks)).astype(np.float32) * (1 << bits),
        "bias": RNG.standard_normal(n).astype(np.float32),
        "g": (np.arange(k) // block).astype(np.int32),
    }


def agree(model: Any, feed: Arrays, tolerance: float = 1e-4) -> None:
    ours, theirs = results(model, feed)
    scale = max(1.0, float(np.abs(theirs[0]).max(initial=0)))
    np.testing.assert_allclose(ours[0], theirs[0], atol=tolerance * scale, strict=True)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("n", "k", "block"), [(8, 64, 32), (5, 33, 16), (1, 16, 16), (17, 100, 64), (3, 7, 16)])
def test_matmul_nbits(bits: int, n: int, k: int, block: int) -> None:
    constants = packed(n, k, bits, block)
    x = RNG.standard_normal((2, 3, k)).astype(np.float32)
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    for inputs in (["x", "b", "s"], ["x", "b", "s", "z"], ["x", "b", "s", "zf"], ["x", "b", "s", "z", "", "bias"]):
        if "zf" in inputs and bits != 4:  # onnxruntime has no kernel
            continue
        model = node_model("MatMulNBits", {"x": x}, constants, inputs, TensorProto.FLOAT,
                           shapes={"x": ["batch", 3, k]}, **attrs)  # fmt: skip
        agree(model, {"x": x})


def test_scales_and_zero_points_may_be_flat_and_bits_has_a_default() -> None:
    constants = packed(6, 48, 4, 16)
    flat = {k: v.reshape(-1) if k in "sz" else v for k, v in constants.items()}
    x = RNG.standard_normal((2, 48)).astype(np.float32)
    attrs = {"K": 48, "N": 6, "block_size": 16}
    models = [node_model("MatMulNBits", {"x": x}, c, ["x", "b", "s", "z"], TensorProto.FLOAT, **attrs)
              for c in (constants, flat)]  # fmt: skip
    agree(models[0], {"x": x})
    np.testing.assert_array_equal(*(compile(m).run({"x": x})["y0"] for m in models))


def test_weights_that_were_left_out() -> None:
    constants = packed(6, 40, 4, 16) | {"b": np.zeros((0, 3, 8), np.uint8)}
    x = np.full((2, 40), np.nan, np.float32)
    for bias, want in (("", 0.0), ("bias", constants["bias"])):
        model = node_model("MatMulNBits", {"x": x}, constants, ["x", "b", "s", "", "", bias], TensorProto.FLOAT,
                           K=40, N=6, bits=4, block_size=16)  # fmt: skip
        got = compile(model).run({"x": x})["y0"]
        np.testing.assert_array_equal(got, np.broadcast_to(np.float32(want), (2, 6)), strict=True)


def test_weights_at_run_time() -> None:
    constants = packed(6, 40, 4, 16)
    feed = {"x": RNG.standard_normal((2, 40)).astype(np.float32), **{k: constants.pop(k) for k in "bsz"}}
    attrs = {"K": 40, "N": 6, "bits": 4, "block_size": 16}
    agree(node_model("MatMulNBits", feed, {}, ["x", "b", "s", "z"], TensorProto.FLOAT, **attrs), feed)


def test_a_group_for_every_row() -> None:
    constants = packed(6, 64, 4, 16)
    constants["g"] = RNG.integers(0, 4, 64).astype(np.int32)
    x = RNG.standard_normal((2, 64)).astype(np.float32)
    for zeros in ("", "z", "zf"):
        model = node_model("MatMulNBits", {"x": x}, constants, ["x", "b", "s", zeros, "g"], TensorProto.FLOAT,
                           K=64, N=6, bits=4, block_size=16)  # fmt: skip
        got = compile(model).run({"x": x})["y0"]
        numbers = np.stack([constants["b"] & 15, constants["b"] >> 4], -1).reshape(6, 64).astype(np.float32)
        halves = np.stack([constants["z"] & 15, constants["z"] >> 4], -1).reshape(6, 4).astype(np.float32)
        zero = {"": np.full((6, 4), 8, np.float32), "z": halves, "zf": constants["zf"]}[zeros]
        weight = (numbers - zero[:, constants["g"]]) * constants["s"][:, constants["g"]]
        np.testing.assert_allclose(got, x @ weight.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("n", "k", "block"), [(8, 64, 32), (5, 33, 16), (3, 5, 16)])
def test_matmul_bnb4(kind: int, n: int, k: int, block: int) -> None:
    constants = {"b": bytes_of((n * k + 1) // 2), "m": (RNG.random(-(-n * k // block)) + 0.1).astype(np.float32)}
    attrs = {"K": k, "N": n, "block_size": block, "quant_type": kind}

    def model(x: np.ndarray, **more: int) -> Any:
        return node_model("MatMulBnb4", {"x": x}, constants, ["x", "b", "m"], TensorProto.FLOAT, **attrs, **more)

    x = RNG.standard_normal((2, k)).astype(np.float32)
    agree(model(x), {"x": x})
    rows, columns = np.eye(n, dtype=np.float32), np.eye(k, dtype=np.float32)  # onnxruntime ignores transB = 0
    weight = compile(model(rows, transB=0)).run({"x": rows})["y0"]
    turned = compile(model(columns, transB=1)).run({"x": columns})["y0"]
    np.testing.assert_array_equal(weight, turned.T)


# -- rows of a table -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [TensorProto.INT64, TensorProto.INT32])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "z"])
def test_gather_of_bytes(bits: int, zeros: str, code: int) -> None:
    columns = 48
    constants = {"t": bytes_of(9, columns * bits // 8), "s": (RNG.random((9, 3)) + 0.1).astype(np.float32),
                 "z": bytes_of(9, -(-3 * bits // 8))}  # fmt: skip
    index = np.array([[0, 8, 3], [-1, -9, 3]], np.int64 if code == TensorProto.INT64 else np.int32)
    model = node_model("GatherBlockQuantized", {"i": index}, constants, ["t", "i", "s", zeros], TensorProto.FLOAT,
                       shapes={"i": ["n", 3]}, bits=bits, block_size=16, quantize_axis=-1)  # fmt: skip
    agree(model, {"i": index}, 0)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("gathered", "quantized"), [(0, 1), (1, 0), (0, 0), (1, 1), (0, 2), (-1, 1), (2, -1)])
@pytest.mark.parametrize("zeros", ["", "z"])
def test_gather_of_four_bits(dtype: Any, gathered: int, quantized: int, zeros: str) -> None:
    shape = [5, 7, 20]
    blocks = list(shape)
    blocks[quantized] = -(-shape[quantized] // 16)
    low = -8 if dtype == ml_dtypes.int4 else 0
    constants = {k: RNG.integers(low, low + 16, s).astype(dtype) for k, s in (("t", shape), ("z", blocks))}
    constants["s"] = (RNG.random(blocks) + 0.1).astype(np.float32)
    index = np.array([[0, 4], [-1, 2]])
    model = node_model("GatherBlockQuantized", {"i": index}, constants, ["t", "i", "s", zeros], TensorProto.FLOAT,
                       gather_axis=gathered, quantize_axis=quantized, block_size=16)  # fmt: skip
    agree(model, {"i": index}, 0)


def test_an_index_out_of_range_gives_zeros() -> None:
    constants = {"t": bytes_of(9, 32), "s": np.ones((9, 2), np.float32)}
    index = np.array([0, 9, -10, -9])
    model = node_model("GatherBlockQuantized", {"i": index}, constants, ["t", "i", "s"], TensorProto.FLOAT, bits=8,
                       block_size=16)  # fmt: skip
    got = compile(model).run({"i": index})["y0"]
    np.testing.assert_array_equal(got[[1, 2]], 0)
    np.testing.assert_array_equal(got[0], constants["t"][0].astype(np.float32) - 128)
    np.testing.assert_array_equal(got[0], got[3])


def test_refusals() -> None:
    x = np.zeros((2, 32), np.float32)
    constants = packed(4, 32, 4, 16)

    def refused(**attrs: Any) -> None:
        from_onnx(node_model("MatMulNBits", {"x": x}, constants, ["x", "b", "s"], TensorProto.FLOAT, **attrs))

    with pytest.raises(ModelError, match="expected an attribute block_size >= 1, got 0"):
        refused(K=32, N=4)
    with pytest.raises(ModelError, match="expected input 1 with 1099511627776 elements, got 64"):
        refused(K=32, N=1 << 36, block_size=16)
    with pytest.raises(UnsupportedError, match="attribute bits must be 2, 4 or 8, got 3"):
        refused(K=32, N=4, block_size=16, bits=3)
    with pytest.raises(UnsupportedError, match="attribute weight_prepacked"):
        refused(K=32, N=4, block_size=16, weight_prepacked=1)


def test_zero_points_that_are_left_out_are_constants() -> None:
    """Else a product with a large weight would not be recognized: what is large is not folded."""
    constants = packed(6, 48, 4, 16)
    x = np.zeros((2, 48), np.float32)
    attrs = {"K": 48, "N": 6, "bits": 4, "block_size": 16}
    graph = from_onnx(node_model("MatMulNBits", {"x": x}, constants, ["x", "b", "s"], TensorProto.FLOAT, **attrs))
    (real,) = (n for n in graph.nodes if n.op == "DequantizeLinear")
    assert graph.constants[real.inputs[2]].array.tolist() == [[8] * 3] * 6
