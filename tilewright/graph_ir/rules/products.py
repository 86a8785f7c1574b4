"""Matrix products in one canonical form: MatMul with an Add behind it."""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, Operand, P, Rule, int_attr


def _factor(m: Match, key: str) -> float:
    v = m.root.attr(key, 1.0)
    return float(v) if isinstance(v, int | float) else 1.0


def _matrix(m: Match, name: str, transposed: bool) -> str:
    """The operand as it enters MatMul. A constant is turned by a view, never by a copy."""
    if not transposed:
        return name
    constant = m.editor.constant(name)
    if constant is not None:
        return m.editor.add_constant(constant.transposed(), f"{name}.T")
    return m.op("Transpose", name, perm=(1, 0))


def _scaled(m: Match, name: str, factor: float) -> str:
    if factor == 1.0:
        return name
    array = m.editor.array(name)
    if array is not None:
        return m.editor.add_constant((array * np.asarray(factor)).astype(array.dtype), f"{name}.scaled")
    dtype = m.editor.value(m.root.inputs[0]).dtype.numpy
    return m.op("Mul", name, m.editor.add_constant(np.asarray(factor, dtype=dtype), f"{name}.factor"))


def product_and_bias(m: Match) -> str:
    """A Gemm as MatMul and, where it has a third operand, Add."""
    a = _matrix(m, m.root.inputs[0], bool(int_attr(m.root, "transA", 0)))
    b = _matrix(m, m.root.inputs[1], bool(int_attr(m.root, "transB", 0)))
    product, beta = _scaled(m, m.op("MatMul", a, b), _factor(m, "alpha")), _factor(m, "beta")
    bias = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    return m.op("Add", product, _scaled(m, bias, beta)) if bias and beta != 0.0 else product


def _whole_factors(m: Match) -> str | None:
    if m.dtype("a").is_integer and not (_factor(m, "alpha").is_integer() and _factor(m, "beta").is_integer()):
        return "alpha or beta is a fraction and the matrices are integers"
    return None


def _one_factor(m: Match) -> str | None:
    if m.dtype("x").name not in ("float32", "float64", "bfloat16"):
        return "the unscaled product could leave the range of the element type" if m.dtype("x").is_float else NOT_HERE
    if m.constant("c").size != 1:
        return "the factor is not one number"
    if m.shape("x") is None or m.shape("x") != m.editor.value(m.node("scaled").outputs[0]).shape:
        return NOT_HERE
    return None


def _scale_after(m: Match) -> str:
    c = m.array("c").reshape(())
    operands = (m["x"], m["y"]) if m.root.inputs[0] == m.node("scaled").outputs[0] else (m["y"], m["x"])
    return m.op("Mul", m.op("MatMul", *operands), m.editor.add_constant(c, f"{m.output}.factor"))


def _gemm(*operands: Operand) -> P:
    return P("Gemm", *operands)


_SCALED = P("Mul", "x", C("c"), at="scaled")

RULES: tuple[Rule, ...] = (
    Rule(
        "gemm_bias",
        "Gemm(a, b, c) --> Add(MatMul(a', b') * alpha, c * beta)",
        _gemm("a", "b", "c"),
        product_and_bias,
        _whole_factors,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "gemm",
        "Gemm(a, b) --> MatMul(a', b') * alpha",
        _gemm("a", "b", None),
        product_and_bias,
        _whole_factors,
        Exactness.REASSOCIATING,
    ),
    *(
        Rule(
            f"scale_after_matmul_{side}",
            "MatMul(x * c, y) --> MatMul(x, y) * c, c one number",
            P("MatMul", _SCALED, "y") if side == "left" else P("MatMul", "y", _SCALED),
            _scale_after,
            _one_factor,
            Exactness.REASSOCIATING,
            exclusive=True,
        )
        for side in ("left", "right")
    ),
)
