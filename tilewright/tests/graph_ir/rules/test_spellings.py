"""Operators that exporters spell out: every spelling of Gelu, LayerNormalization and attention, and what looks so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.graph_ir.rewriting import require_fires, require_refused

F = np.float32
Build = Callable[[GraphBuilder], str]


def f(x: float) -> np.ndarray:
    return np.array(x, dtype=F)


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def gelu(b: GraphBuilder, gate: Callable[[GraphBuilder, str], str], form: int) -> str:
    """0.5 * x * gate(x), written in one of six ways."""
    x = b.input("x", "float32", ("n", 6))
    g = gate(b, x)
    if form == 0:
        return b.op("Mul", b.op("Mul", x, g), f(0.5))
    if form == 1:
        return b.op("Mul", b.op("Mul", g, f(0.5)), x)
    if form == 2:
        return b.op("Mul", b.op("Mul", x, f(0.5)), g)
    if form == 3:
        return b.op("Div", b.op("Mul", x, g), f(2))
    if form == 4:
        return b.op("Mul", x, b.op("Div", g, f(2)))
    return b.op("Mul", b.op("Div", x, f(2)), g)


def erf(b: GraphBuilder, x: str, spelling: int, root2: float = np.sqrt(2)) -> str:
    inside = b.op("Mul", x, f(1 / root2)) if spelling else b.op("Div", x, f(root2))
    return b.op("Add", b.op("Erf", inside), f(1))


def tanh(b: GraphBuilder, x: str, spelling: int) -> str:
    c, k = f(0.044715), f(np.sqrt(2 / np.pi))

    def square() -> str:
        return b.op("Pow", x, f(2)) if spelling == 3 else b.op("Mul", x, x)

    if spelling in (4, 5, 6):
        scaled = b.op("Mul", x, b.op("Mul", x, c)) if spelling == 6 else b.op("Mul", square(), c)
        gate = b.op("Add", scaled, f(1))
        inner = b.op("Mul", b.op("Mul", x, k), gate) if spelling > 4 else b.op("Mul", b.op("Mul", x, gate), k)
        return b.op("Add", b.op("Tanh", inner), f(1))
    if spelling == 7:
        cubed = b.op("Mul", x, b.op("Mul", square(), c))
    elif spelling == 0:
        cubed = b.op("Mul", b.op("Pow", x, f(3)), c)
    else:
        cubed = b.op("Mul", b.op("Mul", *((x, square()) if spelling == 1 else (square(), x))), c)
    return b.op("Add", b.op("Tanh", b.op("Mul", b.op("Add", x, cubed), k)), f(1))


def spread_of(b: GraphBuilder, variance: str, form: str) -> str:
    """1 / sqrt(variance + epsilon), or without the 1 / for a Div."""
    shifted = b.op("Add", variance, f(1e-5))
    if form.startswith("pow"):
        return b.op("Pow", shifted, f(-0.5 if form == "pow_mul" else 0.5))
    root = b.op("Sqrt", shifted)
    if form == "div":
        return root
    return b.op("Reciprocal", root) if form == "mul" else b.op("Div", f(1), root)


def variance_of(b: GraphBuilder, x: str, square: str, axes: np.ndarray) -> str:
    mean = b.op("ReduceMean", x, axes)
    if square in ("pow", "mul"):
        d = b.op("Sub", x, mean)
        return b.op("ReduceMean", b.op("Pow", d, f(2)) if square == "pow" else b.op("Mul", d, d), axes)
    return b.op("Sub", b.op("ReduceMean", b.op("Mul", x, x), axes), b.op("Pow", mean, f(2)))


def layer_norm(
    b: GraphBuilder, spread: str = "div", square: str = "pow", axes: tuple[int, ...] = (-1,), last: int | str = 6
) -> str:
    x = b.input("x", "float32", ("n", 3, last))
    d = b.op("Sub", x, b.op("ReduceMean", x, i64(*axes)))
    over = spread_of(b, variance_of(b, x, square, i64(*axes)), spread)
    y = b.op("Div" if spread in ("div", "pow_div") else "Mul", d, over)
    return b.op("Add", b.op("Mul", y, np.abs(rand(6)) + F(0.5)), rand(6)) if last == 6 else y


def affine_norm(b: GraphBuilder, gain: np.ndarray | None) -> str:
    """As tf.nn.batch_normalization with the moments of a row writes it."""
    x = b.input("x", "float32", ("n", 3, 6))
    mean = b.op("ReduceMean", x, i64(-1))
    k = spread_of(b, variance_of(b, x, "mul", i64(-1)), "mul")
    k = k if gain is None else b.op("Mul", k, gain)
    return b.op("Add", b.op("Mul", x, k), b.op("Sub", rand(6), b.op("Mul", mean, k)))


def rms_norm(b: GraphBuilder, spread: str, square: str = "pow") -> str:
    x = b.input("x", "float32", ("n", 3, 6))
    squared = b.op("Pow", x, f(2)) if square == "pow" else b.op("Mul", x, x)
    over = spread_of(b, b.op("ReduceMean", squared, i64(-1)), spread)
    return b.op("Mul", np.abs(rand(6)) + F(0.5), b.op("Div" if spread in ("div", "pow_div") else "Mul", x, over))


def attention(
    b: GraphBuilder, scaled: str = "div", mask: bool = True, axis: int = -1, rows: int = 5,
    scale: np.ndarray | None = None, instead: float | None = None, other: bool = False,
    cast: dtypes.DType | None = None,
) -> str:  # fmt: skip
    q = b.input("q", "float32", ("n", 2, rows, 4))
    k = b.input("k", "float32", ("n", 2, 4, 7))
    v = b.input("v", "float32", ("n", 2, 7, 3))
    s = b.op("MatMul", q, k)
    if scaled != "plain":
        s = b.op(scaled.title(), s, f(2) if scale is None else scale)
    if mask:
        s = b.op("Add", s, b.input("m", "float32", ("n", 1, 1, 7)))
    weights = b.op("Softmax", s if cast is None else b.op("Cast", s, to=cast), axis=axis)
    weights = weights if cast is None else b.op("Cast", weights, to=dtypes.float32)
    if instead is not None:  # of weights that are NaN
        weights = b.op("Where", b.op("IsNaN", weights), f(instead), s if other else weights)
    return b.op("MatMul", weights, v)


GELU: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (
        (f"gelu_{gate.__name__}",),
        lambda b, gate=gate, spelling=spelling, form=form: gelu(b, lambda b, x: gate(b, x, spelling), form),
        ["Gelu"],
    )
    for gate, spellings in ((erf, 2), (tanh, 8))
    for spelling in range(spellings)
    for form in (range(6) if gate is erf else range(spelling % 2, 6, 2))
]
LAYER_NORM: list[tuple[tuple[str, ...], Build, list[str]]] = [
    *(
        (
            ("layer_norm", "layer_norm_scale", "layer_norm_bias"),
            lambda b, spread=spread, square=square: layer_norm(b, spread, square),
            ["LayerNormalization"],
        )
        for spread in ("div", "mul", "over", "pow_div", "pow_mul")
        for square in ("pow", "mul", "squares")
    ),
    (
        ("layer_norm", "layer_norm_scale", "layer_norm_bias"),
        lambda b: layer_norm(b, axes=(-2, -1)),
        ["LayerNormalization"],
    ),
    (("layer_norm_as_affine",), lambda b: affine_norm(b, None), ["LayerNormalization"]),
    (("layer_norm_as_affine",), lambda b: affine_norm(b, rand(6)), ["LayerNormalization"]),
    *(
        (
            ("rms_norm", "layer_norm_scale"),
            lambda b, spread=spread, square=square: rms_norm(b, spread, square),
            ["RMSNormalization"],
        )
        for spread, square in (("div", "pow"), ("mul", "mul"), ("over", "pow"), ("pow_mul", "mul"))
    ),
]
ATTENTION: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (
        ("attention",),
        lambda b, scaled=scaled, mask=mask, instead=instead: attention(b, scaled, mask, instead=instead),
        ["Transpose", "FusedAttention"],
    )
    for scaled in ("plain", "mul", "div")
    for mask in (True, False)
    for instead in (None, 0.0)
]
ATTENTION.append((("attention",), lambda b: attention(b, cast=dtypes.float64), ["Transpose", "FusedAttention"]))
FIRES = [*GELU, *LAYER_NORM, *ATTENTION]

STAYS: list[tuple[str, Build, str]] = [
    ("gelu_erf", lambda b: gelu(b, lambda b, x: erf(b, x, 0, root2=2), 0), ""),
    ("layer_norm", lambda b: layer_norm(b, axes=(1,)), "not the last ones"),
    ("layer_norm", lambda b: layer_norm(b, last="m"), "the last dim m is not a number"),
    ("layer_norm_as_affine", lambda b: affine_norm(b, rand(3, 1)), "the gain has other sizes than a row"),
    ("attention", lambda b: attention(b, axis=2), "not over the last axis"),
    ("attention", lambda b: attention(b, mask=False, scale=rand(2, 1, 1)), "not one number"),
    ("attention", lambda b: attention(b, instead=1), ""),
    ("attention", lambda b: attention(b, instead=0, other=True), ""),
    ("attention", lambda b: attention(b, mask=False, rows=3), "3 queries are too few for a tile"),
    ("attention", lambda b: attention(b, cast=dtypes.float16), "computed as float16, the queries are float32"),
]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=[f"{k}-{c[0][0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    require_fires(build, names, want)


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)
