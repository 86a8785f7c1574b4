"""The remainder of a division of floats, with the sign of the dividend: C's ``fmod``, exact for any two numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.builder import Code, Value

_LEAP = 2.0**600
"""By twice this, at most, the divisor is multiplied, so that no quotient is above 2**900."""
_LARGE = 2.0**900
_SMALLER = 2.0**-100


def emit_fmod(code: Code, a: Sequence[Value]) -> Value:
    """In steps, computed in float64, until less than the divisor is left; most divisions take one.

    A step subtracts the rounded quotient exactly and leaves less than the divisor or 2**-52 of what was there, with
    either sign; ``flipped`` remembers that what is left counts downwards from a multiple of the divisor.
    """
    narrow = a[0].type == "float"
    given = [code.emit(v.type, v.lanes, f"freeze {v.typed}") for v in a]  # the loop decides on lanes that are off, too
    x, y = (code.convert("fpext", v, "double") for v in given) if narrow else given
    whole, ay = code.intrinsic("fabs", x), code.intrinsic("fabs", y)
    before, step, after = code.block, code.new_block("step"), code.new_block("remainder")
    code.branch(step)
    code.start(step)
    rest = Value(whole.type, whole.lanes, code.name())
    flipped = Value("i1", whole.lanes, code.name())
    divisor = ay if narrow else _multiple(code, ay, rest)
    q = code.intrinsic("trunc", code.fdiv(rest, divisor))
    left = _minus_product(code, rest, q, divisor, narrow)
    turned = code.binary("xor", flipped, code.compare("olt", left, code.const(0.0, left)))
    less = code.intrinsic("fabs", left)
    for v, first, last in ((rest, whole, less), (flipped, code.const(False, flipped), turned)):
        phi = f"  {v.text} = phi {v.full} [ {first.text}, %{before.label} ], [ {last.text}, %{step.label} ]"
        step.lines.insert(0, phi)
    more = code.compare("oge", less, ay)
    code.branch_if((code.any_lane(more) if more.lanes else more).text, step, after, code.module.rolled())
    code.start(after)
    turn = code.binary("and", turned, code.compare("one", less, code.const(0.0, less)))
    out = code.select(turn, code.fsub(ay, less), less)
    out = code.intrinsic("copysign", code.select(code.compare("olt", whole, ay), whole, out), x)
    return code.convert("fptrunc", out, "float") if narrow else out


def _multiple(code: Code, y: Value, rest: Value) -> Value:
    """``y``, or the multiple of it by a power of two from which the quotient is finite."""
    for _ in range(2):
        more = code.fmul(y, _LEAP)
        y = code.select(code.compare("ole", more, rest), more, y)
    return y


def _minus_product(code: Code, rest: Value, q: Value, y: Value, narrow: bool) -> Value:
    """``rest - q * y``, which is a float64: one FMA, else Dekker's product, of smaller numbers where it overflows."""
    if code.target.has_fma:
        return code.fma(code.fneg(q), y, rest)
    if narrow:
        return _minus_dekker(code, rest, q, y)
    large = code.compare("ogt", rest, code.const(_LARGE, rest))
    small = code.select(large, code.const(_SMALLER, rest), code.const(1.0, rest))
    left = _minus_dekker(code, code.fmul(rest, small), q, code.fmul(y, small))
    left = code.select(large, code.fmul(left, 1 / _SMALLER), left)
    return code.select(code.compare("oeq", q, code.const(0.0, q)), rest, left)  # a lane that others are waited for


def _minus_dekker(code: Code, rest: Value, q: Value, y: Value) -> Value:
    product = code.fmul(q, y)
    (q_high, q_low), (y_high, y_low) = (_halves(code, v) for v in (q, y))
    error = code.fsub(code.fmul(q_high, y_high), product)
    error = code.fadd(code.fadd(error, code.fmul(q_high, y_low)), code.fmul(q_low, y_high))
    error = code.fadd(error, code.fmul(q_low, y_low))
    return code.fsub(code.fsub(rest, product), error)


def _halves(code: Code, v: Value) -> tuple[Value, Value]:
    """A float64 as the sum of two with at most 26 bits each (Veltkamp)."""
    scaled = code.fmul(v, code.const(134217729.0, v))
    high = code.fsub(scaled, code.fsub(scaled, v))
    return high, code.fsub(v, high)
