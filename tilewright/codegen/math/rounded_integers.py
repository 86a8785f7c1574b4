"""``integer(clamp(round(x) + zero, low, high))`` of float32, as quantization ends: the conversion of x86 rounds to the
nearest integer by itself, ties to even, and what it cannot hold, NaN with it, becomes the least int32.

So only what is too large has to be cut before; the least is cut among integers. Bytes come from several vectors at a
time: twice two vectors become one of half the width, saturating (``packssdw``, ``packuswb``), and the pieces of 128
bits, within which these instructions stay, are brought into order at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.builder import Code, Value
from tilewright.codegen.llvm.types import full_type, register_type
from tilewright.core.dtypes import DType

_CONVERSIONS = {4: ("llvm.x86.sse2.cvtps2dq", "sse2"), 8: ("llvm.x86.avx.cvt.ps2dq.256", "avx")}
_WIDEST = ("llvm.x86.avx512.mask.cvtps2dq.512", "avx512f")
_PACKS = {
    4: ("llvm.x86.sse2.{}.128", "sse2"), 8: ("llvm.x86.avx2.{}", "avx2"), 16: ("llvm.x86.avx512.{}.512", "avx512bw"),
}  # fmt: skip
"""Intrinsics and the feature that they take, by lanes of 32 bits."""

_SHORTS = 1 << 15


def converts(code: Code, lanes: int) -> bool:
    """True if the CPU has the conversion for vectors of so many lanes, or for parts of them."""
    return lanes > 0 and _part(code, lanes) is not None


def rounded_integer(code: Code, x: Value, zero: int, low: int, high: int, to: DType) -> Value:
    """``to(clamp(round(x) + zero, low, high))`` for a vector that :func:`converts`; ``low`` where ``x`` is NaN. ``to``
    holds ``low`` to ``high``, and float32 holds them and ``zero`` exactly."""
    part = _part(code, x.lanes) or x.lanes
    most = code.const(float(high - zero), x)
    x = code.select(code.compare("ogt", x, most), most, x)  # NaN stays NaN
    parts = [_converted(code, code.shuffle(x, None, range(k, k + part))) for k in range(0, x.lanes, part)]
    fits = max(abs(low), abs(high), abs(low - zero), abs(high - zero)) < _SHORTS
    if to.bits == 8 and len(parts) in (2, 4) and fits and _PACKS[part][1] in code.target.enabled:
        return _packed(code, parts, zero, low, to)
    whole = code.concat(parts)
    whole = code.intrinsic("smax", whole, code.const(low - zero, whole))
    if zero:
        whole = code.binary("add", whole, code.const(zero, whole))
    return code.resize(whole, register_type(to), True)


def _part(code: Code, lanes: int) -> int | None:
    """The lanes of the largest vectors that are converted at once and divide ``lanes``."""
    found = [n for n, (_, needed) in _CONVERSIONS.items() if needed in code.target.enabled]
    found += [16] if _WIDEST[1] in code.target.enabled and code.target.lanes(4) >= 16 else []
    return max((n for n in found if lanes % n == 0), default=None)


def _converted(code: Code, x: Value) -> Value:
    if x.lanes in _CONVERSIONS:
        name = _CONVERSIONS[x.lanes][0]
        code.module.declare(name, full_type("i32", x.lanes), [x.full])
        return code.call(name, "i32", x.lanes, x)
    name, ints = _WIDEST[0], full_type("i32", x.lanes)
    code.module.declare(name, ints, [x.full, ints, "i16", "i32"])
    current = 4  # the direction that is set: to nearest
    return code.emit("i32", x.lanes, f"call {ints} @{name}({x.typed}, {ints} zeroinitializer, i16 -1, i32 {current})")


def _packed(code: Code, parts: Sequence[Value], zero: int, low: int, to: DType) -> Value:
    """Two or four vectors of int32, of which none is too large, as one of bytes."""
    words = [_pack(code, "packssdw", "i16", parts[k], parts[k + 1]) for k in range(0, len(parts), 2)]
    if zero:
        words = [code.intrinsic("sadd.sat", w, code.const(zero, w)) for w in words]
    if low > (0 if to.kind == "u" else -128):
        words = [code.intrinsic("smax", w, code.const(low, w)) for w in words]
    packed = _pack(code, "packuswb" if to.kind == "u" else "packsswb", "i8", words[0], words[-1])
    n, count = parts[0].lanes, len(parts)
    order = [4 * lane + k for k in range(count) for lane in range(n // 4)]
    return code.view(code.shuffle(code.view(packed, "i32", n), None, order), "i8", n * count)


def _pack(code: Code, what: str, to: str, a: Value, b: Value) -> Value:
    bits = int(a.type[1:])
    name = _PACKS[a.lanes * bits // 32][0].format(what)
    code.module.declare(name, full_type(to, 2 * a.lanes), [a.full, b.full])
    return code.call(name, to, 2 * a.lanes, a, b)
