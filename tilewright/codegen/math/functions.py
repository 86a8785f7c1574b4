"""Transcendental functions as inline IR on scalars or vectors of any length: the table, and the float32 forms.

Largest errors measured over dense samples of the whole range, in units in the last place (tests hold the code to them):

========== ========= ========= ===================================================================================
function   float32   float64   method for float32
========== ========= ========= ===================================================================================
exp        1.7       2         Cody-Waite reduction by 2 ln 2, degree 7 (float64: by ln 2)
log        2         2         mantissa in [sqrt 1/2, sqrt 2), degree 9
tanh       6         4         odd rational 11/8, clamped
sigmoid    7         4         s / (s + p) with exp(-x) = p / s; 3 while |x| < 20. No overflow
erf        6         2         odd rational 11/10, clamped
sin, cos   2         2         reduction in float64; float32 polynomials. |x| <= 2**40 (float64: 2**30)
tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh, pow: computed in float64 and rounded
           1         4 (pow 16)
========== ========= ========= ===================================================================================

Infinities, NaNs, signed zeros and denormal results are right. Beyond the stated range sin, cos and tan stay in [-1, 1]
(tan: finite) but carry no information.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.codegen.llvm.builder import Code, Value, helper
from tilewright.codegen.llvm.types import float_literal
from tilewright.codegen.math import float64 as f64

MathFunction: TypeAlias = Callable[[Code, Sequence[Value]], Value]
_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
_SCALED_EXP = tuple(k * 2.0**64 for k in (0.00829029733, 0.0418980228, 0.16667637, 0.499991488, 0.999999707, 1.0))
"""``2**64 exp(r)`` for ``|r| <= ln(2) / 2``, to 1e-7."""
_EXP = ((5.00000346e-1, 1.66666142e-1), (4.16612745e-2, 8.33609977e-3), (1.41043463e-3, 1.96117596e-4))
"""``(exp(r) - 1 - r) / r**2`` from the constant upwards in pairs: exp to 1.5e-8 for ``|r| <= ln(2)``."""
_ROUNDS = 12582912.0
"""Added to a float32 below 2**22, leaves it rounded to an integer, which stands in the low bits of the sum."""
_INF = float("inf")


def _exp(c: Code, a: Sequence[Value]) -> Value:
    """exp as ``exp(r) * s * s`` with ``s`` a power of two: in two steps overflow to infinity and gradual underflow come
    out by themselves. ``|r| <= ln 2``, twice the usual, for one power instead of two and a longer polynomial. From the
    lower limit down, where masks of attention are, ``s`` is 0: a product that underflows would take a hundred cycles.
    """
    x = _clamp(c, a[0], -127 * 2 * _LN2, 89.0)
    shifted = c.fma(x, 0.5 * _LOG2E, _ROUNDS + 127)
    n = c.fsub(shifted, _ROUNDS + 127)
    r = c.fma(n, -2.0 * _LN2_HIGH, x)
    r = c.fma(n, -2.0 * _LN2_LOW, r)
    square = c.fmul(r, r)
    low, middle, high = (c.fma(r, second, first) for first, second in _EXP)  # side by side: less waiting than Horner's
    p = c.fma(c.fma(high, square, middle), square, low)
    p = c.fadd(c.fma(p, square, r), 1.0)
    bits = c.convert("bitcast", shifted, "i32")  # n + 127 in its low bits: the exponent of s
    s = c.convert("bitcast", c.binary("shl", bits, c.const(23, bits)), "float")
    return c.fmul(c.fmul(p, s), s)


def _log(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    tiny = c.compare("olt", x, c.const(1.17549435e-38, x))
    scaled = c.select(tiny, c.fmul(x, 8388608.0), x)
    bits = c.convert("bitcast", scaled, "i32")
    # exponent so that the mantissa lies in [sqrt(1/2), sqrt(2))
    shifted = c.binary("sub", bits, c.const(0x3F3504F3, bits))
    e = c.binary("ashr", shifted, c.const(23, bits))
    mantissa = c.convert("bitcast", c.binary("sub", bits, c.binary("shl", e, c.const(23, bits))), "float")
    exponent = c.convert("sitofp", c.binary("sub", e, c.select(tiny, c.const(23, e), c.const(0, e))), "float")
    f = c.fsub(mantissa, 1.0)
    z = c.fmul(f, f)
    p = c.polynomial(
        f,
        (
            7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
            -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
        ),
    )  # fmt: skip
    y = c.fmul(c.fmul(f, z), p)
    y = c.fma(exponent, -2.12194440e-4, y)
    y = c.fma(z, -0.5, y)
    y = c.fma(exponent, 0.693359375, c.fadd(f, y))
    return f64.log_specials(c, x, y)


def _tanh(c: Code, a: Sequence[Value]) -> Value:
    p = (1.51413205e-11, -7.52227081e-09, 1.18387243e-05, 0.00306012784, 0.130336642, 1.0)
    q = (1.67136704e-07, 0.000251808, 0.0242836401, 0.463669896, 1.0)
    return _odd_rational(c, a[0], 9.0, p, q)


def _sigmoid(c: Code, a: Sequence[Value]) -> Value:
    """``1 / (1 + exp(-x))`` as ``s / (s + p)`` with ``exp(-x) = p / s`` and ``s`` a power of two: no scaling step.

    Both are 2**64 times what they stand for, so that ``s`` stays a normal number where the result is not.
    """
    x = _clamp(c, a[0], -105.0, 43.0)
    shifted = c.fma(x, -_LOG2E, _ROUNDS)
    n = c.fsub(shifted, _ROUNDS)
    r = c.fma(n, -_LN2, c.fneg(x))
    p = c.polynomial(r, _SCALED_EXP)
    bits = c.convert("bitcast", shifted, "i32")  # n in its low bits
    power = c.binary("sub", c.const((127 + 64) << 23, bits), c.binary("shl", bits, c.const(23, bits)))
    s = c.convert("bitcast", power, "float")
    return c.fdiv(s, c.fadd(s, p))


def _erf(c: Code, a: Sequence[Value]) -> Value:
    """``x p(x^2) / q(x^2)``: one branch and a short chain, because it stands at the end of matrix products."""
    p = (2.08871529e-06, 0.000281451154, 0.0035894108, 0.0522041731, 0.186234459, 1.12837911)
    q = (3.83133192e-05, 0.00112085685, 0.0146149155, 0.112391531, 0.49837926, 1.0)
    return _odd_rational(c, a[0], 3.92, p, q)


def _odd_rational(c: Code, x: Value, limit: float, p: Sequence[float], q: Sequence[float]) -> Value:
    """``x p(x^2) / q(x^2)`` in [-1, 1], where it stays beyond ``limit``; a NaN passes through."""
    v = _clamp(c, x, -limit, limit)
    z = c.fmul(v, v)
    return _clamp(c, c.fdiv(c.fmul(v, c.polynomial(z, p)), c.polynomial(z, q)), -1.0, 1.0)


def _clamp(c: Code, x: Value, low: float, high: float) -> Value:
    """``x`` in [low, high]; a NaN passes through."""
    x = c.select(c.compare("olt", x, c.const(low, x)), c.const(low, x), x)
    return c.select(c.compare("ogt", x, c.const(high, x)), c.const(high, x), x)


def _sin_cos(cosine: bool) -> MathFunction:
    def emit(c: Code, a: Sequence[Value]) -> Value:
        wide = c.convert("fpext", a[0], "double")
        quadrant, reduced = f64.reduce_half_pi(c, wide, 2.0**40)
        r = c.convert("fptrunc", reduced, "float")
        z = c.fmul(r, r)
        sine = c.polynomial(z, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
        sine = c.fma(c.fmul(z, r), sine, r)
        cos = c.polynomial(z, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
        cos = c.fma(c.fmul(z, z), cos, c.fma(z, -0.5, 1.0))
        value = f64.pick_quadrant(c, quadrant, sine, cos, cosine)
        return value if cosine else f64.keep_zero(c, a[0], value)

    return emit


def _through_double(function: MathFunction) -> MathFunction:
    def emit(c: Code, a: Sequence[Value]) -> Value:
        return c.convert("fptrunc", function(c, [c.convert("fpext", v, "double") for v in a]), "float")

    return emit


_FLOAT32: dict[str, MathFunction] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": _sin_cos(False),
    "cos": _sin_cos(True),
    "tan": _through_double(f64.tan),
    "asin": _through_double(f64.asin),
    "acos": _through_double(f64.acos),
    "atan": _through_double(f64.atan),
    "sinh": _through_double(f64.sinh),
    "cosh": _through_double(f64.cosh),
    "asinh": _through_double(f64.asinh),
    "acosh": _through_double(f64.acosh),
    "atanh": _through_double(f64.atanh),
    "pow_float": _through_double(f64.power_plain),
}
_FLOAT64: dict[str, MathFunction] = {
    "exp": f64.exp,
    "log": f64.log,
    "tanh": f64.tanh,
    "sigmoid": f64.sigmoid,
    "erf": f64.erf,
    "sin": f64.sin,
    "cos": f64.cos,
    "tan": f64.tan,
    "asin": f64.asin,
    "acos": f64.acos,
    "atan": f64.atan,
    "sinh": f64.sinh,
    "cosh": f64.cosh,
    "asinh": f64.asinh,
    "acosh": f64.acosh,
    "atanh": f64.atanh,
    "pow_float": f64.power,
}


def _dispatch(name: str) -> MathFunction:
    def emit(c: Code, a: Sequence[Value]) -> Value:
        if name == "pow_float" and (short := _constant_power(c, a)) is not None:
            return short
        table = _FLOAT32 if a[0].type == "float" else _FLOAT64
        return helper(c, name, a, a[0].type, table[name])

    return emit


def _constant_power(c: Code, a: Sequence[Value]) -> Value | None:
    """``x ** k`` for the small constants that models use."""
    x, e = a
    if not e.is_const:
        return None
    for k in (1.0, 2.0, 3.0, 4.0, -1.0, 0.5):
        if float_literal(k, x.type) not in e.text:
            continue
        if k == 0.5:  # unlike sqrt, pow(-inf, 0.5) is inf and pow(-0, 0.5) is +0
            root = c.intrinsic("sqrt", c.fadd(x, 0.0))
            return c.select(c.compare("oeq", x, c.const(-_INF, x)), c.const(_INF, x), root)
        if k == -1.0:
            return c.fdiv(1.0, x)
        if k == 1.0:
            return x
        square = c.fmul(x, x)
        return square if k == 2.0 else c.fmul(square, x if k == 3.0 else square)
    return None


MATH: dict[str, MathFunction] = {name: _dispatch(name) for name in _FLOAT64}

__all__ = ["MATH", "MathFunction"]
