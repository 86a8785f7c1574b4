"""Operators that exporters spell out: every spelling of Gelu, LayerNormalization and attention, and what looks so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

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
    """0.5 * x * gate(x), written in one of four ways."""
    x = b.input("x", "float32", ("n", 6))
    g = gate(b, x)
    if form == 0:
        return b.op("Mul", b.op("Mul", x, g), f(0.5))
    if form == 1:
        return b.op("Mul", b.op("Mul", g, f(0.5)), x)
    if form == 2:
        return b.op("Mul", b.op("Mul", x, f(0.5)), g)
    return b.op("Div", b.op("Mul", x, g), f(2))


def erf(b: GraphBuilder, x: str, spelling: int, root2: float = np.sqrt(2)) -> str:
    inside = b.op("Mul", x, f(1 / root2)) if spelling else b.op("Div", x, f(root2))
    return b.op("Add", b.op("Erf", inside), f(1))


def tanh(b: GraphBuilder, x: str, spelling: int) -> str:
    if spelling == 0:
        cube = b.op("Pow", x, f(3))
    elif spelling == 1:
        cube = b.op("Mul", x, b.op("Mul", x, x))
    else:
        cube = b.op("Mul", b.op("Mul", x, x), x)
    inner = b.op("Add", x, b.op("Mul", cube, f(0.044715)))
    return b.op("Add", b.op("Tanh", b.op("Mul", inner, f(np.sqrt(2 / np.pi)))), f(1))


def layer_norm(b: GraphBuilder, spread: str = "div", square: str = "pow", axis: int = -1) -> str:
    x = b.input("x", "float32", ("n", 3, 6))
    d = b.op("Sub", x, b.op("ReduceMean", x, i64(axis)))
    sq = b.op("Mul", d, d) if square == "mul" else b.op("Pow", d, f(2))
    std = b.op("Sqrt", b.op("Add", b.op("ReduceMean", sq, i64(axis)), f(1e-5)))
    y = b.op("Div", d, std) if spread == "div" else b.op("Mul", d, b.op("Reciprocal", std))
    return b.op("Add", b.op("Mul", y, np.abs(rand(6)) + F(0.5)), rand(6))


def attention(
    b: GraphBuilder, scaled: str = "div", mask: bool = True, axis: int = -1, rows: int = 5,
    scale: np.ndarray | None = None, instead: float | None = None, other: bool = False,
) -> str:  # fmt: skip
    q = b.input("q", "float32", ("n", 2, rows, 4))
    k = b.input("k", "float32", ("n", 2, 4, 7))
    v = b.input("v", "float32", ("n", 2, 7, 3))
    s = b.op("MatMul", q, k)
    if scaled != "plain":
        s = b.op(scaled.title(), s, f(2) if scale is None else scale)
    if mask:
        s = b.op("Add", s, b.input("m", "float32", ("n", 1, 1, 7)))
    weights = b.op("Softmax", s, axis=axis)
    if instead is not None:  # of weights that are NaN
        weights = b.op("Where", b.op("IsNaN", weights), f(instead), s if other else weights)
    return b.op("MatMul", weights, v)


GELU: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (
        (f"gelu_{gate.__name__}_{spelling}_{form}",),
        lambda b, gate=gate, spelling=spelling, form=form: gelu(b, lambda b, x: gate(b, x, spelling), form),
        ["Gelu"],
    )
    for gate, spellings in ((erf, 2), (tanh, 3))
    for spelling in range(spellings)
    for form in range(4)
]
LAYER_NORM: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (
        (f"layer_norm_{spread}_{square}", "layer_norm_scale", "layer_norm_bias"),
        lambda b, spread=spread, square=square: layer_norm(b, spread, square),
        ["LayerNormalization"],
    )
    for spread in ("div", "mul")
    for square in ("pow", "mul")
]
ATTENTION: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (
        (f"attention_{scaled}{'_mask' if mask else ''}{'' if instead is None else '_guarded'}",),
        lambda b, scaled=scaled, mask=mask, instead=instead: attention(b, scaled, mask, instead=instead),
        ["Transpose", "FusedAttention"],
    )
    for scaled in ("plain", "mul", "div")
    for mask in (True, False)
    for instead in (None, 0.0)
]
FIRES = [*GELU, *LAYER_NORM, *ATTENTION]

STAYS: list[tuple[str, Build, str]] = [
    ("gelu_erf_0_0", lambda b: gelu(b, lambda b, x: erf(b, x, 0, root2=2), 0), ""),
    ("layer_norm_div_pow", lambda b: layer_norm(b, axis=1), "not the last one only"),
    ("attention_div_mask", lambda b: attention(b, axis=2), "not over the last axis"),
    ("attention_div", lambda b: attention(b, mask=False, scale=rand(2, 1, 1)), "not one number"),
    ("attention_div_mask_guarded", lambda b: attention(b, instead=1), ""),
    ("attention_div_mask_guarded", lambda b: attention(b, instead=0, other=True), ""),
    ("attention_div", lambda b: attention(b, mask=False, rows=3), "3 queries are too few for a tile"),
]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=[c[0][0] for c in FIRES])
def test_rule_fires(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    require_fires(build, names, want)


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)
