"""Algebra, scales, products and row views: fires, refuses, keeps the numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.rules.algebra import is_lossless
from tilewright.tests.graph_ir.rewriting import apply, built, require_fires, require_refused

F = np.float32
Build = Callable[[GraphBuilder], str]


def f(x: float) -> np.ndarray:
    return np.array(x, dtype=F)


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def pos(*shape: int) -> np.ndarray:
    return np.abs(rand(*shape, seed=9)) + F(0.5)


def huge(*shape: int) -> np.ndarray:
    return np.full(shape, 1e30, F)


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


def batchnorm(b: GraphBuilder, x: str, n: int) -> str:
    return b.op("BatchNormalization", x, pos(n), rand(n, seed=1), rand(n, seed=2), pos(n), epsilon=1e-3)


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
    (("hard_swish",), lambda b: b.op("Mul", x := x2(b), b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)), ["HardSwish"]),
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
]

STAYS: list[tuple[str, Build, str]] = [
    ("div_power_of_two", lambda b: b.op("Div", x2(b), f(3)), "not a power of two"),
    ("div_power_of_two", lambda b: b.op("Div", x2(b), f(2.0**100)), "leave the range"),
    ("cast_cast", lambda b: b.op("Cast", b.op("Cast", x2(b), to=dtypes.int32), to=dtypes.float32), "loses information"),
    ("mul_mul", lambda b: b.op("Mul", b.op("Mul", x2(b), rand(6)), rand(3, 1, 1)), "larger than both"),
    ("mul_mul", lambda b: b.op("Add", y := b.op("Mul", x2(b), f(2)), b.op("Mul", y, f(3))), "also used elsewhere"),
    ("not_comparison", lambda b: b.op("Not", b.op("Less", x2(b), f(0))), "with NaN"),
    ("pow_two", lambda b: b.op("Pow", x2(b), f(2.5)), ""),
    ("hard_swish", lambda b: b.op("Mul", x := x2(b), b.op("HardSigmoid", x)), ""),
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
    ("scale_into_conv", lambda b: b.op("Mul", b.op("Conv", image(b), rand(6, 4, 3, 3)), f(3e38)), "leaves the range"),
    (
        "batchnorm_into_conv",
        lambda b: b.op(
            "BatchNormalization", b.op("Conv", image(b), rand(2, 4, 1, 1)), huge(2), rand(2), huge(2), pos(2)
        ),
        "leaves the range",
    ),
    (
        "batchnorm_as_affine",
        lambda b: b.op("BatchNormalization", image(b), huge(4), rand(4), huge(4), pos(4)),
        "leaves the range",
    ),
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
]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=[f"{k}-{c[0][0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    require_fires(build, names, want)


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)


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
