"""float64 transcendental functions as inline IR, of a few units in the last place.

Methods and coefficients: Cody and Waite reductions; polynomials of Taylor and minimax kind; for log, sin, cos, asin and
erf the published coefficients of FreeBSD's msun library, for atan those of Cephes. See the table in
:mod:`tilewright.codegen.math.functions` for errors and ranges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.codegen.llvm.builder import Code, Value, helper

_LOG2E = 1.4426950408889634074
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_INF, _NAN = float("inf"), float("nan")
_PI_2 = (1.57079632679489655800e00, 6.12323399573676603587e-17, -1.49738490485916980000e-33)


# -- exp and log -----------------------------------------------------------------------------------------------------
def _exp_parts(c: Code, x: Value, low: float = -760.0) -> tuple[Value, Value]:
    """``(p, n)`` with exp(x) = p * 2**n for x from ``low`` to 711, where it is clamped, p near 1."""
    x = c.select(c.compare("olt", x, c.const(low, x)), c.const(low, x), x)
    x = c.select(c.compare("ogt", x, c.const(711.0, x)), c.const(711.0, x), x)
    n = c.intrinsic("roundeven", c.fmul(x, _LOG2E))
    r = c.fma(n, -_LN2_LOW, c.fma(n, -_LN2_HIGH, x))
    p = c.polynomial(r, [1.0 / math.factorial(k) for k in range(13, 1, -1)])
    return c.fadd(c.fma(c.fmul(r, r), p, r), 1.0), n


def _scale(c: Code, p: Value, n: Value, shift: int = 0) -> Value:
    """``p * 2**(n + shift)`` in two steps, so that it may overflow or become denormal."""
    safe = c.select(c.compare("uno", n, n), c.const(0.0, n), n)
    k = c.binary("add", c.convert("fptosi", safe, "i64"), c.const(shift, Value("i64", n.lanes, "%")))
    half = c.binary("ashr", k, c.const(1, k))
    for part in (half, c.binary("sub", k, half)):
        bits = c.binary("shl", c.binary("add", part, c.const(1023, k)), c.const(52, k))
        p = c.fmul(p, c.convert("bitcast", bits, "double"))
    return p


def exp(c: Code, a: Sequence[Value]) -> Value:
    """At the lower limit both powers of two are 0 (see the float32 form)."""
    p, n = _exp_parts(c, a[0], -2046 * math.log(2))
    return _scale(c, p, n)


def _expm1(c: Code, x: Value) -> Value:
    """exp(x) - 1 for |x| <= 700."""
    n = c.intrinsic("roundeven", c.fmul(x, _LOG2E))
    r = c.fma(n, -_LN2_LOW, c.fma(n, -_LN2_HIGH, x))
    p = c.polynomial(r, [1.0 / math.factorial(k) for k in range(14, 1, -1)])
    p = c.fma(c.fmul(r, r), p, r)
    power = _scale(c, c.const(1.0, x), n)
    return c.fma(p, power, c.fsub(power, 1.0))


def log_specials(c: Code, x: Value, y: Value) -> Value:
    """``y`` where x is positive and finite; log(0) = -inf, log(inf) = inf, NaN below zero and for NaN."""
    y = c.select(c.compare("oeq", x, c.const(_INF, x)), x, y)
    y = c.select(c.compare("oeq", x, c.const(0.0, x)), c.const(-_INF, x), y)
    return c.select(c.compare("ult", x, c.const(0.0, x)), c.const(_NAN, x), y)


def _split_mantissa(c: Code, x: Value) -> tuple[Value, Value]:
    """``(f, e)``: x = (1 + f) * 2**e with 1 + f in [sqrt(1/2), sqrt(2)), denormals included."""
    tiny = c.compare("olt", x, c.const(2.2250738585072014e-308, x))
    scaled = c.select(tiny, c.fmul(x, 2.0**54), x)
    bits = c.convert("bitcast", scaled, "i64")
    e = c.binary("ashr", c.binary("sub", bits, c.const(0x3FE6A09E667F3BCD, bits)), c.const(52, bits))
    mantissa = c.convert("bitcast", c.binary("sub", bits, c.binary("shl", e, c.const(52, bits))), "double")
    exponent = c.binary("sub", e, c.select(tiny, c.const(54, e), c.const(0, e)))
    return c.fsub(mantissa, 1.0), c.convert("sitofp", exponent, "double")


_LG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip


def log(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    f, e = _split_mantissa(c, x)
    s = c.fdiv(f, c.fadd(f, 2.0))
    z = c.fmul(s, s)
    r = c.fmul(z, c.polynomial(z, _LG))
    half = c.fmul(c.fmul(f, f), 0.5)
    low = c.fma(s, c.fadd(half, r), c.fmul(e, _LN2_LOW))
    y = c.fma(e, _LN2_HIGH, c.fsub(f, c.fsub(half, low)))
    return log_specials(c, x, y)


def _log_of(c: Code, x: Value) -> Value:
    return helper(c, "log", [x], "double", log)


def _log1p(c: Code, x: Value) -> Value:
    """log(1 + x) for x > -1: the rounding error of 1 + x is put back as a first-order correction."""
    u = c.fadd(x, 1.0)
    lost = c.fsub(x, c.fsub(u, 1.0))
    correction = c.select(c.compare("ogt", u, c.const(2.0**60, x)), c.const(0.0, x), c.fdiv(lost, u))
    y = c.fadd(_log_of(c, u), correction)
    return c.select(c.compare("oeq", u, c.const(1.0, x)), x, y)


# -- trigonometric ---------------------------------------------------------------------------------------------------
def reduce_half_pi(c: Code, x: Value, limit: float) -> tuple[Value, Value]:
    """``(quadrant, r)``: x = quadrant * pi/2 + r with |r| <= pi/4; quadrant as i64 modulo 4. Inf and NaN give NaN."""
    inside = c.compare("ole", c.intrinsic("fabs", x), c.const(limit, x))
    n = c.intrinsic("roundeven", c.fmul(x, 2.0 / math.pi))
    r = x
    for part in _PI_2:
        r = c.fma(n, -part, r)
    q = c.convert("fptosi", c.select(inside, n, c.const(0.0, n)), "i64")
    # outside the range: 0 for finite arguments, NaN for the others
    return c.binary("and", q, c.const(3, q)), c.select(inside, r, c.fmul(x, 0.0))


def pick_quadrant(c: Code, quadrant: Value, sine: Value, cosine: Value, want_cosine: bool) -> Value:
    """The sine (or cosine) of the unreduced argument from both functions of the reduced one."""
    q = c.binary("add", quadrant, c.const(1, quadrant)) if want_cosine else quadrant
    odd = c.compare("ne", c.binary("and", q, c.const(1, q)), c.const(0, q))
    value = c.select(odd, cosine, sine)
    negative = c.compare("ne", c.binary("and", q, c.const(2, q)), c.const(0, q))
    return c.select(negative, c.fneg(value), value)


_S = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
_C = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip


def _sin_cos_reduced(c: Code, r: Value) -> tuple[Value, Value]:
    z = c.fmul(r, r)
    sine = c.fma(c.fmul(z, r), c.polynomial(z, _S), r)
    half = c.fmul(z, 0.5)
    w = c.fsub(1.0, half)
    rest = c.fsub(c.fsub(1.0, w), half)
    cosine = c.fadd(w, c.fma(c.fmul(z, z), c.polynomial(z, _C), rest))
    return sine, cosine


def sin(c: Code, a: Sequence[Value]) -> Value:
    q, r = reduce_half_pi(c, a[0], 2.0**30)
    return keep_zero(c, a[0], pick_quadrant(c, q, *_sin_cos_reduced(c, r), False))


def cos(c: Code, a: Sequence[Value]) -> Value:
    q, r = reduce_half_pi(c, a[0], 2.0**30)
    return pick_quadrant(c, q, *_sin_cos_reduced(c, r), True)


def tan(c: Code, a: Sequence[Value]) -> Value:
    q, r = reduce_half_pi(c, a[0], 2.0**40)
    sine, cosine = _sin_cos_reduced(c, r)
    odd = c.compare("ne", c.binary("and", q, c.const(1, q)), c.const(0, q))
    value = c.fdiv(c.select(odd, c.fneg(cosine), sine), c.select(odd, sine, cosine))
    return keep_zero(c, a[0], value)


def keep_zero(c: Code, x: Value, y: Value) -> Value:
    """``y``, but ``x`` where that is a zero of either sign (the reduction loses the sign)."""
    return c.select(c.compare("oeq", x, c.const(0.0, x)), x, y)


_PS = (
    3.47933107596021167570e-05, 7.91534994289814532176e-04, -4.00555345006794114027e-02, 2.01212532134862925881e-01,
    -3.25565818622400915405e-01, 1.66666666666666657415e-01,
)  # fmt: skip
_QS = (
    7.70381505559019352791e-02,
    -6.88283971605453293030e-01,
    2.02094576023350569471e00,
    -2.40339491173441421878e00,
    1.0,
)


def _asin_parts(c: Code, x: Value) -> tuple[Value, Value, Value, Value]:
    """``(big, s, base, correction)``: asin of ``s`` is base + correction, where s = |x|, or sqrt((1 - |x|) / 2) if
    big."""
    ax = c.intrinsic("fabs", x)
    big = c.compare("ogt", ax, c.const(0.5, x))
    z = c.select(big, c.fmul(c.fsub(1.0, ax), 0.5), c.fmul(x, x))
    s = c.select(big, c.intrinsic("sqrt", z), ax)
    ratio = c.fdiv(c.fmul(z, c.polynomial(z, _PS)), c.polynomial(z, _QS))
    return big, s, z, ratio


def asin(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    big, s, _, ratio = _asin_parts(c, x)
    small = c.fma(s, ratio, s)
    # pi/2 - 2*asin(s), with the low part of pi/2
    outer = c.fsub(_PI_2[0], c.fsub(c.fmul(small, 2.0), _PI_2[1]))
    return c.copysign(c.select(big, outer, small), x)


def acos(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    big, s, z, ratio = _asin_parts(c, x)
    negative = c.compare("olt", x, c.const(0.0, x))
    arc = c.fma(s, ratio, s)
    # the square root's rounding error, put back: s + (z - s*s) / (2*s)
    error = c.fdiv(c.fma(c.fneg(s), s, z), c.fmul(s, 2.0))
    error = c.select(c.compare("ogt", s, c.const(0.0, s)), error, c.const(0.0, s))
    outer = c.fmul(c.fadd(arc, error), 2.0)
    outer = c.select(negative, c.fsub(math.pi, c.fsub(outer, 2.0 * _PI_2[1])), outer)
    signed = c.copysign(arc, x)
    inner = c.fsub(_PI_2[0], c.fsub(signed, _PI_2[1]))
    return c.select(big, outer, inner)


_ATAN_P = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)  # fmt: skip
_ATAN_Q = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
    1.945506571482613964425e2,
)  # fmt: skip


def atan(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    far = c.compare("ogt", t, c.const(2.41421356237309504880, t))
    middle = c.compare("ogt", t, c.const(0.66, t))
    top = c.select(far, c.const(-1.0, t), c.select(middle, c.fsub(t, 1.0), t))
    bottom = c.select(far, t, c.select(middle, c.fadd(t, 1.0), c.const(1.0, t)))
    r = c.fdiv(top, bottom)
    base = c.select(far, c.const(_PI_2[0], t), c.select(middle, c.const(math.pi / 4, t), c.const(0.0, t)))
    low = c.select(far, c.const(_PI_2[1], t), c.select(middle, c.const(_PI_2[1] / 2, t), c.const(0.0, t)))
    z = c.fmul(r, r)
    ratio = c.fdiv(c.fmul(z, c.polynomial(z, _ATAN_P)), c.polynomial(z, _ATAN_Q))
    value = c.fadd(base, c.fadd(c.fma(r, ratio, low), r))
    return c.copysign(value, x)


# -- hyperbolic ------------------------------------------------------------------------------------------------------
def tanh(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    t = c.select(c.compare("ogt", t, c.const(22.0, t)), c.const(22.0, t), t)
    e = _expm1(c, c.fmul(t, 2.0))
    y = c.fdiv(e, c.fadd(e, 2.0))
    return c.copysign(y, x)


def sinh(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    small = c.select(c.compare("ogt", t, c.const(22.0, t)), c.const(22.0, t), t)
    e = _expm1(c, small)
    inner = c.fmul(c.fadd(e, c.fdiv(e, c.fadd(e, 1.0))), 0.5)
    p, n = _exp_parts(c, t)
    value = c.select(c.compare("ogt", t, c.const(22.0, t)), _scale(c, p, n, -1), inner)
    return c.copysign(value, x)


def cosh(c: Code, a: Sequence[Value]) -> Value:
    p, n = _exp_parts(c, c.intrinsic("fabs", a[0]))
    half = _scale(c, p, n, -1)
    return c.fadd(half, c.fdiv(0.25, half))


def asinh(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    huge = c.compare("ogt", t, c.const(2.0**28, t))
    z = c.fmul(t, t)
    inner = _log1p(c, c.fadd(t, c.fdiv(z, c.fadd(c.intrinsic("sqrt", c.fadd(z, 1.0)), 1.0))))
    outer = c.fadd(_log_of(c, t), math.log(2.0))
    return c.copysign(c.select(huge, outer, inner), x)


def acosh(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    huge = c.compare("ogt", x, c.const(2.0**28, x))
    t = c.fsub(x, 1.0)
    inner = _log1p(c, c.fadd(t, c.intrinsic("sqrt", c.fma(t, t, c.fmul(t, 2.0)))))
    y = c.select(huge, c.fadd(_log_of(c, x), math.log(2.0)), inner)
    return c.select(c.compare("ult", x, c.const(1.0, x)), c.const(_NAN, x), y)


def atanh(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    y = c.fmul(_log1p(c, c.fdiv(c.fmul(t, 2.0), c.fsub(1.0, t))), 0.5)
    y = c.select(c.compare("oeq", t, c.const(1.0, t)), c.const(_INF, t), y)
    y = c.select(c.compare("ogt", t, c.const(1.0, t)), c.const(_NAN, t), y)
    return c.copysign(y, x)


def sigmoid(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    p, n = _exp_parts(c, c.fneg(c.intrinsic("fabs", x)))
    e = _scale(c, p, n)
    top = c.select(c.compare("olt", x, c.const(0.0, x)), e, c.const(1.0, x))
    return c.fdiv(top, c.fadd(e, 1.0))


# -- erf -------------------------------------------------------------------------------------------------------------
_ERX = 8.45062911510467529297e-01
_PP = (
    -2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02, -3.25042107247001499370e-01,
    1.28379167095512558561e-01,
)  # fmt: skip
_QQ = (
    -3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03, 6.50222499887672944485e-02,
    3.97917223959155352819e-01, 1.0,
)  # fmt: skip
_PA = (
    -2.16637559486879084300e-03, 3.54783043256182359371e-02, -1.10894694282396677476e-01, 3.18346619901161753674e-01,
    -3.72207876035701323847e-01, 4.14856118683748331666e-01, -2.36211856075265944077e-03,
)  # fmt: skip
_QA = (
    1.19844998467991074170e-02, 1.36370839120290507362e-02, 1.26171219808761642112e-01, 7.18286544141962662868e-02,
    5.40397917702171048937e-01, 1.06420880400844228286e-01, 1.0,
)  # fmt: skip
_RA = (
    -9.81432934416914548592e00, -8.12874355063065934246e01, -1.84605092906711035994e02, -1.62396669462573470355e02,
    -6.23753324503260060396e01, -1.05586262253232909814e01, -6.93858572707181764372e-01, -9.86494403484714822705e-03,
)  # fmt: skip
_SA = (
    -6.04244152148580987438e-02, 6.57024977031928170135e00, 1.08635005541779435134e02, 4.29008140027567833386e02,
    6.45387271733267880336e02, 4.34565877475229228821e02, 1.37657754143519042600e02, 1.96512716674392571292e01, 1.0,
)  # fmt: skip
_RB = (
    -4.83519191608651397019e02, -1.02509513161107724954e03, -6.37566443368389627722e02, -1.60636384855821916062e02,
    -1.77579549177547519889e01, -7.99283237680523006574e-01, -9.86494292470009928597e-03,
)  # fmt: skip
_SB = (
    -2.24409524465858183362e01, 4.74528541206955367215e02, 2.55305040643316442583e03, 3.19985821950859553908e03,
    1.53672958608443695994e03, 3.25792512996573918826e02, 3.03380607434824582924e01, 1.0,
)  # fmt: skip


def erf(c: Code, a: Sequence[Value]) -> Value:
    x = a[0]
    t = c.intrinsic("fabs", x)
    z = c.fmul(t, t)
    first = c.fma(t, c.fdiv(c.polynomial(z, _PP), c.polynomial(z, _QQ)), t)
    s = c.fsub(t, 1.0)
    second = c.fadd(c.fdiv(c.polynomial(s, _PA), c.polynomial(s, _QA)), _ERX)
    w = c.select(c.compare("ogt", t, c.const(6.0, t)), c.const(6.0, t), t)
    w = c.select(c.compare("olt", w, c.const(1.0, t)), c.const(1.0, t), w)
    inv = c.fdiv(1.0, c.fmul(w, w))
    near = c.compare("olt", w, c.const(1.0 / 0.35, w))
    ratio_a = c.fdiv(c.polynomial(inv, _RA), c.polynomial(inv, _SA))
    ratio_b = c.fdiv(c.polynomial(inv, _RB), c.polynomial(inv, _SB))
    tail = c.fadd(c.fsub(c.select(near, ratio_a, ratio_b), c.fmul(w, w)), -0.5625)
    third = c.fsub(1.0, c.fdiv(helper(c, "exp", [tail], "double", exp), w))
    y = c.select(c.compare("olt", t, c.const(1.25, t)), second, third)
    y = c.select(c.compare("olt", t, c.const(0.84375, t)), first, y)
    y = c.select(c.compare("uno", t, t), t, y)
    return c.copysign(y, x)


# -- power -----------------------------------------------------------------------------------------------------------
def _power_specials(c: Code, x: Value, y: Value, magnitude: Value) -> Value:
    """|x| ** y completed: signs of odd powers, NaN for roots of negatives, and the cases that are 1."""
    ax = c.intrinsic("fabs", x)
    whole = c.compare("oeq", c.intrinsic("trunc", y), y)
    half = c.fmul(y, 0.5)
    even = c.compare("oeq", c.intrinsic("trunc", half), half)
    odd = c.binary("and", whole, c.binary("xor", even, c.const(True, even)))
    signed = c.copysign(magnitude, x)
    out = c.select(odd, signed, magnitude)
    negative = c.compare("olt", x, c.const(0.0, x))
    finite = c.compare("olt", ax, c.const(_INF, x))
    root = c.binary("and", c.binary("and", negative, finite), c.binary("xor", whole, c.const(True, whole)))
    out = c.select(root, c.const(_NAN, x), out)
    minus_one_inf = c.binary(
        "and", c.compare("oeq", ax, c.const(1.0, x)), c.compare("oeq", c.intrinsic("fabs", y), c.const(_INF, y))
    )
    one = c.binary("or", c.compare("oeq", x, c.const(1.0, x)), c.compare("oeq", y, c.const(0.0, y)))
    return c.select(c.binary("or", one, minus_one_inf), c.const(1.0, x), out)


def power_plain(c: Code, a: Sequence[Value]) -> Value:
    """x ** y through one float64 logarithm: exact enough for a float32 result."""
    x, y = a
    ax = c.intrinsic("fabs", x)
    value = helper(c, "exp", [c.fmul(y, _log_of(c, ax))], "double", exp)
    return _power_specials(c, x, y, value)


def power(c: Code, a: Sequence[Value]) -> Value:
    """x ** y for float64: the logarithm as an unevaluated sum of two float64."""
    x, y = a
    ax = c.intrinsic("fabs", x)
    f, e = _split_mantissa(c, ax)
    # s = f / (2 + f) as s + s_low
    d = c.fadd(f, 2.0)
    d_low = c.fsub(f, c.fsub(d, 2.0))
    s = c.fdiv(f, d)
    s_low = c.fdiv(c.fma(c.fneg(s), d_low, c.fma(c.fneg(s), d, f)), d)
    z = c.fmul(s, s)
    z_low = c.fma(c.fmul(s, 2.0), s_low, c.fma(s, s, c.fneg(z)))
    # log(1 + f) = 2s + s*z*(2/3 + z*q(z)); the leading term of the second part is kept to full precision as well
    q = c.fmul(z, c.polynomial(z, [2.0 / k for k in range(25, 4, -2)]))
    cube = c.fmul(s, z)
    cube_low = c.fma(s, z_low, c.fma(s_low, z, c.fma(s, z, c.fneg(cube))))
    third = c.fmul(cube, 2.0 / 3.0)
    third_low = c.fma(cube, 3.7007434154171886e-17, c.fma(cube, 2.0 / 3.0, c.fneg(third)))
    third_low = c.fma(cube_low, 2.0 / 3.0, c.fma(cube, q, third_low))
    lead = c.fmul(s, 2.0)
    high = c.fmul(e, _LN2_HIGH)
    total, low = _two_sum(c, high, lead)
    total, low2 = _two_sum(c, total, third)
    low = c.fadd(c.fadd(low, low2), c.fma(e, _LN2_LOW, c.fma(s_low, 2.0, third_low)))
    total, low = _two_sum(c, total, low)
    product = c.fmul(y, total)
    rest = c.fma(y, low, c.fma(y, total, c.fneg(product)))
    # outside the range of exp the correction is meaningless and may be NaN
    sane = c.compare("olt", c.intrinsic("fabs", product), c.const(800.0, product))
    rest = c.select(sane, rest, c.const(0.0, rest))
    value = helper(c, "exp", [product], "double", exp)
    corrected = c.fma(value, rest, value)
    finite = c.compare("olt", value, c.const(_INF, value))
    value = c.select(c.binary("and", finite, sane), corrected, value)
    zero_or_inf = c.binary("or", c.compare("oeq", ax, c.const(0.0, ax)), c.compare("oeq", ax, c.const(_INF, ax)))
    zero_or_inf = c.binary("or", zero_or_inf, c.compare("uno", ax, ax))
    edge = helper(c, "exp", [c.fmul(y, _log_of(c, ax))], "double", exp)
    return _power_specials(c, x, y, c.select(zero_or_inf, edge, value))


def _two_sum(c: Code, a: Value, b: Value) -> tuple[Value, Value]:
    """``a + b`` and its rounding error."""
    s = c.fadd(a, b)
    t = c.fsub(s, a)
    return s, c.fadd(c.fsub(a, c.fsub(s, t)), c.fsub(b, t))
