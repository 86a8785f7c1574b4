"""Quantized elementwise operators and pools against onnxruntime: equal to the last bit, or as the docstring says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.compile import compile  # noqa: A004
from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.tests.frontend.against_ort import Arrays, dtype_code, largest_difference, node_model, results

pytest.importorskip("onnxruntime")

TYPES = [np.uint8, np.int8]
Shape = tuple[int, ...]


def quantized(shape: Shape, dtype: Any, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def zero(dtype: Any, value: int) -> np.ndarray:
    """``value`` of 0 to 255 as a zero point of either type."""
    return np.array(value - 128 if dtype is np.int8 else value, dtype)


def scales(**values: float) -> Arrays:
    return {k: np.array(v, np.float32) for k, v in values.items()}


@pytest.fixture(params=TYPES, ids=["u8", "s8"])
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- two operands --------------------------------------------------------------------------------------------------
BINARY = ["a", "sa", "za", "b", "sb", "zb", "sc", "zc"]
STEPS = [
    (0.1, 0.2, 0.3, 3, 5, 7), (0.5, 0.5, 1.0, 128, 100, 127), (1.0, 1.0, 2.0, 0, 0, 1), (0.25, 0.5, 1.0, 1, 2, 3),
    (0.0078, 0.0031, 0.009, 10, 0, 255), (0.02, 0.013, 0.031, 120, 128, 131),
]  # fmt: skip


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("steps", STEPS)
def test_every_pair_of_values(op: str, steps: tuple[float, ...], dtype: Any) -> None:
    every = np.arange(256).astype(np.uint8).view(dtype)
    feed = {"a": np.repeat(every, 256), "b": np.tile(every, 256)}
    constants = scales(sa=steps[0], sb=steps[1], sc=steps[2])
    constants |= {k: zero(dtype, int(v)) for k, v in zip(("za", "zb", "zc"), steps[3:], strict=True)}
    assert largest_difference(node_model(op, feed, constants, BINARY, dtype_code(feed["a"])), feed) == 0


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(("left", "right"), [
    ((3, 7), (3, 7)), ((2, 3, 7), (7,)), ((2, 3, 7), (3, 1)), ((7,), (2, 1, 7)), ((33,), ()), ((), (5,)), ((1,), (17,)),
    ((0, 3), (3,)), ((1, 1), (1, 1)),
])  # fmt: skip
def test_broadcasting(op: str, left: Shape, right: Shape, dtype: Any) -> None:
    feed = {"a": quantized(left, dtype), "b": quantized(right, dtype, 1)}
    constants = scales(sa=0.017, sb=0.031, sc=0.043 if op == "QLinearAdd" else 0.004)
    constants |= {"za": zero(dtype, 3), "zb": zero(dtype, 200), "zc": zero(dtype, 120)}
    model = node_model(op, feed, constants, BINARY, dtype_code(feed["a"]))
    assert largest_difference(model, feed) == 0
    ones = {k: v.reshape(1) for k, v in constants.items()}  # shape (1,) says the same, and adds no dimension
    other = node_model(op, feed, ones, BINARY, dtype_code(feed["a"]))
    np.testing.assert_array_equal(*(compile(m).run(feed)["y0"] for m in (model, other)), strict=True)


def test_scales_given_at_run_time_and_a_symbolic_batch(dtype: Any) -> None:
    feed = {"a": quantized((5, 3), dtype), "b": quantized((5, 3), dtype, 1)}
    feed |= scales(sa=0.1, sb=0.3, sc=0.2) | {"za": zero(dtype, 9), "zb": zero(dtype, 70), "zc": zero(dtype, 33)}
    model = node_model("QLinearAdd", feed, {}, BINARY, dtype_code(feed["a"]), shapes={"a": ["n", 3], "b": ["n", 3]})
    assert largest_difference(model, feed) == 0


# -- one operand ---------------------------------------------------------------------------------------------------
UNARY = ["x", "sx", "zx", "sy", "zy"]


def unary(op: str, x: np.ndarray, step: float, to: float, zeros: tuple[int, int], **attrs: Any) -> Any:
    dt = x.dtype.type
    constants = scales(sx=step, sy=to) | {"zx": zero(dt, zeros[0]), "zy": zero(dt, zeros[1])}
    shapes: dict[str, list[int | str | None]] = {"x": ["n", *x.shape[1:]]}
    return node_model(op, {"x": x}, constants, UNARY, dtype_code(x), shapes=shapes, **attrs)


@pytest.mark.parametrize("alpha", [0.01, 0.3, -0.5])
def test_leaky_relu(alpha: float, dtype: Any) -> None:
    x = np.arange(256).astype(np.uint8).view(dtype)
    for step, to, zeros in ((0.1, 0.05, (100, 20)), (0.5, 1.0, (128, 129)), (0.013, 0.02, (0, 128))):
        assert largest_difference(unary("QLinearLeakyRelu", x, step, to, zeros, alpha=alpha), {"x": x}) == 0


def test_sigmoid(dtype: Any) -> None:
    x = np.arange(256).astype(np.uint8).view(dtype)
    for step, zeros in ((0.05, (128, 0)), (0.2, (100, 3)), (0.011, (0, 128))):
        assert largest_difference(unary("QLinearSigmoid", x, step, 1 / 256, zeros), {"x": x}) <= 1


@pytest.mark.parametrize("op", ["QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QLinearAveragePool",
                                "QLinearGlobalAveragePool", "QLinearAdd", "QLinearMul"])  # fmt: skip
def test_an_absent_zero_point_is_zero(op: str, dtype: Any) -> None:
    x = quantized((2, 3, 4, 5), dtype)
    attrs: dict[str, Any] = {"kernel_shape": [2, 2]} if op == "QLinearAveragePool" else {}
    constants = scales(sx=0.02, sy=0.01) | {"z": np.array(0, dtype)}
    given, left_out = ["x", "sx", "z", "sy", "z"], ["x", "sx", "", "sy"]
    if op in ("QLinearAdd", "QLinearMul"):
        given, left_out = ["x", "sx", "z", "x", "sx", "z", "sy", "z"], ["x", "sx", "", "x", "sx", "", "sy"]
    got = [compile(node_model(op, {"x": x}, constants, i, dtype_code(x), **attrs)).run({"x": x})["y0"]
           for i in (given, left_out)]  # fmt: skip
    np.testing.assert_array_equal(*got)
    assert got[1].dtype == x.dtype


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (13, 0), (11, 1), (11, 2), (11, -1), (12, None)])
@pytest.mark.parametrize("shape", [(2, 3, 17), (1, 1, 1), (3, 1, 33)])
def test_softmax(opset: int, axis: int | None, shape: Shape, dtype: Any) -> None:
    x = quantized(shape, dtype, 3)
    attrs = {"opset": opset} | ({} if axis is None else {"axis": axis})
    constants = scales(sx=0.04, sy=1 / 256) | {"zx": zero(dtype, 120), "zy": zero(dtype, 0)}
    model = node_model("QLinearSoftmax", {"x": x}, constants, UNARY, dtype_code(x), **attrs)
    (ours,), (theirs,) = results(model, {"x": x})
    wrapped = (theirs == -128) & (ours == 127)  # onnxruntime's int8 result of 128, which wraps around
    assert np.abs(ours.astype(int) - np.where(wrapped, 127, theirs)).max() <= 1


def test_softmax_takes_whole_steps_of_the_result(dtype: Any) -> None:
    x = quantized((5, 9), dtype, 4)
    model = unary("QLinearSoftmax", x, 0.03, 0.3, (1, 128), opset=13, axis=-1)
    assert largest_difference(model, {"x": x}) == 0


# -- several operands ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int, dtype: Any) -> None:
    shapes = [(2, 3, 7), (2, 3, 7), (2, 3, 7)]
    shapes[1] = tuple(5 if d == axis % 3 else n for d, n in enumerate(shapes[1]))
    feed = {f"x{k}": quantized(s, dtype, k) for k, s in enumerate(shapes)}
    constants = scales(sy=0.05, s0=0.05, s1=0.1, s2=0.023)
    constants |= {"zy": zero(dtype, 13), "z0": zero(dtype, 13), "z1": zero(dtype, 100), "z2": zero(dtype, 13)}
    inputs = ["sy", "zy", *(n for k in range(3) for n in (f"x{k}", f"s{k}", f"z{k}"))]
    model = node_model("QLinearConcat", feed, constants, inputs, dtype_code(feed["x0"]), axis=axis)
    assert largest_difference(model, feed) == 0
    one = node_model("QLinearConcat", feed, constants, inputs[:5], dtype_code(feed["x0"]), axis=axis)
    del one.graph.input[1:]
    assert largest_difference(one, {"x0": feed["x0"]}) == 0


def test_concat_of_operands_in_one_scale_is_a_concat() -> None:
    feed = {"a": quantized((2, 3), np.uint8), "b": quantized((2, 4), np.uint8)}
    constants = scales(s=0.5, t=0.5) | {"z": zero(np.uint8, 3)}
    inputs = ["s", "z", "a", "s", "z", "b", "t", "z"]
    model = node_model("QLinearConcat", feed, constants, inputs, TensorProto.UINT8, axis=1)
    assert [n.op for n in from_onnx(model).nodes] == ["Concat"]


def test_where() -> None:
    feed = {"c": np.random.default_rng(0).random((3, 1, 7)) > 0.5, "x": quantized((5, 7), np.uint8, 1),
            "y": quantized((3, 5, 1), np.uint8, 2)}  # fmt: skip
    constants = scales(sx=0.1, sy=0.05, sz=0.1)
    constants |= {"zx": zero(np.uint8, 5), "zy": zero(np.uint8, 99), "zz": zero(np.uint8, 5)}
    model = node_model("QLinearWhere", feed, constants, ["c", "x", "sx", "zx", "y", "sy", "zy", "sz", "zz"],
                       TensorProto.UINT8)  # fmt: skip
    assert largest_difference(model, feed) == 0


# -- pools ---------------------------------------------------------------------------------------------------------

WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "pads": [0, 1, 1, 0], "strides": [1, 2], "count_include_pad": 1},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [6, 1]},
]


@pytest.mark.parametrize("attrs", WINDOWS)
@pytest.mark.parametrize("last", [0, 1])
def test_average_pool(attrs: dict[str, Any], last: int, dtype: Any) -> None:
    x = quantized((2, 7, 9, 3) if last else (2, 3, 7, 9), dtype)
    for step, to, zeros in ((0.1, 0.1, (7, 8)), (0.5, 0.5, (128, 127)), (0.02, 0.013, (100, 90))):
        model = unary("QLinearAveragePool", x, step, to, zeros, channels_last=last, **attrs)
        (ours,), (theirs,) = results(model, {"x": x})
        differs = ours != theirs
        assert ours.shape == theirs.shape
        assert np.abs(ours.astype(int) - theirs).max() <= 1
        if step == 0.5:  # powers of two: onnxruntime's sums are exact as well
            assert not differs.any()
        assert differs.mean() < 0.1


@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 17, 1, 1), (3, 1, 33), (2, 5, 2, 3, 4), (1, 64, 8, 8)])
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(shape: Shape, last: int, dtype: Any) -> None:
    x = quantized(shape, dtype)
    for step, to, zeros in ((0.1, 0.05, (128, 100)), (1.0, 1.0, (128, 129)), (0.02, 0.013, (0, 255))):
        model = unary("QLinearGlobalAveragePool", x, step, to, zeros, channels_last=last)
        assert largest_difference(model, {"x": x}) == 0


@pytest.mark.parametrize("attrs", [w for w in WINDOWS if "count_include_pad" not in w])
def test_max_pool_with_channels_last(attrs: dict[str, Any], dtype: Any) -> None:
    x = quantized((2, 7, 9, 3), dtype)
    model = node_model("NhwcMaxPool", {"x": x}, {}, ["x"], dtype_code(x), **attrs)
    assert largest_difference(model, {"x": x}) == 0


# -- others --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [TensorProto.INT16, TensorProto.UINT16, TensorProto.INT8, TensorProto.UINT8])
def test_linear_of_the_other_domain(code: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32) * 40
    dt = {TensorProto.INT16: np.int16, TensorProto.UINT16: np.uint16, TensorProto.INT8: np.int8,
          TensorProto.UINT8: np.uint8}[code]  # fmt: skip
    constants = {"s": np.array(0.01, np.float32), "z": np.array(3, dt)}
    model = node_model("QuantizeLinear", {"x": x}, constants, ["x", "s", "z"], code)
    assert largest_difference(model, {"x": x}) == 0
    columns = {"s": np.array([0.01, 0.5, 1, 2, 0.3], np.float32), "z": np.array([0, 1, 2, 3, 4], dt)}
    model = node_model("QuantizeLinear", {"x": x}, columns, ["x", "s", "z"], code, axis=-1)
    assert largest_difference(model, {"x": x}) == 0
    q = quantized((3, 5), dt)
    model = node_model("DequantizeLinear", {"x": q}, columns, ["x", "s", "z"], TensorProto.FLOAT, axis=1)
    ours, theirs = results(model, {"x": q})
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
def test_convolution_of_the_other_domain(last: int, per_channel: bool) -> None:
    rng = np.random.default_rng(0)
    x = quantized((2, 7, 9, 4) if last else (2, 4, 7, 9), np.uint8)
    count = 6 if per_channel else 1
    constants = scales(sx=0.02, sy=0.25) | {"zx": zero(np.uint8, 120), "zy": zero(np.uint8, 3)}
    constants |= {"w": rng.integers(-64, 64, (6, 4, 3, 3)).astype(np.int8), "bias": rng.integers(-9, 9, 6, np.int32)}
    constants |= {"sw": rng.random(count).astype(np.float32) / 50 + 0.01, "zw": np.zeros(count, np.int8)}
    inputs = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"]
    model = node_model("QLinearConv", {"x": x}, constants, inputs, TensorProto.UINT8, channels_last=last,
                       pads=[1, 0, 1, 2], strides=[2, 1])  # fmt: skip
    assert largest_difference(model, {"x": x}) == 0


def test_refusals() -> None:
    x = quantized((2, 3), np.uint8)
    model = node_model("QLinearAdd", {"a": x}, scales(sa=1), ["a", "sa", "", "", "sa", "", "sa"], TensorProto.UINT8)
    with pytest.raises(ModelError, match=r"'node' \(QLinearAdd\): expected an input 3, got none"):
        from_onnx(model)
    model = node_model("QLinearConcat", {"a": x}, scales(s=1) | {"z": zero(np.uint8, 0)}, ["s", "z", "a", "s"],
                       TensorProto.UINT8, axis=0)  # fmt: skip
    with pytest.raises(ModelError, match="expected an input 4, got none"):
        from_onnx(model)
    model = node_model("QLinearConcat", {"a": x}, scales(s=1) | {"z": zero(np.uint8, 0)},
                       ["s", "z", "a", "s", "z", "a"], TensorProto.UINT8, axis=0)  # fmt: skip
    with pytest.raises(ModelError, match="expected a scale, a zero point and three inputs for each operand, got 6"):
        from_onnx(model)
    model = unary("QLinearGlobalAveragePool", x, 1, 1, (0, 0))
    with pytest.raises(ModelError, match="expected an input of rank >= 3, got 2"):
        from_onnx(model)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match="an input of unknown rank"):
        from_onnx(model)
