"""Operators and attributes of our own are said with ONNX's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import with_broadcasts
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.ops import OPS
from tilewright.reference.evaluate import COMPUTED_HOW
from tilewright.tests.writer.written import assert_written
from tilewright.writer import to_onnx
from tilewright.writer.own import OWN, OWN_ATTRIBUTES

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def attention(queries: str | int, keys: str | int, mask: bool = False, **attrs: int | float) -> Graph:
    b = GraphBuilder("attention")
    operands = [b.input("q", "float32", (2, queries, 8)), b.input("k", "float32", (2, keys, 8))]
    operands.append(b.input("v", "float32", (2, keys, 5)))
    if mask:
        operands.append(b.input("m", "float32", (queries, keys)))
    return b.build(b.op("FusedAttention", *operands, **attrs))


def test_every_operator_of_our_own_is_said() -> None:
    assert OWN.keys() == {name for name, op in OPS.items() if op.own}
    assert OWN_ATTRIBUTES.keys() >= set(COMPUTED_HOW)


def test_attention() -> None:
    assert_written(attention("s", "t", scale=0.25), 13, "Transpose MatMul Mul Softmax MatMul")
    assert_written(attention("s", "t", mask=True), 13, "Transpose MatMul Add Softmax MatMul")
    assert_written(attention(3, 7), 7, "Transpose MatMul Softmax MatMul")


def test_attention_of_several_types() -> None:
    b = GraphBuilder("g")
    q, k, v = (b.input(x, t, ("n", 8)) for x, t in (("q", "float16"), ("k", "float16"), ("v", "float32")))
    graph = b.build(b.op("FusedAttention", q, k, v))
    assert_written(graph, 13, "Cast Cast Transpose MatMul Softmax MatMul Cast", 2e-3)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_causal_attention_of_fixed_sizes(opset: int) -> None:
    ops = "Transpose MatMul Mul Where Softmax MatMul"
    assert_written(attention(3, 7, causal=1, scale=0.5), opset, ops)


@pytest.mark.parametrize(("s", "t"), [(1, 7), (5, 5), (4, 9), (1, 1)])
def test_causal_attention_of_any_size(s: int, t: int) -> None:
    assert_written(attention("s", "t", causal=1), 13, s=s, t=t)


def test_rows_of_nothing_give_zero() -> None:
    b = GraphBuilder("g")
    q, k = b.input("q", "float32", (3, 8)), b.input("k", "float32", (4, 8))
    mask = np.zeros((3, 4), np.float32)
    mask[1] = -np.inf
    graph = b.build(b.op("FusedAttention", q, k, f32(4, 5), mask, nan_rows_to_zero=1))
    assert_written(graph, 17, "Transpose MatMul Add Softmax IsNaN Where MatMul")


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int4, dtypes.uint4], ids=str)
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("zero", [True, False])
def test_products_of_dequantized_weights(dtype: dtypes.DType, blocks: int, zero: bool) -> None:
    b = GraphBuilder("g")
    low, high = (-8, 8) if dtype.kind == "i" else (0, 16)
    w = RNG.integers(low, high, (12, 5)).astype(dtype.numpy)
    z = RNG.integers(low, high, (blocks, 5)).astype(dtype.numpy) if zero else None
    x = b.input("x", "float32", ("n", 12))
    graph = b.build(b.op("MatMulDequantized", x, w, np.abs(f32(blocks, 5)), z))
    assert_written(graph, 21, ort=blocks == 1)
    if dtype.bits < 8:
        with pytest.raises(UnsupportedError, match=r"MatMulDequantized_0.*the lowest opset that can is 21"):
            to_onnx(graph, 20)
    else:
        assert_written(graph, 13)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_bytes_that_are_looked_up(dtype: type) -> None:
    b = GraphBuilder("g")
    q = b.constant(np.arange(256, dtype=np.uint8).view(dtype), "q")
    graph = b.build(b.op("LookUp", q, RNG.integers(-128, 128, 256).astype(np.int8)))
    assert_written(graph, 13, "Cast Gather")


def test_operands_that_broadcast_at_run_time() -> None:
    b = GraphBuilder("g")
    x, y = b.input("x", "float32", ("n", 4, "m")), b.input("y", "float32", ("k", 1, "m"))
    graph = with_broadcasts(b.build(b.op("Add", x, y)))
    assert {n.op for n in graph.nodes} == {"CommonSizes", "BroadcastTo", "Add"}
    for n, k in ((3, 1), (1, 3), (3, 3), (0, 1)):
        assert_written(graph, 13, n=n, k=k, m=2)
    with pytest.raises(UnsupportedError, match="the lowest opset that can is 9"):
        to_onnx(graph, 8)


def test_common_sizes_of_a_scalar() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ())
    graph = b.build(b.op("CommonSizes", x, axes=(), operands=(), dims=(), rank=0))
    assert_written(graph, 13, "Identity")


@pytest.mark.parametrize("zero", [(0, 0, 0), (3, 3, 3), (1, 2, 3)])
def test_zero_points_of_channels(zero: tuple[int, ...]) -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", "uint8", ("n", 2, 4, 4)), RNG.integers(-9, 9, (3, 2, 2, 2)).astype(np.int8)
    graph = b.build(b.op("ConvInteger", x, w, np.uint8(2), np.array(zero, np.int8)))
    same = len(set(zero)) == 1
    model = assert_written(graph, 10, "ConvInteger", ort=same)
    assert len(model.graph.initializer[-1].dims) == (0 if same else 1)


def test_integers_in_channels_last() -> None:
    b = GraphBuilder("g")
    x, w = b.input("x", "uint8", ("n", 4, 4, 2)), RNG.integers(-9, 9, (3, 2, 2, 2)).astype(np.int8)
    graph = b.build(b.op("ConvInteger", x, w, np.uint8(2), np.zeros(3, np.int8), data_layout="NHWC"))
    assert_written(graph, 10, "Transpose ConvInteger Transpose")


def test_a_small_number_of_double_precision() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float64", ("n", 4))
    graph = b.build(b.op("LayerNormalization", x, np.ones(4), epsilon=0.001))
    model = assert_written(graph, 17, "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Identity", 1e-9)
    numbers = [float(a) for t in model.graph.initializer if (a := onnx.numpy_helper.to_array(t)).size == 1]
    assert 0.001 in numbers
    exact = b.build(b.op("LayerNormalization", x, np.ones(4), epsilon=2.0**-10))
    assert_written(exact, 17, tolerance=1e-13, ort=False)


def test_channels_last() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 6, 5, 4))
    y = b.op("Conv", x, f32(3, 4, 2, 2), f32(3), pads=(1, 0, 0, 1), data_layout="NHWC")
    z = b.op("MaxPool", y, kernel_shape=(2, 2), data_layout="NHWC")
    model = assert_written(b.build(z), 11, "Transpose Conv Transpose Transpose MaxPool Transpose")
    assert [n.name for n in model.graph.node if n.op_type == "Conv"] == ["n_Conv_0"]


def test_sums_of_narrower_operands() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float16", ("n", 4))
    y = b.op("MatMul", x, f32(4, 3).astype(np.float16), output_dtype=dtypes.float32)
    assert_written(b.build(y), 13, "Cast Cast MatMul")


def test_how_a_node_is_computed_is_not_said() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 4, 8, 8))
    y = b.op("Conv", x, f32(3, 4, 3, 3), implementation="winograd4", halo=(0, 1), host="no")
    (node,) = assert_written(b.build(y), 11, "Conv").graph.node
    assert [a.name for a in node.attribute] == []
    assert node.name == "n_Conv_0"


def test_numbers_in_bfloat16_that_may_be_flushed() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    assert_written(b.build(b.op("Cast", x, to=dtypes.bfloat16, flush=1)), 13, "Cast", ort=False)
