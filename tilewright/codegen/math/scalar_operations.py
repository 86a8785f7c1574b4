"""One emitter for each scalar operation of the tensor IR, in a literal table.

An emitter receives operands in their register types (scalars or vectors) and the element type of the first. Narrow
floats are computed in float32; transcendental functions come from :mod:`tilewright.codegen.math.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.codegen.llvm.builder import Code, Value, helper
from tilewright.codegen.math.casts import cast, wrap
from tilewright.codegen.math.dot_products import dot2, dot2i, dot4, dot4s
from tilewright.codegen.math.functions import MATH
from tilewright.codegen.math.narrow_floats import narrow
from tilewright.codegen.math.remainder import emit_fmod
from tilewright.core.dtypes import DType, float32
from tilewright.core.errors import InternalError

Emitter: TypeAlias = Callable[[Code, DType, Sequence[Value]], Value]


def operation(code: Code, name: str, dtype: DType, args: Sequence[Value]) -> Value:
    """The value of operation ``name`` on operands of element type ``dtype``."""
    if dtype.is_narrow_float and name != "bits":
        wide = operation(code, name, float32, [cast(code, a, dtype, float32) for a in args])
        return wide if wide.type == "i1" else cast(code, wide, float32, dtype)
    if dtype.kind == "c":
        raise InternalError(f"codegen: {name} on {dtype} is not supported")
    lanes = max(a.lanes for a in args)
    args = [code.splat(a, lanes) for a in args]
    if name in MATH:
        return MATH[name](code, args)
    out = OPERATIONS[name](code, dtype, args)
    return wrap(code, out, dtype) if out.type != "i1" and dtype.is_integer else out


def _arithmetic(float_op: str, int_op: str) -> Emitter:
    def emit(code: Code, t: DType, a: Sequence[Value]) -> Value:
        return code.binary(float_op if t.kind == "f" else int_op, a[0], a[1])

    return emit


def _compare(float_pred: str, signed: str, unsigned: str) -> Emitter:
    def emit(code: Code, t: DType, a: Sequence[Value]) -> Value:
        return code.compare(float_pred if t.kind == "f" else signed if t.kind == "i" else unsigned, a[0], a[1])

    return emit


def _bits(op: str) -> Emitter:
    return lambda code, t, a: code.binary(op, a[0], a[1])


def _rounding(name: str) -> Emitter:
    return lambda code, t, a: code.intrinsic(name, a[0])


def _div(code: Code, t: DType, a: Sequence[Value]) -> Value:
    if t.kind == "f":
        return code.binary("fdiv", a[0], a[1])
    return _integer_divide(code, t, a, remainder=False)


def _integer_divide(code: Code, t: DType, a: Sequence[Value], remainder: bool) -> Value:
    """Truncating; a zero divisor gives 0, and the one overflow wraps, instead of stopping the process."""
    n, d = a
    prefix = "s" if t.kind == "i" else "u"
    op = prefix + ("rem" if remainder else "div")
    if _literal(d) not in (None, 0, -1):
        return code.binary(op, n, d)
    zero, one = code.const(0, d), code.const(1, d)
    is_zero = code.compare("eq", d, zero)
    special = is_zero
    if t.kind == "i":
        minus = code.compare("eq", d, code.const(-1, d))
        special = code.binary("or", is_zero, minus)
    out = code.binary(op, n, code.select(special, one, d))
    if t.kind == "i":
        negated = zero if remainder else code.binary("sub", zero, n)
        out = code.select(minus, negated, out)
    return code.select(is_zero, zero, out)


def _literal(v: Value) -> int | None:
    """The integer that every lane is, if it is one that the text of ``v`` says."""
    try:
        return int(v.text.removeprefix(f"splat ({v.type} ").removesuffix(")"))
    except ValueError:
        return None


def _trunc_mod(code: Code, t: DType, a: Sequence[Value]) -> Value:
    if t.kind != "f":
        return _integer_divide(code, t, a, remainder=True)
    return helper(code, "fmod", a, a[0].type, emit_fmod, inlined=False)


def _floor_mod(code: Code, t: DType, a: Sequence[Value]) -> Value:
    r = _trunc_mod(code, t, a)
    if t.kind == "u":
        return r
    zero = code.const(0, r)
    if t.kind == "f":
        nonzero = code.compare("une", r, zero)
        differ = code.binary("xor", code.compare("olt", r, zero), code.compare("olt", a[1], zero))
        adjusted = code.select(code.binary("and", nonzero, differ), code.fadd(r, a[1]), r)
        signed_zero = code.intrinsic("copysign", code.const(0.0, r), a[1])
        return code.select(code.compare("oeq", r, zero), signed_zero, adjusted)
    nonzero = code.compare("ne", r, zero)
    differ = code.compare("slt", code.binary("xor", r, a[1]), zero)
    return code.select(code.binary("and", nonzero, differ), code.binary("add", r, a[1]), r)


def _extremum(float_pred: str, signed: str, unsigned: str, bool_op: str) -> Emitter:
    def emit(code: Code, t: DType, a: Sequence[Value]) -> Value:
        if t.kind == "b":
            return code.binary(bool_op, a[0], a[1])
        if t.kind != "f":
            return code.intrinsic(signed if t.kind == "i" else unsigned, a[0], a[1])
        if a[1].is_const and "0x7FF" not in a[1].text.upper():  # x OP constant: an unordered compare keeps a NaN
            return code.select(code.compare("o" + float_pred, a[1], a[0]), a[1], a[0])
        # the inner choice is one instruction of x86, which takes the second where one is NaN
        number = code.compare("ord", a[0], a[0])
        return code.select(number, code.select(code.compare("o" + float_pred, a[0], a[1]), a[0], a[1]), a[0])

    return emit


def _neg(code: Code, t: DType, a: Sequence[Value]) -> Value:
    return code.fneg(a[0]) if t.kind == "f" else code.binary("sub", code.const(0, a[0]), a[0])


def _abs(code: Code, t: DType, a: Sequence[Value]) -> Value:
    if t.kind == "f":
        return code.intrinsic("fabs", a[0])
    if t.kind == "u":
        return a[0]
    negative = code.compare("slt", a[0], code.const(0, a[0]))
    return code.select(negative, _neg(code, t, a), a[0])


def _sign(code: Code, t: DType, a: Sequence[Value]) -> Value:
    x = a[0]
    zero = code.const(0, x)
    if t.kind == "f":
        out = code.select(code.compare("ogt", x, zero), code.const(1, x), x)  # keeps zeros and NaN
        return code.select(code.compare("olt", x, zero), code.const(-1, x), out)
    above = code.convert("zext", code.compare("ne" if t.kind == "u" else "sgt", x, zero), x.type)
    if t.kind == "u":
        return above
    return code.binary("sub", above, code.convert("zext", code.compare("slt", x, zero), x.type))


def _fma(code: Code, _: DType, a: Sequence[Value]) -> Value:
    return code.fma(a[0], a[1], a[2])


def _clamp(code: Code, _: DType, a: Sequence[Value]) -> Value:
    """One instruction for each side: comparisons with NaN are false, as those of ``maxps`` and ``minps``."""
    x, low, high = a
    raised = code.select(code.compare("ogt", x, low), x, low)
    return code.select(code.compare("olt", raised, high), raised, high)


def _pow(code: Code, t: DType, a: Sequence[Value]) -> Value:
    if t.kind == "f":
        return MATH["pow_float"](code, a)
    return helper(code, f"ipow.{t}", a, a[0].type, lambda c, p: _integer_pow(c, t, p))


def _integer_pow(code: Code, t: DType, a: Sequence[Value]) -> Value:
    """Square and multiply over the bits of the exponent; negative exponents give 0 except for bases 1 and -1."""
    base, exponent = a
    one, zero = code.const(1, base), code.const(0, base)
    result, square = one, base
    bits = min(int(base.type[1:]), 64)
    for bit in range(bits):
        mask = code.const((1 << bit) if bit < bits - 1 or t.kind == "u" else -(1 << bit), base)
        on = code.compare("ne", code.binary("and", exponent, mask), zero)
        result = code.select(on, code.binary("mul", result, square), result)
        if bit + 1 < bits:
            square = code.binary("mul", square, square)
    if t.kind != "i":
        return result
    negative = code.compare("slt", exponent, zero)
    unit = code.binary("or", code.compare("eq", base, one), code.compare("eq", base, code.const(-1, base)))
    return code.select(code.binary("and", negative, code.binary("xor", unit, code.const(True, unit))), zero, result)


def _shift(signed_right: bool) -> Emitter:
    def emit(code: Code, t: DType, a: Sequence[Value]) -> Value:
        known = _literal(a[1])
        if known is not None and 0 <= known < t.bits:
            return code.binary("shl" if not signed_right else "lshr" if t.kind == "u" else "ashr", a[0], a[1])
        bits = code.const(t.bits, a[1])
        inside = code.compare("ult", a[1], bits)
        amount = code.select(inside, a[1], code.const(0, a[1]))
        if not signed_right:
            return code.select(inside, code.binary("shl", a[0], amount), code.const(0, a[0]))
        if t.kind == "u":
            return code.select(inside, code.binary("lshr", a[0], amount), code.const(0, a[0]))
        last = code.select(inside, a[1], code.const(t.bits - 1, a[1]))
        return code.binary("ashr", a[0], last)

    return emit


def _is_inf(code: Code, _: DType, a: Sequence[Value]) -> Value:
    return code.compare("oeq", code.intrinsic("fabs", a[0]), code.const(float("inf"), a[0]))


OPERATIONS: dict[str, Emitter] = {
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": _div,
    "floor_mod": _floor_mod,
    "trunc_mod": _trunc_mod,
    "pow": _pow,
    "max": _extremum("gt", "smax", "umax", "or"),
    "min": _extremum("lt", "smin", "umin", "and"),
    "clamp": _clamp,
    "fma": _fma,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
    "sqrt": _rounding("sqrt"),
    "equal": _compare("oeq", "eq", "eq"),
    "not_equal": _compare("une", "ne", "ne"),
    "less": _compare("olt", "slt", "ult"),
    "less_equal": _compare("ole", "sle", "ule"),
    "greater": _compare("ogt", "sgt", "ugt"),
    "greater_equal": _compare("oge", "sge", "uge"),
    "logical_and": _bits("and"),
    "logical_or": _bits("or"),
    "logical_xor": _bits("xor"),
    "logical_not": lambda code, t, a: code.binary("xor", a[0], code.const(True, a[0])),
    "is_nan": lambda code, t, a: code.compare("uno", a[0], a[0]),
    "is_inf": _is_inf,
    "bit_and": _bits("and"),
    "bit_or": _bits("or"),
    "bit_xor": _bits("xor"),
    "bit_not": lambda code, t, a: code.binary("xor", a[0], code.const(-1, a[0])),
    "shift_left": _shift(False),
    "shift_right": _shift(True),
    "bits": lambda code, t, a: code.convert("zext" if t.is_narrow_float else "bitcast", a[0], "i32"),
    "from_bits": lambda code, t, a: code.convert("bitcast", a[0], "float"),
    "narrow": lambda code, t, a: narrow(code, a[0]),
    "dot2": lambda code, t, a: dot2(code, a[0], a[1]),
    "dot2i": lambda code, t, a: dot2i(code, a[0], a[1]),
    "dot4": lambda code, t, a: dot4(code, a[0], a[1]),
    "dot4s": lambda code, t, a: dot4s(code, a[0], a[1]),
}
