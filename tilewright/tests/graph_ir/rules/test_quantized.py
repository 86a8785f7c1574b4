"""Quantized networks: products of dequantized operands on integers, bytes that are only moved, scales in factors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.passes.base import PassContext
from tilewright.machine.costs import GENERIC
from tilewright.tests.graph_ir.rewriting import apply, as_pass, built, reasons, require_fires, require_refused

F = np.float32
Build = Callable[[GraphBuilder], "str | Sequence[str]"]
RNG = np.random.default_rng(5)
SCALE, OTHER = np.array(0.125, F), np.array(0.3, F)


def u8(x: int) -> np.ndarray:
    return np.array(x, np.uint8)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-100, 100, shape).astype(np.int8)


def image(b: GraphBuilder, dtype: str = "uint8", scale: np.ndarray = SCALE, zero: np.ndarray | None = None) -> str:
    return b.op("DequantizeLinear", b.input("q", dtype, ("n", 4, 5, 6)), scale, u8(3) if zero is None else zero)


def rows(b: GraphBuilder) -> str:
    return b.op("DequantizeLinear", b.input("q", "uint8", ("n", 6)), SCALE, u8(3))


def weight(b: GraphBuilder, w: np.ndarray, axis: int | None = None) -> str:
    """A dequantized constant; ``axis``: with a scale for each of its indices."""
    if axis is None:
        return b.op("DequantizeLinear", b.constant(w, "w"), OTHER)
    scales = np.linspace(0.1, 0.5, w.shape[axis]).astype(F)
    return b.op("DequantizeLinear", b.constant(w, "w"), scales, axis=axis)


def conv(b: GraphBuilder, axis: int | None = 0, bias: bool = True, **attrs: object) -> str:
    operands = [image(b), weight(b, i8(3, 4, 3, 3), axis), *([b.constant(np.ones(3, F), "bias")] if bias else [])]
    return b.op("Conv", *operands, pads=(1, 1, 1, 1), **attrs)  # type: ignore[arg-type]


def matmul(b: GraphBuilder, axis: int | None = 1) -> str:
    return b.op("MatMul", rows(b), weight(b, i8(6, 4), axis))


def weight_only(b: GraphBuilder) -> str:
    return b.op("MatMul", b.input("x", "float32", ("n", 128)), weight(b, i8(128, 130), 1))


def gemm(b: GraphBuilder) -> str:
    return b.op("Gemm", rows(b), weight(b, i8(4, 6), 0), b.constant(np.ones(4, F), "c"), transB=1)


def qlinear_conv(b: GraphBuilder) -> str:
    x = b.input("x", "uint8", ("n", 4, 5, 6))
    w, sw, zw = b.constant(i8(3, 4, 3, 3), "w"), np.linspace(0.01, 0.05, 3).astype(F), np.zeros(3, np.int8)
    bias = b.constant(np.array([5, -7, 0], np.int32), "bias")
    return b.op("QLinearConv", x, SCALE, u8(3), w, sw, zw, OTHER, u8(99), bias)


def qlinear_matmul(b: GraphBuilder) -> str:
    x, w = b.input("x", "uint8", ("n", 6)), b.constant(i8(6, 4), "w")
    return b.op("QLinearMatMul", x, SCALE, u8(3), w, OTHER, np.array(2, np.int8), OTHER, u8(9))


def through(*nodes: Callable[[GraphBuilder, str], str], scale: np.ndarray = SCALE) -> Build:
    """Dequantized, the nodes, quantized with the same parameters."""

    def build(b: GraphBuilder) -> str:
        x = image(b)
        for node in nodes:
            x = node(b, x)
        return b.op("QuantizeLinear", x, scale, u8(3))

    return build


def turn(b: GraphBuilder, x: str) -> str:
    return b.op("Transpose", x, perm=(0, 2, 3, 1))


def pool(b: GraphBuilder, x: str) -> str:
    return b.op("MaxPool", x, kernel_shape=(2, 2))


def clip(b: GraphBuilder, x: str) -> str:
    return b.op("Clip", x, np.array(-0.2, F), np.array(0.3, F))


def joined(b: GraphBuilder) -> str:
    other = b.op("DequantizeLinear", b.input("r", "uint8", ("n", 2, 5, 6)), OTHER, u8(7))
    return b.op("QuantizeLinear", b.op("Concat", image(b), other, axis=1), SCALE, u8(3))


def moved(op: str, *inputs: np.ndarray | str, scale: np.ndarray = SCALE, **attrs: object) -> Build:
    """A product of float32 that is moved and quantized."""

    def build(b: GraphBuilder) -> str:
        w = np.random.default_rng(5).standard_normal((4, 4, 1, 1)).astype(F)
        x = b.op("Conv", b.input("x", "float32", ("n", 4, 5, 6)), w)
        return b.op("QuantizeLinear", b.op(op, x, *inputs, **attrs), scale, u8(3))  # type: ignore[arg-type]

    return build


def skipped(b: GraphBuilder) -> str:
    """What is pooled is read by a sum of float32, too."""
    x = b.op("Relu", b.input("x", "float32", ("n", 4, 5, 6)))
    small = b.op("DequantizeLinear", b.op("QuantizeLinear", pool(b, x), SCALE, u8(3)), SCALE, u8(3))
    return b.op("Add", b.op("ReduceMax", x, np.array([2, 3]), keepdims=1), small)


PADS = np.array([0, 0, 1, 2, 0, 0, 0, 1])
LARGER = np.array([1, 1, 2, 3], F)


def signed(b: GraphBuilder, more: bool = False) -> tuple[str, ...]:
    q = b.op("QuantizeLinear", b.input("x", "float32", ("n", 4)), SCALE, np.array(-5, np.int8))
    product = b.op("MatMulInteger", q, b.constant(i8(4, 3), "w"), np.array(-5, np.int8))
    others = (b.op("Cast", q, to=dtypes.int32),) if more else ()
    return b.op("DequantizeLinear", q, SCALE, np.array(-5, np.int8)), product, *others


def relu(b: GraphBuilder) -> str:
    return b.op("QuantizeLinear", b.op("Relu", b.input("x", "float32", ("n", 4))), SCALE, u8(0))


def sums(b: GraphBuilder) -> str:
    y = b.op("DequantizeLinear", b.input("r", "uint8", ("n", 4, 5, 6)), OTHER, u8(7))
    x = b.op("Cast", b.input("x", "int32", ("n", 4, 5, 6)), to=dtypes.float32)
    scaled = b.op("Add", b.op("Mul", x, np.full((4, 1, 1), 0.7, F)), np.full((4, 1, 1), 0.1, F))
    bounded = b.op("Clip", b.op("Add", scaled, y), np.array(-1, F), np.array(5, F))
    return b.op("QuantizeLinear", bounded, SCALE, u8(7))


def residual(b: GraphBuilder) -> str:
    x, y = (
        b.op("DequantizeLinear", b.input(n, "uint8", ("n", 4)), np.array(t, F), u8(7))
        for n, t in (("x", 0.0517), ("y", 0.0391))
    )
    return b.op("QuantizeLinear", b.op("Add", x, y), np.array(0.0773, F), u8(9))


def centred(op: str, zero: np.ndarray | None, least: int = 60, most: int = 180) -> Build:
    """A product with a uint8 weight, elements of ``least`` to ``most``."""

    def build(b: GraphBuilder) -> str:
        shape = (5, 4, 2, 3) if op == "ConvInteger" else (6, 5)
        w = np.random.default_rng(3).integers(least, most, shape).astype(np.uint8)
        x = b.input("q", "uint8", ("n", 4, 5, 6) if op == "ConvInteger" else ("n", 6))
        return b.op(op, x, b.constant(w, "w"), u8(3), *(() if zero is None else (b.constant(zero, "z"),)))

    return build


def between_bytes(b: GraphBuilder) -> str:
    """A depthwise convolution, computed in float32."""
    w = np.random.default_rng(7).standard_normal((4, 1, 3, 3)).astype(F)
    x = image(b, scale=np.array(0.0517, F))
    y = b.op("Conv", x, b.constant(w, "w"), np.linspace(-1, 1, 4).astype(F), group=4, pads=(1, 1, 1, 1))
    return b.op("QuantizeLinear", y, np.array(0.0373, F), u8(100))


def depthwise(b: GraphBuilder, filters: int = 1, **attrs: object) -> str:
    return b.op("Conv", image(b), weight(b, i8(4 * filters, 1, 3, 3)), group=4, **attrs)  # type: ignore[arg-type]


FIRES: list[tuple[list[str], Build, list[str]]] = [
    (["integer_conv"], conv, ["ConvInteger", "Reshape", "Cast", "Mul", "Mul", "Reshape", "Add"]),
    (["integer_conv"], lambda b: conv(b, None, False), ["ConvInteger", "Cast", "Mul", "Mul"]),
    (["integer_conv"], lambda b: conv(b, bias=False, strides=(2, 1)), ["ConvInteger", "Reshape", "Cast", "Mul", "Mul"]),
    (["integer_matmul"], matmul, ["MatMulInteger", "Cast", "Mul", "Mul"]),
    (["integer_matmul"], lambda b: matmul(b, None), ["MatMulInteger", "Cast", "Mul", "Mul"]),
    (["quantized_gemm", "turned_weight", "integer_matmul"], gemm, ["MatMulInteger", "Cast", "Mul", "Mul", "Add"]),
    (
        ["qlinear_conv"], qlinear_conv,
        ["ConvInteger", "Reshape", "Add", "Mul", "Div", "Reshape", "Cast", "Mul", "QuantizeLinear"],
    ),
    (["qlinear_matmul"], qlinear_matmul, ["MatMulInteger", "Mul", "Div", "Cast", "Mul", "QuantizeLinear"]),
    (["dequantize_later", "quantized_before"], through(turn, pool), ["Transpose", "MaxPool"]),
    (["clipped_bytes"], through(clip), ["Clip"]),
    (["clipped_bytes"], through(lambda b, x: b.op("Relu", x)), ["Clip"]),
    (["quantize_before", "quantized_before"], joined, ["DequantizeLinear", "QuantizeLinear", "Concat"]),
    (["quantize_before"], moved("MaxPool", kernel_shape=(2, 2)), ["Conv", "QuantizeLinear", "MaxPool"]),
    (["quantize_before"], moved("Transpose", perm=(0, 2, 3, 1)), ["Conv", "QuantizeLinear", "Transpose"]),
    (["quantize_before"], moved("Pad", PADS), ["Conv", "QuantizeLinear", "QuantizeLinear", "Pad"]),
    (["quantize_before"], moved("Pad", PADS, np.array(-0.4, F)), ["Conv", "QuantizeLinear", "QuantizeLinear", "Pad"]),
    (["quantize_before"], moved("Pad", PADS, mode="reflect"), ["Conv", "QuantizeLinear", "QuantizeLinear", "Pad"]),
    (["quantize_before"], moved("Resize", "", LARGER, mode="nearest"), ["Conv", "QuantizeLinear", "Resize"]),
    (["packed_weight"], weight_only, ["MatMulDequantized"]),
    (["integer_conv"], depthwise, ["ConvInteger", "Cast", "Mul", "Mul"]),
    (["centred_conv_weight"], centred("ConvInteger", u8(120)), ["ConvInteger"]),
    (["centred_conv_weight"], centred("ConvInteger", np.arange(100, 105).astype(np.uint8)), ["ConvInteger"]),
    (["centred_matmul_weight"], centred("MatMulInteger", np.arange(100, 105).astype(np.uint8)), ["MatMulInteger"]),
    (["centred_matmul_weight"], centred("MatMulInteger", None, 0, 128), ["MatMulInteger"]),
    (["unsigned_bytes"], signed, ["QuantizeLinear", "MatMulInteger", "QuantizeLinear", "DequantizeLinear"]),
    (["relu_by_saturation"], relu, ["QuantizeLinear"]),
    (["scale_before_sums"], sums, ["Cast", "Mul", "Add", "DequantizeLinear", "Add", "Clip", "QuantizeLinear"]),
    (["scale_before_sums"], residual, ["DequantizeLinear", "DequantizeLinear", "Add", "QuantizeLinear"]),
    (["scale_before_sums", "scale_into_weights"], between_bytes, ["DequantizeLinear", "Conv", "QuantizeLinear"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "build", "want"), FIRES, ids=[f"{n}-{'-'.join(a)}" for n, (a, *_) in enumerate(FIRES)]
)
def test_it_fires(names: list[str], build: Build, want: list[str]) -> None:
    require_fires(build, names, want)


def two_scales(b: GraphBuilder) -> str:
    x = b.op("DequantizeLinear", b.input("q", "uint8", ("n", 6)), np.linspace(0.1, 0.6, 6).astype(F))
    return b.op("MatMul", x, weight(b, i8(6, 4)))


def long_sum(b: GraphBuilder) -> str:
    x = b.op("DequantizeLinear", b.input("q", "uint8", ("n", 40_000)), SCALE)
    return b.op("MatMul", x, weight(b, np.ones((40_000, 2), np.int8)))


def half(b: GraphBuilder) -> str:
    x = b.op("DequantizeLinear", b.input("q", "uint8", ("n", 6)), SCALE.astype(np.float16))
    return b.op("MatMul", x, b.op("DequantizeLinear", b.constant(i8(6, 4), "w"), OTHER.astype(np.float16)))


def given_zero(b: GraphBuilder) -> str:
    return b.op(
        "MatMulInteger", b.input("q", "uint8", ("n", 6)), np.ones((6, 5), np.uint8), u8(3), b.input("z", "uint8", ())
    )


REFUSED: list[tuple[str, Build, str]] = [
    ("integer_matmul", two_scales, "more than one scale"),
    ("integer_matmul", lambda b: matmul(b, 0), "index of axis 1"),
    ("integer_matmul", long_sum, "sums of 40000 products"),
    ("integer_matmul", half, "not float32"),
    ("integer_conv", lambda b: depthwise(b, 2), "1 input channels a group"),
    ("integer_conv", lambda b: depthwise(b, dilations=(2, 1)), "1 input channels a group"),
    ("centred_conv_weight", centred("ConvInteger", u8(20)), "does not fit in int8"),
    ("centred_matmul_weight", centred("MatMulInteger", None, 0, 256), "does not fit in int8"),
    ("centred_matmul_weight", given_zero, "not constant"),
    ("integer_conv", lambda b: conv(b, 1), "index of axis 0"),
    ("dequantize_later", lambda b: pool(b, image(b, scale=np.array(-0.5, F))), "negative"),
    ("unsigned_bytes", lambda b: signed(b, True), "something else"),
    ("quantize_before", moved("Resize", "", LARGER, mode="linear"), "no copy"),
    ("quantize_before", moved("MaxPool", scale=np.array(-0.5, F), kernel_shape=(2, 2)), "negative"),
    ("quantize_before", skipped, "something else"),
]


@pytest.mark.parametrize(("name", "build", "reason"), REFUSED, ids=[f"{n}-{r[0]}" for n, r in enumerate(REFUSED)])
def test_it_is_refused(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)


def test_depthwise_ones_stay_in_float32_where_bytes_are_slow() -> None:
    graph = built(depthwise)
    costs = dataclasses.replace(GENERIC, byte_words=3.0)
    ctx = dataclasses.replace(PassContext.for_graph(graph, enabled=("integer_conv",)), costs=costs)
    assert as_pass("integer_conv").apply(graph, ctx) is graph
    assert "this CPU computes depthwise convolutions faster" in reasons(ctx)


def test_fast_algorithms_run_in_whole_numbers_where_those_are_fast() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.op("DequantizeLinear", b.input("x", "uint8", (1, 16, 8, 8)), np.array(0.1, F), u8(0))
        w = b.op("DequantizeLinear", b.constant(np.ones((16, 16, 3, 3), np.int8), "w"), np.array(0.2, F))
        return b.op("Conv", x, w, pads=(1, 1, 1, 1))

    graph = built(build)
    for cost, ops in ((0.6, {"ConvInteger"}), (1.5, {"Conv"})):
        ctx = PassContext.for_graph(graph, enabled=("integer_conv",))
        ctx = dataclasses.replace(ctx, costs=dataclasses.replace(GENERIC, byte_products=cost))
        new = as_pass("integer_conv").apply(graph, ctx)
        assert {n.op for n in new.nodes} & {"Conv", "ConvInteger"} == ops
    assert "by Winograd's algorithm in float32" in reasons(ctx)


def test_quotients_beyond_float32_stay_quotients() -> None:
    b = GraphBuilder()
    x = b.op("Mul", b.input("x", "float32", ("n",)), np.array(1e30, F))
    graph = b.build(b.op("QuantizeLinear", x, np.array(1e-20, F), u8(0)))
    assert apply(graph, "scale_before_sums")[0] is graph


def test_scales_that_other_nodes_need_stay() -> None:
    def build(b: GraphBuilder) -> tuple[str, str]:
        x = image(b)
        return b.op("Conv", x, b.constant(np.ones((4, 1, 3, 3), F), "w"), group=4), b.op("Relu", x)

    graph = built(build)
    assert apply(graph, "scale_into_weights")[0] is graph


@pytest.mark.parametrize(
    ("names", "build"), [f[:2] for f in FIRES if f[0] in (["clipped_bytes"], ["relu_by_saturation"])]
)
def test_all_bytes_are_as_before(names: list[str], build: Build) -> None:
    graph = built(build)
    new, _ = apply(graph, *names)
    (x,) = graph.inputs
    shape = tuple(d.evaluate({"n": 3}) for d in graph.values[x].shape)
    numbers = np.resize(np.arange(-40, 300, dtype=np.float64), shape)
    feed = {x: numbers.astype(graph.values[x].dtype.numpy)}
    for k, want in interpret(graph, feed).items():
        np.testing.assert_array_equal(interpret(new, feed)[k], want)
