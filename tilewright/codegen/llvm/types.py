"""How element types look to LLVM: in memory, in registers, and as literals.

A value in a register has the *register type*: ``i1`` for booleans, ``float``/``double`` for wide floats, an integer
of the storage width for everything else. Narrow floats stay in their bit pattern until a cast decodes them
(:mod:`tilewright.codegen.math.narrow_floats`); complex numbers are only moved, as one integer of their size.
"""

from __future__ import annotations

import struct

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError

# LLVM type in a register, by element type name
REGISTER_TYPES: dict[str, str] = {
    "float32": "float", "float64": "double", "bool": "i1",
    "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16",
    "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64",
    "int4": "i8", "uint4": "i8", "int2": "i8", "uint2": "i8",
    "float16": "i16", "bfloat16": "i16",
    "float8e4m3fn": "i8", "float8e4m3fnuz": "i8", "float8e5m2": "i8", "float8e5m2fnuz": "i8",
    "float8e8m0": "i8", "float4e2m1": "i8",
    "complex64": "i64", "complex128": "i128",
}  # fmt: skip

_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


def register_type(dtype: DType) -> str:
    """The LLVM scalar type of a value of ``dtype`` in a register."""
    if dtype.name not in REGISTER_TYPES:
        raise InternalError(f"codegen: element type {dtype} cannot be computed natively")
    return REGISTER_TYPES[dtype.name]


def memory_type(dtype: DType) -> str:
    """The LLVM scalar type of an element of ``dtype`` in memory."""
    return "i8" if dtype.name == "bool" else register_type(dtype)


def full_type(scalar: str, lanes: int) -> str:
    """The LLVM type of ``lanes`` elements (0: a scalar)."""
    return f"<{lanes} x {scalar}>" if lanes else scalar


def suffix(scalar: str, lanes: int) -> str:
    """The name mangling of overloaded intrinsics: ``v8f32``."""
    s = _SUFFIX.get(scalar, scalar)
    return f"v{lanes}{s}" if lanes else s


def bits_of(scalar: str) -> int:
    """The width of an LLVM scalar type in bits."""
    if scalar[0] == "i":
        return int(scalar[1:])
    return {"float": 32, "double": 64, "half": 16, "bfloat": 16}[scalar]


def float_literal(x: float, scalar: str) -> str:
    """A floating-point constant of LLVM type ``scalar``, exact."""
    if scalar == "float":
        with np.errstate(over="ignore"):
            x = float(np.float32(x))
    return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def literal(value: int | float | bool, dtype: DType) -> str:
    """The text of a constant of ``dtype`` in its register type. Out-of-range integers wrap."""
    if dtype.kind == "b":
        return "true" if value else "false"
    scalar = register_type(dtype)
    if dtype.kind == "f" and not dtype.is_narrow_float:
        return float_literal(float(value), scalar)
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            raw = np.asarray(value, dtype=np.float32).astype(dtype.numpy)
        return str(int.from_bytes(raw.tobytes(), "little"))
    if dtype.kind in "iu":
        bits = dtype.bits
        wrapped = int(value) & ((1 << bits) - 1)
        if dtype.kind == "i" and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        return str(wrapped)
    raise InternalError(f"codegen: constants of element type {dtype} are not supported")
