"""Conversions between element types, as ONNX Cast and numpy define them.

A float outside the range of an integer type (or NaN) becomes what x86 and numpy make of it: the least integer of
the 32- or 64-bit type that the conversion goes through, cut to the result's width. All of it is defined behaviour here,
also on CPUs that saturate. Narrow types go through float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.builder import Code, Value, helper
from tilewright.codegen.llvm.types import register_type
from tilewright.codegen.math.narrow_floats import decode, double_to_odd_float, encode
from tilewright.core.dtypes import DType, float32
from tilewright.core.errors import InternalError


def cast(code: Code, v: Value, source: DType, to: DType) -> Value:
    """``v`` of element type ``source`` converted to ``to``; both in their register types."""
    if source == to:
        return v
    if "c" in (source.kind, to.kind) or "s" in (source.kind, to.kind):
        raise InternalError(f"codegen: cast from {source} to {to} is not supported")
    if source.is_narrow_float:
        return cast(code, decode(code, v, source), float32, to)
    if to.is_narrow_float:
        return encode(code, _to_float32(code, v, source), to)
    if to.kind == "b":
        if source.kind == "f":
            return code.compare("une", v, code.const(0.0, v))
        return code.compare("ne", v, code.const(0, v))
    if source.kind == "f" and to.kind == "f":
        return code.convert("fpext" if to.bits > source.bits else "fptrunc", v, register_type(to))
    if to.kind == "f":
        return code.convert("sitofp" if source.kind == "i" else "uitofp", v, register_type(to))
    if source.kind == "f":
        return _float_to_int(code, v, to)
    return _wrap(code, code.resize(v, register_type(to), source.kind == "i"), to)


def wrap(code: Code, v: Value, dtype: DType) -> Value:
    """The result of integer arithmetic brought back into the range of ``dtype`` (needed below 8 bits)."""
    return _wrap(code, v, dtype)


def _wrap(code: Code, v: Value, dtype: DType) -> Value:
    if dtype.bits >= 8 or not dtype.is_integer:
        return v
    if dtype.kind == "u":
        return code.binary("and", v, code.const((1 << dtype.bits) - 1, v))
    shift = code.const(8 - dtype.bits, v)
    return code.binary("ashr", code.binary("shl", v, shift), shift)


def _to_float32(code: Code, v: Value, source: DType) -> Value:
    if source.name == "float32":
        return v
    if source.name == "float64":
        return double_to_odd_float(code, v)
    return code.convert("sitofp" if source.kind == "i" else "uitofp", v, "float")


def _float_to_int(code: Code, v: Value, to: DType) -> Value:
    if to.name == "uint64":
        return helper(code, "to_uint64", [v], "i64", _to_uint64)
    through = "i64" if to.bits == 64 or to.name == "uint32" else "i32"
    out = helper(code, f"to_{through}", [v], through, lambda c, a: _truncate(c, a[0], through))
    return _wrap(code, code.resize(out, register_type(to), True), to)


def _truncate(c: Code, x: Value, to: str) -> Value:
    bits = int(to[1:])
    bound = 2.0 ** (bits - 1)
    if x.type == "double" and bits == 32:  # -2147483648.5 truncates to the least int32
        low = c.compare("ogt", x, c.const(-bound - 1, x))
    else:
        low = c.compare("oge", x, c.const(-bound, x))
    fits = c.binary("and", low, c.compare("olt", x, c.const(bound, x)))
    safe = c.select(fits, x, c.const(0.0, x))
    out = c.convert("fptosi", safe, to)
    return c.select(fits, out, c.const(-(1 << (bits - 1)), out))


def _to_uint64(c: Code, args: Sequence[Value]) -> Value:
    """Values in [0, 2**64) exactly, negative ones modulo 2**64, as the x86 sequence does."""
    (x,) = args
    big = c.compare("oge", x, c.const(2.0**63, x))
    reduced = c.select(big, c.fsub(x, 2.0**63), x)
    out = _truncate(c, reduced, "i64")
    return c.select(big, c.binary("xor", out, c.const(-(1 << 63), out)), out)
