"""Each converter: the imported graph computes what the old model means. The models are also run as they are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tilewright.frontend import from_onnx
from tilewright.frontend.scope import in_order
from tilewright.frontend.table import CONVERTERS
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.frontend.models import MODELS, model_of

X = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)


def run(model: onnx.ModelProto, **feed: np.ndarray) -> list[Any]:
    graph = from_onnx(model.SerializeToString())
    got = interpret(graph, feed)
    return [got[o] for o in graph.outputs]


def one(
    op: str, opset: int, *inputs: np.ndarray, n_outputs: int = 1, domain: str = "", out_dtype: int | None = None,
    **attrs: Any,
) -> list[Any]:  # fmt: skip
    """The outputs of one node; the first input is fed, the others are constants."""
    names = [f"i{k}" for k in range(len(inputs))]
    outputs = [f"o{k}" for k in range(n_outputs)]
    model = model_of(
        [helper.make_node(op, names, outputs, "node", domain=domain, **attrs)], {"i0": list(inputs[0].shape)},
        outputs[:1], opset, constants=dict(zip(names[1:], inputs[1:], strict=True)),
        dtype=helper.np_dtype_to_tensor_dtype(inputs[0].dtype), out_dtype=out_dtype,
        domains={domain: 1} if domain else None,
    )  # fmt: skip
    for o in outputs[1:]:
        model.graph.output.append(helper.make_empty_tensor_value_info(o))
    return run(model, i0=inputs[0])


def softmax_of_matrix(x: np.ndarray, axis: int) -> np.ndarray:
    m = x.reshape(int(np.prod(x.shape[:axis])), -1)
    e = np.exp(m - m.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).reshape(x.shape)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_before_13_works_on_a_matrix(axis: int) -> None:
    np.testing.assert_allclose(one("Softmax", 11, X, axis=axis)[0], softmax_of_matrix(X, axis), rtol=1e-5)
    np.testing.assert_allclose(one("LogSoftmax", 9, X, axis=axis)[0], np.log(softmax_of_matrix(X, axis)), rtol=1e-4)
    hard = one("Hardmax", 12, X, axis=axis)[0].reshape(int(np.prod(X.shape[:axis])), -1)
    assert (hard.argmax(1) == X.reshape(hard.shape).argmax(1)).all()


def test_softmax_over_the_last_axis_stays_one_node() -> None:
    model = model_of([helper.make_node("Softmax", ["x"], ["y"], axis=2)], {"x": ["a", "b", "c"]}, ["y"], 12)
    assert [n.op for n in from_onnx(model).nodes] == ["Softmax"]


@pytest.mark.parametrize("opset", [8, 10])
def test_clip_bounds(opset: int) -> None:
    np.testing.assert_array_equal(one("Clip", opset, X, min=-0.5, max=0.5)[0], X.clip(-0.5, 0.5))
    np.testing.assert_array_equal(one("Clip", opset, X, max=0.0)[0], np.minimum(X, 0))
    np.testing.assert_array_equal(one("Clip", opset, X)[0], X)
    half = X.astype(np.float16)
    assert one("Clip", opset, half, min=0.0)[0].dtype == np.float16


REDUCTIONS = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.abs(x).sum(**k), "ReduceL2": lambda x, **k: np.sqrt((x * x).sum(**k)),
    "ReduceSumSquare": lambda x, **k: (x * x).sum(**k),
    "ReduceLogSumExp": lambda x, **k: np.log(np.exp(x).sum(**k)),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_with_axes_as_attribute(op: str) -> None:
    f = REDUCTIONS[op]
    np.testing.assert_allclose(one(op, 11, X, axes=[1, -1], keepdims=0)[0], f(X, axis=(1, 3)), rtol=1e-4)
    np.testing.assert_allclose(one(op, 11, X)[0], f(X, axis=None, keepdims=True), rtol=1e-4)


def test_reduce_log_sum_with_axes_as_attribute() -> None:
    x = np.abs(X) + 1
    np.testing.assert_allclose(one("ReduceLogSum", 13, x, axes=[0])[0], np.log(x.sum(0, keepdims=True)), rtol=1e-5)


def test_squeeze_and_unsqueeze_with_axes_as_attribute() -> None:
    assert one("Squeeze", 11, X[:1], axes=[0])[0].shape == (3, 4, 4)
    assert one("Squeeze", 9, X[:1, :1])[0].shape == (4, 4)
    assert one("Unsqueeze", 11, X, axes=[0, 5])[0].shape == (1, 2, 3, 4, 4, 1)


def test_split_forms() -> None:
    a, b = one("Split", 11, X, n_outputs=2, axis=2, split=[1, 3])
    np.testing.assert_array_equal(np.concatenate([a, b], 2), X)
    assert a.shape[2] == 1
    assert [p.shape[3] for p in one("Split", 9, X, n_outputs=2, axis=3)] == [2, 2]
    assert [p.shape[3] for p in one("Split", 13, X, n_outputs=4, axis=3)] == [1, 1, 1, 1]
    assert [p.shape[3] for p in one("Split", 13, X, np.array([3, 1]), n_outputs=2, axis=3)] == [3, 1]


def test_slice_and_pad_with_attributes() -> None:
    np.testing.assert_array_equal(one("Slice", 9, X, starts=[1, -3], ends=[2, 99], axes=[0, 2])[0], X[1:2, :, -3:])
    np.testing.assert_array_equal(one("Slice", 7, X, starts=[0, 1], ends=[9, 2])[0], X[:, 1:2])
    pads = [0, 0, 1, 0, 0, 0, 0, 2]
    widths = [(0, 0), (0, 0), (1, 0), (0, 2)]
    np.testing.assert_array_equal(one("Pad", 10, X, pads=pads)[0], np.pad(X, widths))
    np.testing.assert_array_equal(one("Pad", 8, X, pads=pads, value=2.5)[0], np.pad(X, widths, constant_values=2.5))
    np.testing.assert_array_equal(one("Pad", 8, X, pads=pads, mode="edge")[0], np.pad(X, widths, "edge"))


def test_top_k_with_attribute() -> None:
    values, index = one("TopK", 9, X, n_outputs=2, axis=1, k=2)
    np.testing.assert_array_equal(values, np.sort(X, 1)[:, ::-1][:, :2])
    np.testing.assert_array_equal(np.take_along_axis(X, index, 1), values)


@pytest.mark.parametrize("opset", [7, 9, 10, 12, 22])
def test_dropout_hands_its_input_on(opset: int) -> None:
    y, mask = one("Dropout", opset, X, n_outputs=2, **({"ratio": 0.5} if opset < 12 else {}))
    np.testing.assert_array_equal(y, X)
    assert mask.shape == X.shape
    assert mask.dtype == (np.float32 if opset < 10 else np.bool_)
    assert mask.all()


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_batch_normalization(opset: int) -> None:
    s, b, m, v = (np.array(p, np.float32) for p in ([1, 2, 3], [0, 1, 0], [0.5, 0, -1], [1, 4, 9]))
    bc = [p.reshape(3, 1, 1) for p in (s, b, m, v)]
    want = (X - bc[2]) / np.sqrt(bc[3] + 1e-3) * bc[0] + bc[1]
    got = one("BatchNormalization", opset, X, s, b, m, v, epsilon=1e-3, **({"spatial": 1} if opset < 9 else {}))[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_batch_normalization_with_statistics_per_element() -> None:
    rng = np.random.default_rng(3)
    s, b, m, v = (rng.random((3, 4, 4), np.float32) for _ in range(4))
    got = one("BatchNormalization", 7, X, s, b, m, v, spatial=0)[0]
    np.testing.assert_allclose(got, (X - m) / np.sqrt(v + 1e-5) * s + b, rtol=1e-4, atol=1e-5)


def test_group_normalization_18_has_parameters_per_group() -> None:
    x = np.random.default_rng(4).standard_normal((2, 6, 5)).astype(np.float32)
    s, b = np.array([2, 3], np.float32), np.array([1, -1], np.float32)
    g = x.reshape(2, 2, 15)
    want = (g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)
    want = want * s[:, None] + b[:, None]
    got = one("GroupNormalization", 18, x, s, b, num_groups=2)[0]
    np.testing.assert_allclose(got.reshape(2, 2, 15), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 9])
def test_upsample(opset: int) -> None:
    scales = [1.0, 1.0, 2.0, 3.0]
    nearest = X.repeat(2, 2).repeat(3, 3)
    if opset == 7:
        got = one("Upsample", 7, X, scales=scales, mode="nearest")[0]
    else:
        got = one("Upsample", 9, X, np.array(scales, np.float32), mode="nearest")[0]
    np.testing.assert_array_equal(got, nearest)


def test_resize_10_nearest_takes_the_ceiling_where_it_shrinks() -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    got = one("Resize", 10, x, np.array([1, 1, 0.6, 0.6], np.float32), mode="nearest")[0]
    np.testing.assert_array_equal(got.reshape(-1), [1, 3])
    both = one("Resize", 10, x, np.array([1, 1, 2, 0.6], np.float32), mode="nearest")[0]
    np.testing.assert_array_equal(both[0, 0], [[1, 3], [1, 3], [5, 7], [5, 7]])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_11_with_empty_inputs(mode: str) -> None:
    roi, scales = np.zeros(0, np.float32), np.zeros(0, np.float32)
    sizes = np.array([2, 3, 8, 6], np.int64)
    got = one("Resize", 11, X, roi, scales, sizes, mode=mode)[0]
    np.testing.assert_allclose(got, one("Resize", 19, X, roi, scales, sizes, mode=mode)[0])
    assert got.shape == (2, 3, 8, 6)


def test_resize_11_tf_half_pixel() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    scales = np.array([1, 1, 1, 0.5], np.float32)
    got = one("Resize", 11, x, np.zeros(0, np.float32), scales, mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="tf_half_pixel_for_nn")[0]  # fmt: skip
    np.testing.assert_array_equal(got.reshape(-1), [1, 3])  # floor((i + 0.5) / 0.5)


def test_grid_sample_16() -> None:
    grid = np.random.default_rng(5).uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)
    for old, new in (("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")):
        np.testing.assert_allclose(one("GridSample", 16, X, grid, mode=old)[0],
                                   one("GridSample", 20, X, grid, mode=new)[0])  # fmt: skip


def test_roi_align_10_does_not_shift() -> None:
    rois, batch = np.array([[0, 0, 3, 3]], np.float32), np.array([1], np.int64)
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    np.testing.assert_allclose(
        one("RoiAlign", 10, X, rois, batch, **attrs)[0],
        one("RoiAlign", 16, X, rois, batch, coordinate_transformation_mode="output_half_pixel", **attrs)[0],
    )


def test_dft_17_axis() -> None:
    x = np.random.default_rng(6).standard_normal((1, 4, 5, 1)).astype(np.float32)
    want = np.fft.fft(x[..., 0], axis=2)
    got = one("DFT", 17, x, axis=2)[0]
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-4)


def test_scatter_is_scatter_elements() -> None:
    x = np.zeros((3, 3), np.float32)
    got = one("Scatter", 10, x, np.array([[1, 0, 2]]), np.ones((1, 3), np.float32), axis=0)[0]
    np.testing.assert_array_equal(got, [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_explicit_broadcasting_of_opset_6(op: str) -> None:
    x, b = np.abs(X) + 1, np.array([1, 2, 3], np.float32)
    f = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}[op]
    np.testing.assert_allclose(one(op, 6, x, b, broadcast=1, axis=1)[0], f(x, b.reshape(3, 1, 1)), rtol=1e-5)
    np.testing.assert_allclose(one(op, 6, x, x[0, 0], broadcast=1)[0], f(x, x[0, 0]), rtol=1e-5)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal", "Greater", "Less"])
def test_explicit_broadcasting_of_opset_6_with_bool_results(op: str) -> None:
    logical = op in ("And", "Or", "Xor")
    x = X > 0 if logical else X.astype(np.int32) if op == "Equal" else X
    b = x[1, :, 0, 0].copy()
    f = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Equal": np.equal, "Greater": np.greater,
         "Less": np.less}[op]  # fmt: skip
    got = one(op, 6, x, b, broadcast=1, axis=1, out_dtype=TensorProto.BOOL)[0]
    np.testing.assert_array_equal(got, f(x, b.reshape(3, 1, 1)))


def test_old_forms_of_prelu_gemm_cast_pool_reshape() -> None:
    slope = np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_allclose(one("PRelu", 6, X, slope)[0], np.where(X < 0, X * slope.reshape(3, 1, 1), X))
    a, b, c = X[0, 0], X[0, 1], np.ones(4, np.float32)
    np.testing.assert_allclose(one("Gemm", 6, a, b, c, broadcast=1)[0], a @ b + c, rtol=1e-5)
    assert one("Cast", 5, X, to="INT32", out_dtype=TensorProto.INT32)[0].dtype == np.int32
    assert one("AveragePool", 6, X, kernel_shape=[2, 2])[0].shape == (2, 3, 3, 3)
    assert one("Reshape", 4, X, shape=[6, -1])[0].shape == (6, 16)


CONSUMING = ["Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Selu",
             "Sigmoid", "Sqrt", "Tanh", "Log", "Max", "Mean", "Min", "Sum"]  # fmt: skip


@pytest.mark.parametrize("op", CONSUMING)
def test_consumed_inputs_are_ignored(op: str) -> None:
    x = np.abs(X)
    np.testing.assert_allclose(one(op, 5, x, consumed_inputs=[0])[0], one(op, 13, x)[0])


def test_contrib_gelus() -> None:
    exact = one("Gelu", 20, X)[0]
    bias = np.array([0.5, 0, 1, 2], np.float32)
    ms = {"domain": "com.microsoft"}
    np.testing.assert_allclose(one("Gelu", 20, X, **ms)[0], exact)
    np.testing.assert_allclose(one("BiasGelu", 20, X, bias, **ms)[0], one("Gelu", 20, X + bias)[0], rtol=1e-5)
    tanh = one("Gelu", 20, X, approximate="tanh")[0]
    np.testing.assert_allclose(one("FastGelu", 20, X, **ms)[0], tanh)
    np.testing.assert_allclose(one("QuickGelu", 20, X, **ms)[0], X / (1 + np.exp(-1.702 * X)), rtol=1e-5)


CONSTANTS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"value": numpy_helper.from_array(np.array([[1.5]]))}, np.float64, [[1.5]]),
    ({"value_float": 1.5}, np.float32, 1.5),
    ({"value_floats": [1.0, 2.0]}, np.float32, [1.0, 2.0]),
    ({"value_int": 7}, np.int64, 7),
    ({"value_ints": [1, 2]}, np.int64, [1, 2]),
    ({"value_string": "a"}, object, "a"),
    ({"value_strings": ["a", "b"]}, object, ["a", "b"]),
]


@pytest.mark.parametrize(("attrs", "dtype", "value"), CONSTANTS)
def test_every_form_of_constant(attrs: dict[str, Any], dtype: Any, value: Any) -> None:
    model = model_of([helper.make_node("Constant", [], ["c"], **attrs)], {}, [], 21)
    array = from_onnx(model).constants["c"].array
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(value, dtype))


def test_sparse_constants_and_initializers_are_made_dense() -> None:
    values = numpy_helper.from_array(np.array([5, 6], np.float32), "s")
    flat = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5])), [2, 3])
    pairs = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([[0, 1], [1, 2]])), [2, 3])
    model = model_of([helper.make_node("Constant", [], ["c"], sparse_value=flat)], {}, [], 21)
    model.graph.sparse_initializer.append(pairs)
    graph = from_onnx(model)
    for name in ("c", "s"):
        np.testing.assert_array_equal(graph.constants[name].array, [[0, 5, 0], [0, 0, 6]])


@pytest.mark.parametrize("name", ["shapes", "control", "functions"])
def test_whole_models_compute_what_the_reference_does(name: str) -> None:
    model = MODELS[name]()
    rng = np.random.default_rng(2)
    feed = {i.name: rng.standard_normal([d.dim_value or 3 for d in i.type.tensor_type.shape.dim]).astype(np.float32)
            for i in model.graph.input}  # fmt: skip
    got_all = run(model, **feed)
    nodes = list(in_order(model.graph.node, "test"))  # the reference wants them sorted
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model = onnx.inliner.inline_local_functions(model)
    for got, want in zip(got_all, ReferenceEvaluator(model).run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_every_rule_is_well_formed() -> None:
    for rules in CONVERTERS.values():
        for rule in rules:
            assert rule.until is None or rule.since <= rule.until
            assert rule.makes
        for a, b in pairwise(rules):
            assert a.until is not None
            assert a.until < b.since
