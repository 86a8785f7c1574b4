"""What every scalar operation, cast and literal of the tensor IR computes, one value at a time: the meaning that
machine code is compared with.

Values: a ``bool`` is a truth value, an integer of any width a Python int inside its range, ``float64`` a
``numpy.float64``, every other float a ``numpy.float32`` that its element type can represent. An operation on a narrow
float is computed in float32 and rounded. What the table in :mod:`tilewright.tensor_ir.scalar_ops` leaves open: a
shift by the width or more gives what shifting one bit at a time would; an integer divided by zero raises
ZeroDivisionError; an integer power with a negative exponent truncates the real result (zero gives 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tilewright.core.dtypes import DType, bfloat16

Scalar: TypeAlias = Any  # bool | int | np.float32 | np.float64
_SATURATION = {"float8e4m3fn": 448.0, "float8e4m3fnuz": 240.0, "float8e5m2": 57344.0, "float8e5m2fnuz": 57344.0}


# -- representation ----------------------------------------------------------------------------------------------
def wrap(x: int, dtype: DType) -> int:
    """``x`` modulo two to the width of ``dtype``, in its range."""
    low = x & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind == "i" and low >> (dtype.bits - 1) else low


def rounder(dtype: DType) -> Callable[[Any], Scalar]:
    """The function that makes any real number (or float array scalar) a value of float type ``dtype``."""
    if dtype.name == "float64":
        return np.float64
    if dtype.name == "float32":
        return np.float32
    if dtype.name == "float8e8m0":
        return _round_e8m0
    narrow = dtype.numpy.type
    if dtype.name in _SATURATION:
        top = _SATURATION[dtype.name]

        def saturating(x: Any) -> Scalar:
            return np.float32(narrow(min(max(x, -top), top) if x == x else x))

        return saturating
    return lambda x: np.float32(narrow(x))


def _round_e8m0(x: Any) -> Scalar:
    """The power of two at or above ``x`` (its sign ignored), as ONNX's default rounding asks; NaN for inf and NaN."""
    v = abs(float(np.float32(x)))
    if not math.isfinite(v):
        return np.float32(np.nan)
    if v == 0.0:
        return np.float32(2.0**-127)
    mantissa, exponent = math.frexp(v)
    exponent = exponent - 1 if mantissa == 0.5 else exponent
    return np.float32(2.0 ** min(max(exponent, -127), 127))


def literal(value: float | bool, dtype: DType) -> Scalar:
    """A literal as a value."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        return rounder(dtype)(value) if math.isfinite(value) else float(value)
    return wrap(int(value), dtype)


def to_values(array: np.ndarray, dtype: DType) -> list[Scalar]:
    """The elements of an array, row-major, as values."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.kind == "b":
        return flat.tolist()
    if dtype.is_integer:
        return [int(x) for x in flat]
    return list(flat.astype(np.float64 if dtype.name == "float64" else np.float32))


# -- casts -------------------------------------------------------------------------------------------------------
def _truncated(to: DType) -> Callable[[Scalar], int]:
    """Float to integer: toward zero, through int32 (int64 for the 64-bit types and uint32), then modulo the width.

    What that type cannot hold, and NaN, is its most negative value first; for uint64, what is above its range is 0.
    """
    wide = to.bits == 64 or to.name == "uint32"
    low = -(1 << (63 if wide else 31))
    high = 1 << 64 if to.name == "uint64" else -low

    def convert(x: Scalar) -> int:
        if math.isfinite(x) and low <= (whole := int(x)) < high:
            return wrap(whole, to)
        return 0 if to.name == "uint64" and x > 0 else wrap(low, to)

    return convert


def caster(source: DType, to: DType) -> Callable[[Scalar], Scalar]:
    """The conversion that ONNX Cast makes; float8 saturates."""
    if to.kind == "b":
        return bool
    if source.kind == "f":
        return rounder(to) if to.kind == "f" else _truncated(to)
    if to.kind == "f":
        rounded = rounder(to)
        first = np.uint64 if source.kind == "u" else np.int64
        if to.name in ("float32", "float64"):
            return lambda x: rounded(int(x)) if -(1 << 53) < x < 1 << 53 else rounded(first(x))
        return lambda x: rounded(np.float32(int(x)))
    return lambda x: wrap(int(x), to)


# -- operations --------------------------------------------------------------------------------------------------
def _double(f: Callable[[Any], Any]) -> Callable[[Scalar], Scalar]:
    return lambda x: f(np.float64(x))


def _sigmoid(x: Any) -> Any:
    e = np.exp(-abs(x))
    return 1.0 / (1.0 + e) if x >= 0 else (e / (1.0 + e) if x == x else x)


def _fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    plain = np.float64(a) * np.float64(b) + np.float64(c)
    if not isinstance(a, np.float64) or not math.isfinite(plain) or plain == 0:
        return plain
    return np.float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))


def _greater(a: Scalar, b: Scalar) -> Scalar:
    return a if a > b or a != a else b


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    return a if a < b or a != a else b


def _clamp(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    raised = x if x > low else low
    return raised if raised < high else high


# results are rounded to the element type by the caller
_FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor_mod": np.mod,
    "trunc_mod": np.fmod,
    "pow": lambda a, b: np.power(np.float64(a), np.float64(b)),
    "max": _greater,
    "min": _smaller,
    "clamp": _clamp,
    "fma": _fma,
    "neg": lambda a: -a,
    "abs": abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "exp": _double(np.exp),
    "log": _double(np.log),
    "sin": _double(np.sin),
    "cos": _double(np.cos),
    "tan": _double(np.tan),
    "asin": _double(np.arcsin),
    "acos": _double(np.arccos),
    "atan": _double(np.arctan),
    "sinh": _double(np.sinh),
    "cosh": _double(np.cosh),
    "tanh": _double(np.tanh),
    "asinh": _double(np.arcsinh),
    "acosh": _double(np.arccosh),
    "atanh": _double(np.arctanh),
    "erf": lambda x: math.erf(x),
    "sigmoid": _double(_sigmoid),
}


def _int_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _int_pow(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64) if abs(a) > 1 else a**b
    return a ** (-b) if abs(a) == 1 else 0


def _dot4(a: int, b: int) -> int:
    return (
        (a & 0xFF) * ((b & 0xFF ^ 0x80) - 0x80)
        + (a >> 8 & 0xFF) * ((b >> 8 & 0xFF ^ 0x80) - 0x80)
        + (a >> 16 & 0xFF) * ((b >> 16 & 0xFF ^ 0x80) - 0x80)
        + (a >> 24 & 0xFF) * ((b >> 24 & 0xFF ^ 0x80) - 0x80)
    )


def _dot4s(a: int, b: int) -> int:
    return sum(max(-0x8000, min(0x7FFF, _dot4(a >> s & 0xFFFF, b >> s & 0xFFFF))) for s in (0, 16))


def _bits(x: Scalar) -> int:
    return int(np.float32(x).view(np.uint32)) >> 16


def _bits_of_float32(x: Scalar) -> int:
    return int(np.float32(x).view(np.int32))


def _from_bits(x: int) -> Scalar:
    return np.uint32(x & 0xFFFFFFFF).view(np.float32)


def _dot2(a: int, b: int) -> Scalar:
    wide = _bfloat16_values()
    high = wide[a >> 16] * wide[b >> 16]  # of a negative number, from the end
    return np.float32(high + wide[a & 0xFFFF] * wide[b & 0xFFFF])


@cache
def _bfloat16_values() -> list[float]:
    """The numbers of all bfloat16, by their bits."""
    return [float(x) for x in (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)]


def _dot2i(a: int, b: int) -> int:
    return sum(((a >> s & 0xFFFF ^ 0x8000) - 0x8000) * ((b >> s & 0xFFFF ^ 0x8000) - 0x8000) for s in (0, 16))


_OF_BITS: dict[str, Callable[..., Any]] = {
    "bits": _bits, "from_bits": _from_bits, "dot2": _dot2, "narrow": rounder(bfloat16),
}  # fmt: skip
_INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _int_div,
    "floor_mod": lambda a, b: a % b,
    "trunc_mod": lambda a, b: a - _int_div(a, b) * b,
    "pow": _int_pow,
    "max": max,
    "min": min,
    "neg": lambda a: -a,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "bit_not": lambda a: ~a,
    "shift_left": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shift_right": lambda a, b: a >> b if 0 <= b < 64 else (-1 if a < 0 else 0),
    "dot2i": _dot2i,
    "dot4": _dot4,
    "dot4s": _dot4s,
}
_BOOLEAN: dict[str, Callable[..., bool]] = {
    "equal": lambda a, b: bool(a == b),
    "not_equal": lambda a, b: bool(a != b),
    "less": lambda a, b: bool(a < b),
    "less_equal": lambda a, b: bool(a <= b),
    "greater": lambda a, b: bool(a > b),
    "greater_equal": lambda a, b: bool(a >= b),
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "logical_not": lambda a: not a,
    "is_nan": lambda a: bool(a != a),
    "is_inf": lambda a: math.isinf(a),
    "max": lambda a, b: bool(a or b),
    "min": lambda a, b: bool(a and b),
}
_IN_RANGE = ("max", "min", "bit_and", "bit_or", "bit_xor", "floor_mod", "trunc_mod", "dot4", "dot4s")
_EXACT = ("clamp", "max", "min", "neg", "abs", "sign", "floor", "ceil", "round", "trunc")


def operation(name: str, dtype: DType) -> Callable[..., Scalar]:
    """The function that computes scalar operation ``name`` on arguments of element type ``dtype``.

    Raises KeyError if the operation does not exist for that kind of type.
    """
    if dtype.kind == "b" or (name in _BOOLEAN and name not in ("max", "min")):
        return _BOOLEAN[name]
    if name == "bits" and dtype.bits == 32:
        return _bits_of_float32
    if name in _OF_BITS:
        return _OF_BITS[name]
    if dtype.is_integer:
        f = _INTEGER[name]
        if name in _IN_RANGE:
            return f
        return lambda *args: wrap(f(*args), dtype)
    f = _FLOAT[name]
    if name in _EXACT or (name in ("add", "sub", "mul", "div", "sqrt") and not dtype.is_narrow_float):
        return f
    rounded = rounder(dtype)
    return lambda *args: rounded(f(*args))
