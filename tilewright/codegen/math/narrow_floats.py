"""float16, bfloat16, float8, float4 bit patterns to and from float32, as integer operations that vectorize.

Every narrow format but float8e8m0 is described by a :class:`Layout`; one encoder and one decoder serve them all.
Rounding is to nearest, ties to even. float8 saturates (the default of ONNX Cast), float16 and bfloat16 overflow to
infinity, and float8e8m0 rounds towards plus infinity, as ONNX Cast's default ``round_mode`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Code, Value, helper
from tilewright.codegen.llvm.features import architecture
from tilewright.codegen.llvm.types import register_type
from tilewright.core.dtypes import DType, bfloat16


@dataclass(frozen=True, slots=True)
class Layout:
    """A binary float format. ``top``: bit pattern of the largest finite value. ``nan``: the pattern made for NaN.
    ``infinity``: the pattern of infinity or None. ``saturate``: overflow gives ``top`` rather than infinity or NaN.
    ``negative_zero``: False where the pattern of -0 means NaN."""

    exponent: int
    mantissa: int
    bias: int
    top: int
    nan: int
    infinity: int | None
    saturate: bool
    negative_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


LAYOUTS: dict[str, Layout] = {
    "float16": Layout(5, 10, 15, 0x7BFF, 0x7E00, 0x7C00, False),
    "bfloat16": Layout(8, 7, 127, 0x7F7F, 0x7FC0, 0x7F80, False),
    "float8e4m3fn": Layout(4, 3, 7, 0x7E, 0x7F, None, True),
    "float8e4m3fnuz": Layout(4, 3, 8, 0x7F, 0x80, None, True, False),
    "float8e5m2": Layout(5, 2, 15, 0x7B, 0x7E, 0x7C, True),
    "float8e5m2fnuz": Layout(5, 2, 16, 0x7F, 0x80, None, True, False),
    "float4e2m1": Layout(2, 1, 1, 0x7, 0x8, None, True),
}


def decode(code: Code, v: Value, dtype: DType) -> Value:
    """The float32 value of narrow float bits ``v``."""
    if dtype.name == "float16" and _has_half(code):
        return code.convert("fpext", code.convert("bitcast", v, "half"), "float")
    if dtype.name == "bfloat16":
        wide = code.convert("zext", v, "i32")
        return code.convert("bitcast", code.binary("shl", wide, code.const(16, wide)), "float")
    if dtype.name == "float8e8m0":
        return helper(code, "decode.float8e8m0", [v], "float", _decode_e8m0)
    layout = LAYOUTS[dtype.name]
    return helper(code, f"decode.{dtype}", [v], "float", lambda c, a: _decode(c, a[0], layout))


def encode(code: Code, v: Value, dtype: DType) -> Value:
    """The narrow float bits of a float32 value."""
    if dtype.name == "float16" and _has_half(code):
        return code.convert("bitcast", code.convert("fptrunc", v, "half"), "i16")
    scalar = register_type(dtype)
    if dtype.name == "float8e8m0":
        return helper(code, "encode.float8e8m0", [v], scalar, _encode_e8m0)
    if dtype.name == "bfloat16":
        return helper(code, "encode.bfloat16", [v], scalar, _encode_bfloat16)
    layout = LAYOUTS[dtype.name]
    return helper(code, f"encode.{dtype}", [v], scalar, lambda c, a: _encode(c, a[0], layout, scalar))


_REGISTERS = (16, 32, 64)
"""The lanes of one, two and four registers of 512 bits."""


def narrow(code: Code, v: Value) -> Value:
    """The bfloat16 bits of a float32 value; by the CPU's instruction, if it has one, 0 for those below normal ones."""
    on = code.target.enabled
    if "avx512bf16" not in on or not (v.lanes in _REGISTERS or (v.lanes == 8 and "avx512vl" in on)):
        return encode(code, v, bfloat16)
    if v.lanes > _REGISTERS[0]:  # joined for a function
        parts = (range(at, at + _REGISTERS[0]) for at in range(0, v.lanes, _REGISTERS[0]))
        return code.concat([narrow(code, code.shuffle(v, None, part)) for part in parts])
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * v.lanes}"
    code.module.declare(name, f"<{v.lanes} x bfloat>", [v.full])
    return code.convert("bitcast", code.call(name, "bfloat", v.lanes, v), "i16")


def double_to_odd_float(code: Code, v: Value) -> Value:
    """float64 to float32 rounded to odd, after which a second rounding to a narrower type is exact."""
    return helper(code, "to_odd", [v], "float", _to_odd)


def _has_half(code: Code) -> bool:
    """True if the CPU converts float16 itself. LLVM would call a library else, number by number, and for WebAssembly
    it ends the process over some comparisons."""
    on, arch = code.target.enabled, architecture(code.target.triple)
    if arch == "riscv64":
        return {"zfhmin", *(["zvfhmin"] if "v" in on else [])} <= on
    if arch in ("x86_64", "i686", "i386"):
        return bool(on & {"f16c", "avx512f"})
    return arch != "wasm32"


def _to_odd(c: Code, args: Sequence[Value]) -> Value:
    (x,) = args
    near = c.convert("fptrunc", x, "float")
    back = c.convert("fpext", near, "double")
    bits = c.convert("bitcast", near, "i32")
    fabs_back, fabs_x = c.intrinsic("fabs", back), c.intrinsic("fabs", x)
    away = c.compare("ogt", fabs_back, fabs_x)
    toward = c.binary("sub", bits, c.convert("zext", away, "i32"))
    inexact = c.compare("one", back, x)
    odd = c.binary("or", toward, c.convert("zext", inexact, "i32"))
    return c.convert("bitcast", odd, "float")


def _decode(c: Code, v: Value, layout: Layout) -> Value:
    bits = c.convert("zext", v, "i32")
    magnitude = c.binary("and", bits, c.const(layout.sign - 1, bits))
    sign = c.binary("shl", c.binary("and", bits, c.const(layout.sign, bits)), c.const(31 - _sign_bit(layout), bits))
    shifted = c.binary("shl", magnitude, c.const(23 - layout.mantissa, bits))
    normal = c.convert("bitcast", c.binary("add", shifted, c.const((127 - layout.bias) << 23, bits)), "float")
    # a subnormal is its mantissa times the least subnormal
    small = c.convert("uitofp", magnitude, "float")
    small = c.fmul(small, 2.0 ** (1 - layout.bias - layout.mantissa))
    value = c.select(c.compare("ult", magnitude, c.const(1 << layout.mantissa, bits)), small, normal)
    out = c.convert("bitcast", value, "i32")
    if layout.infinity is not None:
        is_inf = c.compare("eq", magnitude, c.const(layout.infinity, bits))
        out = c.select(is_inf, c.const(0x7F800000, bits), out)
    if layout.negative_zero:
        limit = layout.infinity if layout.infinity is not None else layout.top
        if limit < layout.sign - 1:
            out = c.select(c.compare("ugt", magnitude, c.const(limit, bits)), c.const(0x7FC00000, bits), out)
        out = c.binary("or", out, sign)
    else:
        out = c.binary("or", out, sign)
        out = c.select(c.compare("eq", bits, c.const(layout.nan, bits)), c.const(0x7FC00000, bits), out)
    return c.convert("bitcast", out, "float")


def _sign_bit(layout: Layout) -> int:
    return layout.sign.bit_length() - 1


def _encode(c: Code, x: Value, layout: Layout, scalar: str) -> Value:
    bits = c.convert("bitcast", x, "i32")
    magnitude = c.binary("and", bits, c.const(0x7FFFFFFF, bits))
    sign = c.binary("and", c.binary("lshr", bits, c.const(31 - _sign_bit(layout), bits)), c.const(layout.sign, bits))
    drop = 23 - layout.mantissa
    # normal result: round the mantissa in place, then rebias
    lsb = c.binary("and", c.binary("lshr", magnitude, c.const(drop, bits)), c.const(1, bits))
    rounded = c.binary("add", c.binary("add", magnitude, c.const((1 << (drop - 1)) - 1, bits)), lsb)
    rebiased = c.binary("sub", rounded, c.const((127 - layout.bias) << 23, bits))
    normal = c.binary("lshr", rebiased, c.const(drop, bits))
    # subnormal result: let a float addition round at the right bit
    magic_exponent = 127 + 1 - layout.bias + drop
    magic = c.const(magic_exponent << 23, bits)
    moved = c.fadd(c.convert("bitcast", magnitude, "float"), c.convert("bitcast", magic, "float"))
    small = c.binary("sub", c.convert("bitcast", moved, "i32"), magic)
    least_normal = (127 + 1 - layout.bias) << 23
    out = c.select(c.compare("ult", magnitude, c.const(least_normal, bits)), small, normal)
    limit = layout.top if layout.saturate or layout.infinity is None else layout.infinity
    too_big = c.compare("ugt", out, c.const(layout.top, bits))
    huge = c.compare("uge", magnitude, c.const((127 - layout.bias + (1 << layout.exponent)) << 23, bits))
    out = c.select(c.binary("or", too_big, huge), c.const(limit, bits), out)
    is_nan = c.compare("ugt", magnitude, c.const(0x7F800000, bits))
    if layout.negative_zero:
        if layout.nan >= layout.sign:  # the format has no NaN; ONNX's reference makes it this zero
            out = c.select(is_nan, c.const(layout.nan, bits), c.binary("or", out, sign))
        else:
            out = c.binary("or", c.select(is_nan, c.const(layout.nan, bits), out), sign)
    else:
        signed = c.binary("or", out, sign)
        out = c.select(c.compare("eq", out, c.const(0, bits)), c.const(0, bits), signed)
        out = c.select(is_nan, c.const(layout.nan, bits), out)
    return c.resize(out, scalar, False)


def _encode_bfloat16(c: Code, args: Sequence[Value]) -> Value:
    bits = c.convert("bitcast", args[0], "i32")
    lsb = c.binary("and", c.binary("lshr", bits, c.const(16, bits)), c.const(1, bits))
    rounded = c.binary("add", c.binary("add", bits, c.const(0x7FFF, bits)), lsb)
    quiet = c.binary("or", bits, c.const(0x400000, bits))
    out = c.select(c.compare("uno", args[0], args[0]), quiet, rounded)
    return c.convert("trunc", c.binary("lshr", out, c.const(16, bits)), "i16")


def _decode_e8m0(c: Code, args: Sequence[Value]) -> Value:
    bits = c.convert("zext", args[0], "i32")
    out = c.binary("shl", bits, c.const(23, bits))
    out = c.select(c.compare("eq", bits, c.const(0, bits)), c.const(0x00400000, bits), out)
    out = c.select(c.compare("eq", bits, c.const(255, bits)), c.const(0x7FC00000, bits), out)
    return c.convert("bitcast", out, "float")


def _encode_e8m0(c: Code, args: Sequence[Value]) -> Value:
    bits = c.convert("bitcast", args[0], "i32")
    exponent = c.binary("and", c.binary("lshr", bits, c.const(23, bits)), c.const(255, bits))
    fraction = c.binary("and", bits, c.const(0x7FFFFF, bits))
    has_fraction = c.compare("ne", fraction, c.const(0, bits))
    below_top = c.compare("ult", exponent, c.const(254, bits))
    up = c.convert("zext", c.binary("and", has_fraction, below_top), "i32")
    return c.convert("trunc", c.binary("add", exponent, up), "i8")
