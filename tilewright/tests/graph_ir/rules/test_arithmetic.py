"""Algebra, activations, norms, scales, products and row views: fires, refuses, keeps the numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.rules.algebra import is_lossless
from tilewright.tests.graph_ir.rewriting import apply, built, ops, reasons

F = np.float32
Build = Callable[[GraphBuilder], str]


def f(x: float) -> np.ndarray:
    return np.array(x, dtype=F)


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def pos(*shape: int) -> np.ndarray:
    return np.abs(rand(*shape, seed=9)) + F(0.5)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def x2(b: GraphBuilder) -> str:
    return b.input("x", "float32", ("n", 6))


def image(b: GraphBuilder) -> str:
    return b.input("x", "float32", ("n", 4, 7, 5))


def excited(
    b: GraphBuilder, size: int, w: np.ndarray, *bias: np.ndarray, images: int = 1, gate: np.ndarray | None = None
) -> str:
    """A convolution of an image whose channels are scaled by what the model computes: four, or one for all of
    ``gate``."""
    x = b.input("x", "float32", (images, 4 if gate is None else 1, size, size))
    scale = b.op("Sigmoid", b.op("GlobalAveragePool", x) if gate is None else b.op("Exp", gate))
    return b.op("Conv", b.op("Mul", scale, x), w, *bias)


def gelu_erf(b: GraphBuilder, form: int) -> str:
    x = x2(b)
    gate = b.op(
        "Add", b.op("Erf", b.op("Div", x, f(np.sqrt(2))) if form % 2 else b.op("Mul", x, f(np.sqrt(0.5)))), f(1)
    )
    if form < 2:
        return b.op("Mul", b.op("Mul", x, gate), f(0.5))
    if form < 4:
        return b.op("Mul", b.op("Mul", x, f(0.5)), gate)
    return b.op("Mul", b.op("Mul", gate, f(0.5)), x)


def gelu_tanh(b: GraphBuilder, cube: str) -> str:
    x = x2(b)
    x3 = b.op("Pow", x, f(3)) if cube == "pow" else b.op("Mul", b.op("Mul", x, x), x)
    inner = b.op("Add", x, b.op("Mul", x3, f(0.044715)))
    gate = b.op("Add", b.op("Tanh", b.op("Mul", inner, f(np.sqrt(2 / np.pi)))), f(1))
    return b.op("Mul", b.op("Mul", x, f(0.5)), gate)


def layer_norm(b: GraphBuilder, axis: int = -1, mul: bool = False) -> str:
    x = b.input("x", "float32", ("n", 3, 6))
    d = b.op("Sub", x, b.op("ReduceMean", x, i64(axis)))
    sq = b.op("Mul", d, d) if mul else b.op("Pow", d, f(2))
    std = b.op("Sqrt", b.op("Add", b.op("ReduceMean", sq, i64(axis)), f(1e-5)))
    y = b.op("Div", d, std)
    return b.op("Add", b.op("Mul", y, pos(6)), rand(6))


def batchnorm(b: GraphBuilder, x: str, n: int) -> str:
    return b.op("BatchNormalization", x, pos(n), rand(n, seed=1), rand(n, seed=2), pos(n), epsilon=1e-3)


def attention(
    b: GraphBuilder, mask: bool = True, axis: int = -1, rows: int = 5, scale: float | None = 2.0,
    instead: float | None = None, other: bool = False,
) -> str:  # fmt: skip
    q = b.input("q", "float32", ("n", 2, rows, 4))
    k = b.input("k", "float32", ("n", 2, 4, 7))
    v = b.input("v", "float32", ("n", 2, 7, 3))
    s = b.op("Div", b.op("MatMul", q, k), rand(2, 1, 1) if scale is None else f(scale))
    if mask:
        s = b.op("Add", s, b.input("m", "float32", ("n", 1, 1, 7)))
    weights = b.op("Softmax", s, axis=axis)
    if instead is not None:  # of weights that are NaN
        weights = b.op("Where", b.op("IsNaN", weights), f(instead), s if other else weights)
    return b.op("MatMul", weights, v)


FIRES: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (("div_power_of_two",), lambda b: b.op("Div", x2(b), f(8)), ["Mul"]),
    (
        ("cast_cast",),
        lambda b: b.op("Cast", b.op("Cast", b.input("x", "int32", (4,)), to=dtypes.int64), to=dtypes.float32),
        ["Cast"],
    ),
    (("mul_mul",), lambda b: b.op("Mul", b.op("Mul", x2(b), f(3)), rand(6)), ["Mul"]),
    (("add_add",), lambda b: b.op("Add", b.op("Add", x2(b), rand(6)), f(3)), ["Add"]),
    (
        ("not_comparison",),
        lambda b: b.op("Not", b.op("Less", b.input("x", "int32", (9,)), np.array(2, np.int32))),
        ["GreaterOrEqual"],
    ),
    (
        ("bool_equals_zero",),
        lambda b: b.op("Equal", b.op("Cast", b.input("x", "bool", (9,)), to=dtypes.int32), np.array(0, np.int32)),
        ["Not"],
    ),
    (("pow_two",), lambda b: b.op("Pow", x2(b), f(2)), ["Mul"]),
    (("pow_three",), lambda b: b.op("Pow", x2(b), f(3)), ["Mul", "Mul"]),
    (("pow_half",), lambda b: b.op("Pow", b.op("Abs", x2(b)), f(0.5)), ["Abs", "Sqrt"]),
    *(((f"gelu_erf_{1 - k % 2}_{(0, 0, 2, 2, 1, 1)[k]}",), lambda b, k=k: gelu_erf(b, k), ["Gelu"]) for k in range(6)),
    (("gelu_tanh_0_2",), lambda b: gelu_tanh(b, "pow"), ["Gelu"]),
    (("gelu_tanh_2_2",), lambda b: gelu_tanh(b, "mul"), ["Gelu"]),
    (("hard_swish",), lambda b: b.op("Mul", x := x2(b), b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)), ["HardSwish"]),
    (("layer_norm_div_pow", "layer_norm_scale", "layer_norm_bias"), layer_norm, ["LayerNormalization"]),
    (
        ("layer_norm_div_mul", "layer_norm_scale", "layer_norm_bias"),
        lambda b: layer_norm(b, mul=True),
        ["LayerNormalization"],
    ),
    (("batchnorm_into_conv",), lambda b: batchnorm(b, b.op("Conv", image(b), rand(6, 4, 3, 3), rand(6)), 6), ["Conv"]),
    (("batchnorm_into_conv",), lambda b: batchnorm(b, b.op("Conv", image(b), rand(6, 2, 3, 3), group=2), 6), ["Conv"]),
    (
        ("batchnorm_into_conv",),
        lambda b: batchnorm(b, b.op("ConvTranspose", image(b), rand(4, 3, 2, 2), group=2), 6),
        ["ConvTranspose"],
    ),
    (("batchnorm_into_conv",), lambda b: batchnorm(b, b.op("Gemm", x2(b), rand(5, 6), rand(5), transB=1), 5), ["Gemm"]),
    (
        ("scale_into_conv",),
        lambda b: b.op("Mul", b.op("Conv", image(b), rand(6, 4, 3, 3), rand(6)), rand(6, 1, 1)),
        ["Conv"],
    ),
    (("scale_into_conv",), lambda b: b.op("Mul", b.op("Conv", image(b), rand(6, 4, 3, 3)), f(0.5)), ["Conv"]),
    (("shift_into_conv",), lambda b: b.op("Add", b.op("Conv", image(b), rand(6, 4, 3, 3)), rand(1, 6, 1, 1)), ["Conv"]),
    (("batchnorm_as_affine",), lambda b: batchnorm(b, image(b), 4), ["Mul", "Add"]),
    (
        ("scale_of_input_into_weight",),
        lambda b: excited(b, 10, rand(6, 4, 1, 1), rand(6)),
        ["GlobalAveragePool", "Sigmoid", "Mul", "Conv"],
    ),
    (
        ("scale_of_input_into_weight",),
        lambda b: excited(b, 10, rand(6, 4, 1, 1)),
        ["GlobalAveragePool", "Sigmoid", "Mul", "Conv"],
    ),
    (("gemm_bias",), lambda b: b.op("Gemm", x2(b), rand(5, 6), rand(5), transB=1), ["MatMul", "Add"]),
    (
        ("gemm_bias",),
        lambda b: b.op("Gemm", x2(b), rand(6, 5), b.input("c", "float32", (5,)), alpha=0.5, beta=2.0),
        ["MatMul", "Mul", "Mul", "Add"],
    ),
    (
        ("gemm",),
        lambda b: b.op("Gemm", b.input("x", "float32", (6, "n")), b.input("y", "float32", (5, 6)), transA=1, transB=1),
        ["Transpose", "Transpose", "MatMul"],
    ),
    (("scale_after_matmul_left",), lambda b: b.op("MatMul", b.op("Mul", x2(b), f(0.3)), rand(6, 5)), ["MatMul", "Mul"]),
    (
        ("scale_after_matmul_right",),
        lambda b: b.op("MatMul", x2(b), b.op("Mul", b.input("y", "float32", (6, 5)), f(0.3))),
        ["MatMul", "Mul"],
    ),
    (
        ("matmul_of_rows",),
        lambda b: b.op("MatMul", b.op("Reshape", b.input("x", "float32", ("n", 3, 6)), i64(-1, 6)), rand(6, 5)),
        ["MatMul", "Reshape"],
    ),
    (
        ("elementwise_of_rows",),
        lambda b: b.op("Add", b.op("Reshape", b.input("x", "float32", ("n", 3, 6)), i64(-1, 6)), rand(6)),
        ["Add", "Reshape"],
    ),
    (
        ("elementwise_of_rows_right",),
        lambda b: b.op("Sub", rand(6), b.op("Reshape", b.input("x", "float32", ("n", 3, 6)), i64(-1, 6))),
        ["Sub", "Reshape"],
    ),
    (
        ("norm_of_rows",),
        lambda b: b.op("LayerNormalization", b.op("Reshape", b.input("x", "float32", ("n", 3, 6)), i64(-1, 6)), pos(6)),
        ["LayerNormalization", "Reshape"],
    ),
    (
        ("matmul_between_views",),
        lambda b: b.op(
            "Reshape",
            b.op("MatMul", b.op("Reshape", b.input("x", "float32", ("n", 3, 2, 3)), i64(-1, 6)), rand(6, 5)),
            i64(-1, 3, 5),
        ),
        ["Reshape", "MatMul"],
    ),
    (
        ("matmul_add_between_views",),
        lambda b: b.op(
            "Reshape",
            b.op(
                "Add",
                b.op("MatMul", b.op("Reshape", b.input("x", "float32", ("n", 3, 2, 3)), i64(-1, 6)), rand(6, 5)),
                rand(5),
            ),
            i64(-1, 3, 5),
        ),
        ["Reshape", "MatMul", "Add"],
    ),
    (("attention_div_mask",), attention, ["Transpose", "FusedAttention"]),
    (("attention_div",), lambda b: attention(b, mask=False), ["Transpose", "FusedAttention"]),
    (("attention_div_mask_guarded",), lambda b: attention(b, instead=0), ["Transpose", "FusedAttention"]),
]

STAYS: list[tuple[str, Build, str]] = [
    ("div_power_of_two", lambda b: b.op("Div", x2(b), f(3)), "not a power of two"),
    ("div_power_of_two", lambda b: b.op("Div", x2(b), f(2.0**100)), "leave the range"),
    ("cast_cast", lambda b: b.op("Cast", b.op("Cast", x2(b), to=dtypes.int32), to=dtypes.float32), "loses information"),
    ("mul_mul", lambda b: b.op("Mul", b.op("Mul", x2(b), rand(6)), rand(3, 1, 1)), "larger than both"),
    ("mul_mul", lambda b: b.op("Add", y := b.op("Mul", x2(b), f(2)), b.op("Mul", y, f(3))), "also used elsewhere"),
    ("not_comparison", lambda b: b.op("Not", b.op("Less", x2(b), f(0))), "with NaN"),
    ("pow_two", lambda b: b.op("Pow", x2(b), f(2.5)), ""),
    (
        "gelu_erf_0_0",
        lambda b: b.op("Mul", b.op("Mul", x := x2(b), b.op("Add", b.op("Erf", b.op("Div", x, f(2))), f(1))), f(0.5)),
        "",
    ),
    ("hard_swish", lambda b: b.op("Mul", x := x2(b), b.op("HardSigmoid", x)), ""),
    ("layer_norm_div_pow", lambda b: layer_norm(b, axis=1), "not the last one only"),
    (
        "batchnorm_into_conv",
        lambda b: batchnorm(b, b.op("Conv", image(b), rand(6, 4, 3, 3), b.input("c", "float32", (6,))), 6),
        "bias is not one constant",
    ),
    (
        "batchnorm_into_conv",
        lambda b: b.op("Add", y := b.op("Conv", image(b), rand(6, 4, 3, 3)), batchnorm(b, y, 6)),
        "also used elsewhere",
    ),
    ("scale_into_conv", lambda b: b.op("Mul", b.op("Conv", image(b), rand(6, 4, 3, 3)), rand(1, 6, 5, 3)), ""),
    ("scale_of_input_into_weight", lambda b: excited(b, 9, rand(6, 4, 1, 1)), "takes longer than 81 pixels"),
    ("scale_of_input_into_weight", lambda b: excited(b, 10, rand(6, 4, 3, 3)), ""),
    ("scale_of_input_into_weight", lambda b: excited(b, 10, rand(6, 4, 1, 1), images=2), ""),
    ("scale_of_input_into_weight", lambda b: excited(b, 10, rand(6, 4, 1, 1), gate=rand(1, 4, 1, 1)), ""),
    ("scale_after_matmul_left", lambda b: b.op("MatMul", b.op("Mul", x2(b), rand(6)), rand(6, 5)), "not one number"),
    (
        "matmul_of_rows",
        lambda b: b.op("MatMul", b.op("Reshape", b.input("x", "float32", ("n", 3, 2)), i64(-1, 6)), rand(6, 5)),
        "",
    ),
    ("attention_div_mask", lambda b: attention(b, axis=2), "not over the last axis"),
    ("attention_div", lambda b: attention(b, mask=False, scale=None), "not one number"),
    ("attention_div_mask_guarded", lambda b: attention(b, instead=1), ""),
    ("attention_div_mask_guarded", lambda b: attention(b, instead=0, other=True), ""),
    ("attention_div", lambda b: attention(b, mask=False, rows=3), "3 queries are too few for a tile"),
]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=[f"{k}-{c[0][0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    new, ctx = apply(built(build), *names)
    assert {f.what for f in ctx.log.fired} == set(names)
    assert ops(new) == want


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    graph = built(build)
    new, ctx = apply(graph, name)
    assert new is graph
    assert reason in reasons(ctx)


def test_transposed_constant_is_a_view() -> None:
    w = rand(5, 6)
    graph = built(lambda b: b.op("Gemm", x2(b), w, transB=1))
    new, _ = apply(graph, "gemm")
    matmul = next(n for n in new.nodes if n.op == "MatMul")
    assert np.shares_memory(new.constants[matmul.inputs[1]].array, w)


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (dtypes.int32, dtypes.int64, True),
        (dtypes.int64, dtypes.int32, False),
        (dtypes.uint8, dtypes.int16, True),
        (dtypes.uint8, dtypes.int8, False),
        (dtypes.int32, dtypes.float32, False),
        (dtypes.int16, dtypes.float32, True),
        (dtypes.bool_, dtypes.uint8, True),
        (dtypes.float32, dtypes.float16, False),
        (dtypes.bfloat16, dtypes.float32, True),
    ],
)
def test_is_lossless(a: dtypes.DType, b: dtypes.DType, want: bool) -> None:
    assert is_lossless(a, b) is want
