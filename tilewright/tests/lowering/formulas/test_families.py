"""Every family of lowering rules against the reference: awkward static shapes, and the same with symbolic dims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import lower, require_twin

Shape = tuple[int, ...]
Case = Callable[[GraphBuilder, list[str]], "tuple[str, ...]"]


def one(op: str, **attrs: object) -> Case:
    return lambda b, x: b.ops(op, *x, **attrs)  # type: ignore[arg-type]


def with_constants(op: str, *rest: np.ndarray | None, outputs: int = 1, **attrs: object) -> Case:
    return lambda b, x: b.ops(op, *x, *rest, outputs=outputs, **attrs)  # type: ignore[arg-type]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


RNG = np.random.default_rng(7)


def weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _padded_norm(b: GraphBuilder, x: list[str], mode: str) -> tuple[str, ...]:
    y = b.op("InstanceNormalization", x[0], weight(3), weight(3), data_layout="NHWC")
    return b.ops("Pad", b.op("Relu", y), ints(0, 2, 1, 0, 0, 1, 2, 0), mode=mode)


CASES: dict[str, tuple[list[Shape], Case]] = {
    "add_broadcast": ([(2, 1, 5), (3, 1)], one("Add")),
    "gelu": ([(3, 7)], one("Gelu")),
    "gelu_tanh": ([(3, 7)], one("Gelu", approximate="tanh")),
    "softplus": ([(3, 7)], one("Softplus")),
    "selu": ([(3, 7)], one("Selu")),
    "celu": ([(3, 7)], one("Celu", alpha=0.7)),
    "clip": ([(3, 7)], with_constants("Clip", np.float32(-0.5), np.float32(0.25))),
    "clip_max_only": ([(3, 7)], with_constants("Clip", None, np.float32(0.25))),
    "pow_square": ([(3, 7)], with_constants("Pow", np.float32(2))),
    "expand": ([(3, 1)], with_constants("Expand", ints(2, 3, 4))),
    "tile": ([(3, 2)], with_constants("Tile", ints(2, 3))),
    "transpose": ([(2, 3, 5)], one("Transpose", perm=(2, 0, 1))),
    "slice_negative": ([(5, 7)], with_constants("Slice", ints(-3, -1), ints(-1, -100), ints(0, 1), ints(1, -2))),
    "slice_clamped": ([(5, 7)], with_constants("Slice", ints(-9, 2), ints(99, 99), ints(0, 1), ints(1, 3))),
    "concat": ([(2, 3), (2, 1), (2, 5)], one("Concat", axis=1)),
    "split": ([(2, 7)], lambda b, x: b.ops("Split", x[0], ints(3, 4), outputs=2, axis=1)),
    "split_uneven": ([(7, 2)], lambda b, x: b.ops("Split", x[0], outputs=3, axis=0, num_outputs=3)),
    "reshape": ([(2, 3, 8)], with_constants("Reshape", ints(2, -1, 2, 4))),
    "reshape_mixed": ([(4, 6)], with_constants("Reshape", ints(3, 8))),
    "flatten": ([(2, 3, 4)], one("Flatten", axis=2)),
    "depth_to_space": ([(1, 8, 2, 3)], one("DepthToSpace", blocksize=2)),
    "depth_to_space_crd": ([(1, 8, 2, 3)], one("DepthToSpace", blocksize=2, mode="CRD")),
    "space_to_depth": ([(1, 2, 4, 6)], one("SpaceToDepth", blocksize=2)),
    "pad_constant": ([(2, 3)], with_constants("Pad", ints(1, 0, 0, 2), np.float32(1.5))),
    "pad_reflect": ([(4, 5)], with_constants("Pad", ints(2, 3, 1, 4), mode="reflect")),
    "pad_edge": ([(2, 3)], with_constants("Pad", ints(1, 2, 3, 0), mode="edge")),
    "pad_wrap": ([(2, 3)], with_constants("Pad", ints(1, 2, 3, 4), mode="wrap")),
    "gather": ([(4, 5)], with_constants("Gather", np.array([[0, -1], [2, 1]]), axis=1)),
    "gather_nd": ([(4, 5)], with_constants("GatherND", np.array([[0, -1], [2, 1]]))),
    "gather_elements": ([(3, 3)], with_constants("GatherElements", np.array([[1, 2, 0], [-1, 0, 0]]), axis=0)),
    "scatter_elements": (
        [(3, 3)],
        with_constants("ScatterElements", np.array([[1, 1, 0]]), weight(1, 3), axis=0, reduction="add"),
    ),
    "scatter_elements_repeated": (
        [(5,)],
        with_constants("ScatterElements", ints(1, 1, -1, 1), weight(4), axis=0, reduction="mul"),
    ),
    "scatter_nd": ([(4, 3)], with_constants("ScatterND", np.array([[1], [3]]), weight(2, 3))),
    "tensor_scatter": (
        [(2, 5, 3)], with_constants("TensorScatter", weight(2, 2, 3), np.array([0, 3]), axis=1),
    ),
    "tensor_scatter_circular": (
        [(2, 2, 5, 3)], with_constants("TensorScatter", weight(2, 2, 3, 3), np.array([4, 7]), mode="circular"),
    ),
    "trilu_upper": ([(4, 5)], with_constants("Trilu", np.array(1), upper=1)),
    "trilu_lower": ([(4, 5)], with_constants("Trilu", np.array(-1), upper=0)),
    "reduce_sum": ([(2, 3, 5)], with_constants("ReduceSum", ints(0, -1), keepdims=0)),
    "reduce_mean": ([(2, 3, 5)], with_constants("ReduceMean", ints(1), keepdims=1)),
    "reduce_max": ([(2, 3, 5)], one("ReduceMax", keepdims=0)),
    "reduce_l2": ([(2, 3, 5)], with_constants("ReduceL2", ints(2), keepdims=0)),
    "reduce_log_sum_exp": ([(2, 3, 5)], with_constants("ReduceLogSumExp", ints(1), keepdims=0)),
    "argmax": ([(2, 3, 5)], one("ArgMax", axis=1, keepdims=0)),
    "argmin_last": ([(2, 3, 5)], one("ArgMin", axis=-1, keepdims=1, select_last_index=1)),
    "cumsum": ([(2, 5)], with_constants("CumSum", np.array(1), exclusive=1, reverse=1)),
    "softmax": ([(2, 3, 5)], one("Softmax", axis=1)),
    "log_softmax": ([(2, 7)], one("LogSoftmax", axis=-1)),
    "hardmax": ([(2, 7)], one("Hardmax", axis=-1)),
    "layer_norm": (
        [(2, 3, 7)],
        lambda b, x: b.ops("LayerNormalization", x[0], weight(7), weight(7), outputs=3, axis=-1),
    ),
    "rms_norm": ([(2, 7)], with_constants("RMSNormalization", weight(7), axis=-1)),
    **{
        f"{mode}_of_instance_norm": ([(2, 5, 6, 3)], lambda b, x, mode=mode: _padded_norm(b, x, mode))
        for mode in ("reflect", "edge", "wrap", "constant")
    },
    "reflect_of_resize": (
        [(1, 3, 4, 5)],
        lambda b, x: b.ops(
            "Pad", b.op("Resize", x[0], None, np.float32([1, 2, 2, 1])), ints(0, 3, 1, 0, 0, 1, 2, 0), mode="reflect"
        ),
    ),
    "instance_norm": ([(2, 3, 5)], with_constants("InstanceNormalization", weight(3), weight(3))),
    "group_norm": ([(2, 4, 3)], with_constants("GroupNormalization", weight(4), weight(4), num_groups=2)),
    "batch_norm": (
        [(2, 3, 5)],
        with_constants("BatchNormalization", weight(3), weight(3), weight(3), np.abs(weight(3)) + np.float32(0.1)),
    ),
    "lp_norm": ([(2, 7)], one("LpNormalization", axis=-1, p=2)),
    "max_pool": (
        [(1, 2, 7, 5)],
        lambda b, x: b.ops("MaxPool", x[0], outputs=2, kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    ),
    "max_pool_ceil": ([(1, 2, 7)], one("MaxPool", kernel_shape=(2,), strides=(2,), ceil_mode=1)),
    "max_pool_same": ([(1, 2, 5, 6)], one("MaxPool", kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")),
    "average_pool": ([(1, 2, 7, 5)], one("AveragePool", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "average_pool_count": (
        [(1, 2, 8)],
        one("AveragePool", kernel_shape=(3,), strides=(2,), pads=(1, 1), ceil_mode=1, count_include_pad=1),
    ),
    "lp_pool": ([(1, 2, 7)], one("LpPool", kernel_shape=(3,), p=3)),
    "global_average_pool": ([(2, 3, 4, 5)], one("GlobalAveragePool")),
    "resize_nearest": ([(1, 2, 3, 4)], with_constants("Resize", None, np.array([1, 1, 2, 2], np.float32))),
    "resize_linear": (
        [(1, 2, 3, 4)],
        with_constants("Resize", None, np.array([1, 1, 2.5, 0.6], np.float32), mode="linear"),
    ),
    "resize_double": (
        [(1, 2, 3, 4)],
        with_constants("Resize", None, np.array([1, 1, 2, 2], np.float32), mode="cubic"),
    ),
    "resize_cubic": (
        [(1, 1, 4, 4)],
        with_constants("Resize", None, None, ints(1, 1, 7, 9), mode="cubic", exclude_outside=1),
    ),
    "resize_align_corners": (
        [(1, 1, 4, 3)],
        with_constants(
            "Resize", None, None, ints(1, 1, 7, 5), mode="linear", coordinate_transformation_mode="align_corners"
        ),
    ),
    "resize_floor": (
        [(1, 1, 4, 3)],
        with_constants(
            "Resize", None, np.array([1, 1, 2, 3], np.float32), nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
    ),
    "grid_sample": (
        [(1, 2, 4, 5)],
        with_constants("GridSample", (weight(1, 3, 2, 2) / 2), mode="linear", padding_mode="reflection"),
    ),
    "quantize": ([(3, 7)], with_constants("QuantizeLinear", np.float32(0.02), np.uint8(120))),
    "quantize_axis": (
        [(3, 7)],
        with_constants("QuantizeLinear", np.array([0.1, 0.02, 0.5], np.float32), np.zeros(3, np.int8), axis=0),
    ),
    "dynamic_quantize": ([(3, 7)], lambda b, x: b.ops("DynamicQuantizeLinear", x[0], outputs=3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_static(name: str) -> None:
    """Constant dims."""
    shapes, make = CASES[name]
    _run(shapes, make, [list(s) for s in shapes], {})


SYMBOLIC = [
    "add_broadcast", "gelu", "transpose", "concat", "flatten", "pad_reflect", "pad_constant", "gather", "reduce_mean",
    "reduce_sum", "argmax", "cumsum", "softmax", "max_pool", "average_pool", "global_average_pool",
    "resize_nearest", "resize_double", "slice_clamped", "tile", "depth_to_space", "scatter_nd", "quantize",
]  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic(name: str) -> None:
    """Every dim above 1 a symbol, one for each size."""
    shapes, make = CASES[name]
    used = {n for s in shapes for n in s if n > 1}
    _run(shapes, make, [[f"n{d}" if d > 1 else d for d in s] for s in shapes], {f"n{d}": d for d in used})


def _run(shapes: list[Shape], make: Case, declared: list[list[int | str]], dims: dict[str, int]) -> None:
    b = GraphBuilder()
    names = [b.input(f"x{k}", "float32", s) for k, s in enumerate(declared)]
    graph = b.build(*make(b, names))
    rng = np.random.default_rng(11)
    feed = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}
    require_twin(graph, feed, dims, 2e-5)


def _lowered(op: str, x: np.ndarray, *rest: np.ndarray, **attrs: object) -> np.ndarray:
    b = GraphBuilder()
    graph = b.build(b.op(op, b.input("x", "float32", x.shape), *rest, **attrs))  # type: ignore[arg-type]
    return _interpret(graph, x)


def test_lrn_sums_over_neighbouring_channels() -> None:
    """Against numpy: onnx.reference walks the batch instead of the channels."""
    x = weight(2, 5, 2, 2)
    squares = [np.sum(x[:, max(0, k - 1) : k + 2] ** 2, axis=1) for k in range(5)]
    want = x / (1.0 + 1e-4 / 3 * np.stack(squares, axis=1)) ** 0.75
    np.testing.assert_allclose(_lowered("LRN", x, size=3), want, rtol=1e-5)


def test_l1_norm_takes_absolute_values() -> None:
    """Against numpy: onnx.reference sums the signed values."""
    x = weight(2, 7)
    want = x / np.abs(x).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(_lowered("LpNormalization", x, axis=-1, p=1), want, rtol=1e-5)


def test_negative_pads_cut_off() -> None:
    """Against numpy: onnx.reference refuses negative pads."""
    x = weight(4, 5)
    want = np.pad(x[1:, :3], ((0, 0), (1, 0)))
    np.testing.assert_array_equal(_lowered("Pad", x, ints(-1, 1, 0, -2)), want)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent(op: str, gates: int, direction: str) -> None:
    """The reference only runs one direction, so the others are put together from it."""
    count = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = 4, 2, 3, 5
    rng = np.random.default_rng(3)
    w = rng.standard_normal((count, gates * hidden, size)).astype(np.float32) * np.float32(0.5)
    r = rng.standard_normal((count, gates * hidden, hidden)).astype(np.float32) * np.float32(0.5)
    bias = rng.standard_normal((count, 2 * gates * hidden)).astype(np.float32) * np.float32(0.5)
    x = rng.standard_normal((steps, batch, size)).astype(np.float32)
    got = _recurrent(op, x, w, r, bias, hidden, direction, lowered=True)
    parts = []
    for d in range(count):
        backwards = direction == "reverse" or d == 1
        one_way = slice(d, d + 1)
        y = _recurrent(op, x[::-1] if backwards else x, w[one_way], r[one_way], bias[one_way], hidden, "forward", False)
        parts.append(y[::-1] if backwards else y)
    np.testing.assert_allclose(got, np.concatenate(parts, axis=1), rtol=1e-4, atol=1e-5)


def _recurrent(
    op: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, bias: np.ndarray, hidden: int, direction: str, lowered: bool
) -> np.ndarray:
    from_graph = GraphBuilder()
    name = from_graph.input("x", "float32", x.shape)
    attrs = {"hidden_size": hidden, "direction": direction}
    (y,) = from_graph.ops(op, name, w, r, bias, outputs=1, **attrs)
    graph = from_graph.build(y)
    if lowered:
        return _interpret(graph, np.ascontiguousarray(x))
    from_reference = require_twin(graph, {"x": np.ascontiguousarray(x)}, {}, 1e-4)
    assert from_reference.outputs == (y,)
    return _interpret(graph, np.ascontiguousarray(x))


def _interpret(graph: object, x: np.ndarray) -> np.ndarray:
    low = lower(graph)  # type: ignore[arg-type]
    args = [x, *(p.evaluate(graph.constants) for p in low.constants)]  # type: ignore[attr-defined]
    return interpret(low.func, args, {})[0]


def test_pow_of_integers_to_whole_powers_is_exact() -> None:
    b = GraphBuilder("g")
    g = b.build(b.op("Pow", b.input("x", "int32", (4,)), b.input("y", "float32", (4,))))
    require_twin(g, {"x": np.array([3, 9, 7, 2], np.int32), "y": np.array([6, 3, 5, 0.5], np.float32)})
