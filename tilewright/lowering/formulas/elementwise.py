"""Elementwise operators: one formula each, applied with ONNX's multidirectional broadcasting.

Narrow floats are computed in float32. The formulas of the float functions are those of the ONNX operator pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, op, select
from tilewright.tensor_ir.ir import Cast, Const

Formula: TypeAlias = Callable[..., Val]
_SIXTH = float(np.float32(1 / 6))
"""The standard's attributes are float32 numbers, for doubles too."""


# -- broadcasting --------------------------------------------------------------------------------------------------
def broadcast_load(t: Tensor, index: Sequence[IntExpr], shape: Sequence[IntExpr]) -> Val:
    """The element of ``t`` at ``index`` of the broadcast shape ``shape``."""
    lead = len(shape) - t.ndim
    own = []
    for d, extent in enumerate(t.shape):
        if extent == 1:
            own.append(const(0))
        elif extent == shape[lead + d]:
            own.append(index[lead + d])
        else:
            own.append(minimum(index[lead + d], extent - 1))
    return t[tuple(own)]


def axis_names(rank: int) -> list[str]:
    """The usual names of the axes of a stage."""
    return [f"i{d}" for d in range(rank)]


def elementwise(c: LowerContext, formula: Formula, inputs: Sequence[Tensor] | None = None, out: int = 0) -> Tensor:
    """The stage ``out[i] = formula(inputs[i]...)``; operands widened, the result in the output's type."""
    value = c.output(out)
    operands = list(inputs) if inputs is not None else [t for t in c.inputs if t is not None]
    shape = value.shape

    def body(*index: IntExpr) -> Val:
        loaded = [widen(broadcast_load(t, index, shape)) for t in operands]
        return formula(*loaded).cast(value.dtype)

    return compute(c.name(c.node.op.lower()), shape, body, axis_names=axis_names(len(shape)))


# -- float functions -----------------------------------------------------------------------------------------------
def softplus(x: Val) -> Val:
    """log(1 + exp(x)) without overflow, and exact to a few units far below zero.

    log(1 + z) of a small z is z / (u - 1) * log(u) with u = 1 + z rounded (Kahan; HP-15C handbook, 1982).
    """
    z = op("exp", -op("abs", x))
    u = z + 1.0
    log1p = select(u.equal(1.0), z, op("log", u) * (z / (u - 1.0)))
    return op("max", x, 0.0) + log1p


def sigmoid(x: Val) -> Val:
    return op("sigmoid", x)


def gelu(x: Val, approximate: str) -> Val:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (op("tanh", inner) + 1.0)
    return x * 0.5 * (op("erf", x * (1 / math.sqrt(2.0))) + 1.0)


def elu(x: Val, alpha: float) -> Val:
    return select(x < 0.0, (op("exp", x) - 1.0) * alpha, x)


def selu(x: Val, alpha: float, gamma: float) -> Val:
    return select(x <= 0.0, (op("exp", x) * alpha - alpha) * gamma, x * gamma)


def celu(x: Val, alpha: float) -> Val:
    return op("max", x, 0.0) + op("min", (op("exp", x * (1 / alpha)) - 1.0) * alpha, 0.0)


def hard_sigmoid(x: Val, alpha: float, beta: float) -> Val:
    return op("max", op("min", x * alpha + beta, 1.0), 0.0)


def relu(x: Val) -> Val:
    return op("max", x, 0)


def leaky_relu(x: Val, alpha: float) -> Val:
    return select(x < 0.0, x * alpha, x)


def shrink(x: Val, lambd: float, bias: float) -> Val:
    zero = constant(0, x.dtype)
    if x.dtype.kind != "f":
        y = x.cast(dtypes.float64)
        return select(y < -lambd, y + bias, select(y > lambd, y - bias, 0.0)).cast(x.dtype)
    return select(x < -lambd, x + bias, select(x > lambd, x - bias, zero))


def nearest(x: Val) -> Val:
    return x if x.dtype.kind != "f" else op("round", x)


def _unary_float_activations() -> dict[str, Callable[[LowerContext], Formula]]:
    return {
        "Softplus": lambda c: softplus,
        "Sigmoid": lambda c: sigmoid,
        "Gelu": lambda c: lambda x: gelu(x, c.attr_str("approximate", "none")),
        "Elu": lambda c: lambda x: elu(x, c.attr_float("alpha", 1.0)),
        "Selu": lambda c: (
            lambda x: selu(
                x, c.attr_float("alpha", 1.67326319217681884765625), c.attr_float("gamma", 1.05070102214813232421875)
            )
        ),
        "Celu": lambda c: lambda x: celu(x, c.attr_float("alpha", 1.0)),
        "HardSigmoid": lambda c: lambda x: hard_sigmoid(x, c.attr_float("alpha", 0.2), c.attr_float("beta", 0.5)),
        "HardSwish": lambda c: lambda x: x * hard_sigmoid(x, _SIXTH, 0.5),
        "LeakyRelu": lambda c: lambda x: leaky_relu(x, c.attr_float("alpha", 0.01)),
        "ThresholdedRelu": lambda c: lambda x: select(x > c.attr_float("alpha", 1.0), x, 0.0),
        "Shrink": lambda c: lambda x: shrink(x, c.attr_float("lambd", 0.5), c.attr_float("bias", 0.0)),
        "Softsign": lambda c: lambda x: x / (op("abs", x) + 1.0),
        "Mish": lambda c: lambda x: x * op("tanh", softplus(x)),
        "Swish": lambda c: lambda x: x * sigmoid(x * c.attr_float("alpha", 1.0)),
        "Relu": lambda c: relu,
        "Reciprocal": lambda c: lambda x: 1.0 / x,
    }


# -- arithmetic ----------------------------------------------------------------------------------------------------
def minimum_of(a: Val, b: Val) -> Val:
    return op("min", a, b)


def maximum_of(a: Val, b: Val) -> Val:
    return op("max", a, b)


def error_function(x: Val) -> Val:
    """erf; of integers, which opset 9 allows, by way of doubles."""
    return op("erf", x if x.dtype.is_float else x.cast(dtypes.float64))


def power(x: Val, y: Val) -> Val:
    """``x ** y`` in the type of ``x``; small constant exponents become products."""
    literal = y.expr.value if isinstance(y.expr, Cast) else y.expr
    if isinstance(literal, Const):
        exponent = literal.value
        if exponent == 2:
            return x * x
        if exponent == 3:
            return x * x * x
        if exponent == 1:
            return x
        if exponent == 0.5 and x.dtype.is_float:
            return op("sqrt", x)
    if x.dtype.kind in "iu" and y.dtype.kind == "f":
        real = dtypes.float64 if y.dtype == dtypes.float64 or x.dtype.bits > 24 else dtypes.float32
        return _whole(op("pow", x.cast(real), y.cast(real))).cast(x.dtype)
    return op("pow", x, y.cast(x.dtype))


def _whole(v: Val) -> Val:
    """``v``, or the whole number that it misses by rounding errors only: a conversion to an integer cuts off."""
    near = op("round", v)
    tolerance = 1e-6 if v.dtype == dtypes.float32 else 1e-14
    return select(op("abs", v - near) <= op("abs", near) * tolerance, near, v)


def modulo(c: LowerContext) -> Formula:
    if c.attr_int("fmod", 0):
        return lambda a, b: op("trunc_mod", a, b)
    return lambda a, b: op("floor_mod", a, b)


def bit_shift(c: LowerContext) -> Formula:
    direction = c.attr_str("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise c.unsupported(f"attribute direction: expected LEFT or RIGHT, got {direction!r}")
    return lambda a, b: op("shift_left" if direction == "LEFT" else "shift_right", a, b)


def is_inf(c: LowerContext) -> Formula:
    positive, negative = c.attr_int("detect_positive", 1), c.attr_int("detect_negative", 1)

    def formula(x: Val) -> Val:
        if positive and negative:
            return op("is_inf", x)
        if positive:
            return op("equal", x, math.inf)
        return op("equal", x, -math.inf) if negative else constant(False, dtypes.bool_)

    return formula


def convert(v: Val, dtype: DType) -> Val:
    """Cast as ONNX does; between two narrow floats by way of float32."""
    return widen(v).cast(dtype) if v.dtype.is_narrow_float and dtype != v.dtype else v.cast(dtype)


# -- table ---------------------------------------------------------------------------------------------------------
def _plain(name: str) -> Lower:
    return lambda c: (elementwise(c, lambda *x: op(name, *x)),)


def _made(make: Callable[[LowerContext], Formula]) -> Lower:
    return lambda c: (elementwise(c, make(c)),)


def _variadic(f: Formula) -> Lower:
    return lambda c: (elementwise(c, lambda *x: reduce(f, x)),)


def lower_mean(c: LowerContext) -> tuple[Tensor, ...]:
    n = len(c.inputs)
    return (elementwise(c, lambda *x: reduce(lambda a, b: a + b, x) * (1.0 / n)),)


def lower_div(c: LowerContext) -> tuple[Tensor, ...]:
    return (elementwise(c, lambda a, b: a / b),)


def lower_prelu(c: LowerContext) -> tuple[Tensor, ...]:
    return (elementwise(c, lambda x, slope: select(x < 0, x * slope, x)),)


def lower_clip(c: LowerContext) -> tuple[Tensor, ...]:
    x = c.input(0)
    low = widen(c.scalar(1)) if c.has_input(1) else None
    high = widen(c.scalar(2)) if c.has_input(2) else None

    def formula(v: Val) -> Val:
        v = v if low is None else op("max", v, low)
        return v if high is None else op("min", v, high)

    return (elementwise(c, formula, [x]),)


def lower_where(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()

    def body(*index: IntExpr) -> Val:
        cond, a, b = (broadcast_load(c.input(k), index, out.shape) for k in range(3))
        return select(cond, a, b)

    return (compute(c.name("where"), out.shape, body, axis_names=axis_names(len(out.shape))),)


# where rounding to an 8-bit float overflows, and what comes out if the conversion does not saturate
_OVERFLOW: dict[str, tuple[float, float]] = {
    "float8e4m3fn": (464.0001, math.nan),
    "float8e4m3fnuz": (248.0, math.nan),
    "float8e5m2": (61440.0, math.inf),
    "float8e5m2fnuz": (61440.0, math.nan),
}


def _above(w: Val, result: float, dtype: DType) -> Val:
    nan = constant(math.nan, dtype)
    if math.isnan(result):
        return nan
    signed = select(w < 0.0, constant(-result, dtype), constant(result, dtype))
    return select(op("is_nan", w), nan, signed)


def lower_cast(c: LowerContext) -> tuple[Tensor, ...]:
    source, out = c.input(0), c.output()
    for dtype in (source.dtype, out.dtype):
        if dtype.kind in "sc" or dtype == dtypes.float8e8m0:
            raise c.unsupported(f"element type {dtype} has no native conversion")
    flush = c.attr_int("flush", 0) and (source.dtype, out.dtype) == (dtypes.float32, dtypes.bfloat16)
    overflow = None if c.attr_int("saturate", 1) else _OVERFLOW.get(out.dtype.name)

    def body(*index: IntExpr) -> Val:
        v = source[index]
        if flush:
            return op("narrow", v)
        if overflow is None or v.dtype == out.dtype:
            return convert(v, out.dtype)
        limit, above = overflow
        w = v.cast(dtypes.float32)
        return select(op("abs", w) < limit, w.cast(out.dtype), _above(w, above, out.dtype))

    return (compute(c.name("cast"), out.shape, body, axis_names=axis_names(len(out.shape))),)


def copy_of(c: LowerContext, source: Tensor, hint: str) -> Tensor:
    """A stage equal to ``source``."""
    return compute(c.name(hint), source.shape, lambda *i: source[i], axis_names=axis_names(source.ndim))


def lower_identity(c: LowerContext) -> tuple[Tensor, ...]:
    return (copy_of(c, c.input(0), "identity"),)


def lower_dropout(c: LowerContext) -> tuple[Tensor, ...]:
    if c.has_input(2):
        training = c.constant_ints(2, "training_mode")
        ratio = None if c.constants[1] is None else float(c.constants[1].array.reshape(-1)[0])
        if training and training[0] and ratio != 0.0:
            raise c.unsupported("training_mode is true; random numbers have no native code")
    x = c.input(0)
    mask = compute(c.name("mask"), x.shape, lambda *i: constant(True, dtypes.bool_), axis_names=axis_names(x.ndim))
    return copy_of(c, x, "dropout"), mask


LOWER: dict[str, Lower] = {
    **{name: _made(make) for name, make in _unary_float_activations().items()},
    "Abs": _plain("abs"), "Neg": _plain("neg"), "Sign": _plain("sign"), "Floor": _plain("floor"),
    "Ceil": _plain("ceil"), "Round": _plain("round"), "Sqrt": _plain("sqrt"), "Exp": _plain("exp"),
    "Log": _plain("log"), "Sin": _plain("sin"), "Cos": _plain("cos"), "Tan": _plain("tan"), "Asin": _plain("asin"),
    "Acos": _plain("acos"), "Atan": _plain("atan"), "Sinh": _plain("sinh"), "Cosh": _plain("cosh"),
    "Tanh": _plain("tanh"), "Asinh": _plain("asinh"), "Acosh": _plain("acosh"), "Atanh": _plain("atanh"),
    "Erf": _made(lambda c: error_function), "IsNaN": _plain("is_nan"), "IsInf": _made(is_inf),
    "Add": _plain("add"), "Sub": _plain("sub"), "Mul": _plain("mul"), "Div": lower_div, "Mod": _made(modulo),
    "Pow": _made(lambda c: power), "PRelu": lower_prelu,
    "Max": _variadic(maximum_of), "Min": _variadic(minimum_of), "Sum": _variadic(lambda a, b: a + b),
    "Mean": lower_mean, "Clip": lower_clip, "Where": lower_where,
    "Equal": _plain("equal"), "Less": _plain("less"), "LessOrEqual": _plain("less_equal"),
    "Greater": _plain("greater"), "GreaterOrEqual": _plain("greater_equal"),
    "And": _plain("logical_and"), "Or": _plain("logical_or"), "Xor": _plain("logical_xor"),
    "Not": _plain("logical_not"),
    "BitwiseAnd": _plain("bit_and"), "BitwiseOr": _plain("bit_or"), "BitwiseXor": _plain("bit_xor"),
    "BitwiseNot": _plain("bit_not"), "BitShift": _made(bit_shift),
    "Cast": lower_cast, "CastLike": lower_cast, "Identity": lower_identity, "Dropout": lower_dropout,
}  # fmt: skip
