"""What the quantized operators share: scales and zero points, real values to integers and back.

A result is rounded to the nearest integer, halves to even. onnxruntime adds the zero point before it rounds in some
operators and afterwards in others, which differs where the zero point is odd and the value lies halfway between two
integers: ``rounded`` and ``rounded_with_zero`` are the two orders.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.frontend.build import GraphBuilder


def scalar(build: GraphBuilder, name: str) -> str:
    """A value of one element without dimensions, so that it gives the other operand of an operator none."""
    array = build.constant_value(name)
    if array is not None and array.size == 1:
        return name if array.ndim == 0 else build.constant(array.reshape(()), "scalar")
    return name if build.rank(name) == 0 else build.emit("Reshape", (name, build.ints((), "no_dims")), "scalar")


def as_real(build: GraphBuilder, name: str) -> str:
    """A float32 of an integer."""
    return build.emit("Cast", (name,), "real", to=dtypes.float32)


def zero_point(build: GraphBuilder, name: str, like: str) -> str:
    """The zero point ``name``; a zero of the type of ``like`` where it is absent."""
    return scalar(build, name) if name else build.scalar_like(0.0, like, "zero_point")


def shifted(build: GraphBuilder, x: str, zero: str, to: DType) -> str:
    """x minus its zero point (absent: none), exactly, as ``to``: int32 or float32."""
    wide = build.emit("Cast", (x,), "wide", to=to)
    if not zero:
        return wide
    return build.emit("Sub", (wide, build.emit("Cast", (scalar(build, zero),), "wide_zero", to=to)), "shifted")


def dequantized(build: GraphBuilder, x: str, scale: str, zero: str) -> str:
    """(x - zero) * scale of one scale and zero point."""
    return build.emit("DequantizeLinear", (x, scalar(build, scale), scalar(build, zero) if zero else ""), "dequantized")


def rounded(build: GraphBuilder, real: str, zero: str, outputs: tuple[str, ...]) -> None:
    """saturate(round(real) + zero): a product that has been scaled already."""
    build.emit_to("QuantizeLinear", (real, build.constant(np.array(1, np.float32), "unit"), zero), outputs, {})


def rounded_with_zero(build: GraphBuilder, real: str, zero: str, outputs: tuple[str, ...]) -> None:
    """saturate(round(real + zero))."""
    moved = build.emit("Add", (real, as_real(build, zero)), "moved")
    rounded(build, moved, build.scalar_like(0.0, zero, "no_zero_point"), outputs)


def requantized(build: GraphBuilder, x: str, scale: str, zero: str, to_scale: str, to_zero: str) -> str:
    """x from one scale and zero point to another; itself where they are the same constants."""
    if _is_same(build, scale, to_scale) and _is_same(build, zero, to_zero):
        return x
    real = dequantized(build, x, scale, zero)
    return build.emit("QuantizeLinear", (real, scalar(build, to_scale), scalar(build, to_zero)), "requantized")


def _is_same(build: GraphBuilder, a: str, b: str) -> bool:
    if a == b:
        return True
    left, right = build.constant_value(a), build.constant_value(b)
    return left is not None and right is not None and left.size == right.size == 1 and bool(left.item() == right.item())
