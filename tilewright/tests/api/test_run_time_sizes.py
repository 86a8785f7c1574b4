"""Results whose sizes depend on the contents of operands: the sizes on the host, the elements by native code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.core.plan import SIZES_DOMAIN, HostStep

X = np.random.default_rng(0).standard_normal((3, 1, 4)).astype(np.float32)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, np.int64)


def _model(nodes: Sequence[onnx.NodeProto], **inputs: np.ndarray) -> onnx.ModelProto:
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    given = [helper.make_tensor_value_info(n, types[a.dtype], a.shape) for n, a in inputs.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", given, [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def _run(nodes: Sequence[onnx.NodeProto], *feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results of one compiled model, which has no host steps but for sizes."""
    model = tilewright.compile(_model(nodes, **feeds[0]))
    hosts = [s for s in model.plan.steps if isinstance(s, HostStep)]
    assert hosts
    assert all(s.domain == SIZES_DOMAIN for s in hosts)
    return [model.run(f)["y"] for f in feeds]


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 3, 1, 4), (1, 1), (0, 3, 1, 1)])
def test_expand_to_a_given_shape(shape: tuple[int, ...]) -> None:
    (got,) = _run([helper.make_node("Expand", ["x", "s"], ["y"])], {"x": X, "s": i64(*shape)})
    np.testing.assert_array_equal(got, X * np.ones(shape, np.float32))


def test_one_model_serves_several_sizes() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["v"]),
             helper.make_node("Neg", ["v"], ["y"])]  # fmt: skip
    shapes = [(6, 2), (-1, 3), (0, 4), (12, 1)]
    results = _run(nodes, *({"x": X, "s": i64(*s)} for s in shapes))
    for shape, got in zip(shapes, results, strict=True):
        want = -np.maximum(X, 0).reshape([X.shape[k] if d == 0 else d for k, d in enumerate(shape)])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"])
def test_axes_that_only_the_run_knows(op: str, keep: int) -> None:
    fold = {
        "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max,
        "ReduceLogSumExp": lambda x, axis, keepdims: np.log(np.exp(x).sum(axis=axis, keepdims=keepdims)),
    }[op]  # fmt: skip
    nodes = [helper.make_node(op, ["x", "a"], ["y"], keepdims=keep)]
    choices = [(0, 2), (1, 2), (-1, 0)]
    for axes, got in zip(choices, _run(nodes, *({"x": X, "a": i64(*a)} for a in choices)), strict=True):
        np.testing.assert_allclose(got, fold(X, axis=axes, keepdims=bool(keep)), rtol=1e-4, atol=1e-5)


def test_slices_by_given_bounds() -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e"], ["y"])]
    bounds = [((0, 0, 1), (2, 1, 3)), ((-2, 0, -9), (99, 9, 9)), ((2, 0, 3), (1, 1, 4))]
    feeds = [{"x": X, "s": i64(*s), "e": i64(*e)} for s, e in bounds]
    for (s, e), got in zip(bounds, _run(nodes, *feeds), strict=True):
        np.testing.assert_array_equal(got, X[tuple(slice(a, b) for a, b in zip(s, e, strict=True))])


@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize("start", [-1, -2, -3, -5, 1, 9])
def test_backwards_from_before_the_first_element(rows: int | str, start: int) -> None:
    """Where it would begin before the first element, such a slice begins there; Python's would be empty."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    first = 2 if start > 2 else max(start, -3) % 3
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    bounds = {"s": i64(start), "e": i64(-99), "a": i64(0), "d": i64(-1)}
    given = [helper.make_tensor_value_info("s", TensorProto.INT64, [1])]
    for late in (False, True):
        known = [onnx.numpy_helper.from_array(v, n) for n, v in bounds.items() if n != "s" or not late]
        nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "d"], ["y"])]
        graph = helper.make_graph(nodes, "g", info + (given if late else []), out, known)
        model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
        feed = {"x": x, "s": bounds["s"]} if late else {"x": x}
        np.testing.assert_array_equal(model.run(feed)["y"], x[first::-1])


def test_scales_that_only_the_run_knows() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest",
                              coordinate_transformation_mode="asymmetric", nearest_mode="floor")]  # fmt: skip
    feeds = [{"x": x, "s": np.array(s, np.float32)} for s in ((1, 1, 2, 3), (1, 1, 1, 0.5))]
    big, small = _run(nodes, *feeds)
    np.testing.assert_array_equal(big, x.repeat(2, axis=2).repeat(3, axis=3))
    np.testing.assert_array_equal(small, x[..., ::2])


def _centre(short: int, side: int) -> onnx.ModelProto:
    """Pixels scaled so that the shorter side is ``short``, and of that the square in the middle."""
    constants = {
        "short": np.float32(short), "one": np.ones(2, np.float32), "side": i64(side), "two": i64(2), "zero": i64(0),
        "four": i64(4), "axes": i64(2, 3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Slice", ["shape", "zero", "two"], ["hw"]),
        helper.make_node("ReduceMin", ["hw"], ["least"], keepdims=0), helper.make_node("Cast", ["least"], ["f"], to=1),
        helper.make_node("Div", ["short", "f"], ["s"]), helper.make_node("Unsqueeze", ["s", "zero"], ["s1"]),
        helper.make_node("Concat", ["one", "s1", "s1"], ["scales"], axis=0),
        helper.make_node("Cast", ["x"], ["p"], to=1),
        helper.make_node("Transpose", ["p"], ["planes"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["planes", "zero"], ["image"]),
        helper.make_node("Resize", ["image", "", "scales"], ["r"], mode="linear"),
        helper.make_node("Shape", ["r"], ["rs"]),
        helper.make_node("Slice", ["rs", "two", "four"], ["rhw"]), helper.make_node("Sub", ["rhw", "side"], ["rest"]),
        helper.make_node("Div", ["rest", "two"], ["from"]), helper.make_node("Add", ["from", "side"], ["to"]),
        helper.make_node("Slice", ["r", "from", "to", "axes"], ["y"]),
    ]  # fmt: skip
    given = helper.make_tensor_value_info("x", TensorProto.UINT8, ["h", "w", 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initial = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [out], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("side", [12, 40])
def test_sizes_computed_from_sizes_are_worked_out_once(side: int) -> None:
    proto = _centre(20, side)  # a side of 40 does not fit: the slice begins at a negative place
    model = tilewright.compile(proto)
    hosts = [s for s in model.plan.steps if isinstance(s, HostStep)]
    assert all(s.once is not None for s in hosts)
    assert len(model.plan.steps) == len(hosts) + 1
    oracle = ReferenceEvaluator(proto)
    rng = np.random.default_rng(3)
    for h, w in ((32, 47), (50, 16), (64, 64), (32, 47), (8, 90)):  # scales that floats hold exactly
        x = rng.integers(0, 255, (h, w, 3), dtype=np.uint8)
        got, want = model.run({"x": x})["y"], oracle.run(None, {"x": x})[0]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2)
        np.testing.assert_array_equal(model.run({"x": x})["y"], got)


def test_what_is_worked_out_once_is_not_given_away() -> None:
    """A caller that writes to an output does not change what later runs read."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Cast", ["shape"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["six"], value_floats=[6.0]),
        helper.make_node("Div", ["six", "f"], ["scales"]),
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Unsqueeze", ["scales", "zero"], ["y"]), helper.make_node("NonZero", ["r"], ["places"]),
    ]  # fmt: skip
    proto = _model(nodes, x=X[0])
    for k, dim in enumerate(("h", "w")):
        proto.graph.input[0].type.tensor_type.shape.dim[k].dim_param = dim
    proto.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, None))
    model = tilewright.compile(proto)
    assert any(isinstance(s, HostStep) and s.once is not None for s in model.plan.steps)
    x = np.ones((2, 3), np.float32)
    for _ in range(3):
        scales, places = model.run(None, {"x": x})
        np.testing.assert_array_equal(scales, [[3, 2]])
        assert places.shape == (2, 36)
        scales[:] = 77


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_running_sum_along_an_axis_that_only_the_run_knows(axis: int) -> None:
    model = tilewright.compile(_model([helper.make_node("CumSum", ["x", "a"], ["y"])], x=X, a=np.array(0)))
    got = model.run({"x": X, "a": np.array(axis)})["y"]
    np.testing.assert_allclose(got, X.cumsum(axis=axis), rtol=1e-5)


def test_bit_cast_shares_its_bytes() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("BitCast", ["n"], ["y"], to=TensorProto.INT32)]
    proto = _model(nodes, x=X)
    proto.opset_import[0].version = 26
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    model = tilewright.compile(proto)
    np.testing.assert_array_equal(model.run({"x": X})["y"], (-X).view(np.int32))
    assert not [s for s in model.plan.steps if isinstance(s, HostStep)]
