"""Products of several elements in each lane of 32 bits, added up: ``dot4`` of four bytes, ``dot2i`` of two int16,
``dot2`` of two bfloat16. One instruction where the CPU has it (VNNI, SSE2 and its wider kin, AVX512-BF16).

Elsewhere on x86 the bytes at even and at odd places are widened to 16 bits, where a product of two and their sum fit
into 32 (``pmaddwd``): nothing saturates. Products of bytes summed up in 16 bits do
(``dot4s``, ``pmaddubsw``).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.builder import Code, Value

_SHORT_PAIRS = frozenset({"avx512bf16", "avx512vl"})
_BF16 = {4: _SHORT_PAIRS, 8: _SHORT_PAIRS, 16: frozenset({"avx512bf16"})}
_SHORT = (frozenset({"avxvnni"}), frozenset({"avx512vnni", "avx512vl"}))
_VNNI = {4: _SHORT, 8: _SHORT, 16: (frozenset({"avx512vnni"}),)}
"""Features, one set of which it takes, by lanes."""
_PMADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_PMADDUBSW = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.avx512.pmaddubs.w.512",
}
_NEEDED_FOR_BYTES = {4: "ssse3", 8: "avx2", 16: "avx512bw"}
_NEEDED = {4: "sse2", 8: "avx2", 16: "avx512bw"}


def dot4(code: Code, a: Value, b: Value, added: Value | None = None) -> Value:
    """``added + dot4(a, b)``; None stands for zero."""
    lanes = max(v.lanes for v in (a, b, added) if v is not None)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    total = code.const(0, a) if added is None else code.splat(added, lanes)
    present = code.target.enabled
    if any(needed <= present for needed in _VNNI.get(lanes, ())):
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        code.module.declare(name, a.full, [a.full] * 3)
        return code.call(name, "i32", lanes, total, a, b)
    if _NEEDED.get(lanes) in present:
        return code.binary("add", total, _by_words(code, lanes, a, b))
    for s in (0, 8, 16, 24):
        total = code.binary("add", total, _byte_product(code, a, b, s))
    return total


def _byte_product(code: Code, a: Value, b: Value, bit: int) -> Value:
    """The product of the bytes from ``bit`` on, unsigned and signed."""
    unsigned = code.binary("and", code.binary("lshr", a, code.const(bit, a)), code.const(0xFF, a))
    signed = code.binary("ashr", code.binary("shl", b, code.const(24 - bit, b)), code.const(24, b))
    return code.binary("mul", unsigned, signed)


def dot4s(code: Code, a: Value, b: Value, added: Value | None = None) -> Value:
    """``added + dot4s(a, b)``; None stands for zero."""
    lanes = max(v.lanes for v in (a, b, added) if v is not None)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    total = code.const(0, a) if added is None else code.splat(added, lanes)
    if _NEEDED_FOR_BYTES.get(lanes) in code.target.enabled:
        name = _PMADDUBSW[lanes]
        x, y = (code.view(v, "i8", 4 * lanes) for v in (a, b))
        code.module.declare(name, f"<{2 * lanes} x i16>", [x.full, y.full])
        sums = code.call(name, "i16", 2 * lanes, x, y)
        return code.binary("add", total, _madd(code, lanes, sums, code.const(1, sums)))
    low, high = code.const(-0x8000, a), code.const(0x7FFF, a)
    for first in (0, 16):
        pair = code.binary("add", _byte_product(code, a, b, first), _byte_product(code, a, b, first + 8))
        pair = code.select(code.compare("slt", pair, low), low, pair)
        total = code.binary("add", total, code.select(code.compare("sgt", pair, high), high, pair))
    return total


def dot2(code: Code, a: Value, b: Value, added: Value | None = None) -> Value:
    """``added + dot2(a, b)``; None stands for zero."""
    lanes = max(v.lanes for v in (a, b, added) if v is not None)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    total = code.const(0.0, Value("float", lanes, "")) if added is None else code.splat(added, lanes)
    if lanes in _BF16 and _BF16[lanes] <= code.target.enabled:
        pairs = f"<{2 * lanes} x bfloat>"
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        code.module.declare(name, total.full, [total.full, pairs, pairs])
        x, y = (code.view(v, "bfloat", 2 * lanes) for v in (a, b))
        return code.call(name, "float", lanes, total, x, y)
    for x, y in zip(_halves(code, a), _halves(code, b), strict=True):
        total = code.fma(x, y, total)
    return total


def dot2i(code: Code, a: Value, b: Value, added: Value | None = None) -> Value:
    """``added + dot2i(a, b)``; None stands for zero."""
    lanes = max(v.lanes for v in (a, b, added) if v is not None)
    a, b = code.splat(a, lanes), code.splat(b, lanes)
    total = code.const(0, a) if added is None else code.splat(added, lanes)
    if _NEEDED.get(lanes) in code.target.enabled:
        return code.binary("add", total, _madd(code, lanes, _words(code, lanes, a), _words(code, lanes, b)))
    for first in (True, False):
        x, y = (code.binary("shl", v, code.const(16, v)) if first else v for v in (a, b))
        x, y = (code.binary("ashr", v, code.const(16, v)) for v in (x, y))
        total = code.binary("add", total, code.binary("mul", x, y))
    return total


def _words(code: Code, lanes: int, v: Value) -> Value:
    """Lanes of 32 bits as twice as many of 16."""
    return code.view(v, "i16", 2 * lanes)


def _madd(code: Code, lanes: int, x: Value, y: Value) -> Value:
    """``pmaddwd``: products of int16, neighbours added."""
    name = _PMADDWD[lanes]
    code.module.declare(name, f"<{lanes} x i32>", [x.full, x.full])
    return code.call(name, "i32", lanes, x, y)


def _halves(code: Code, v: Value) -> tuple[Value, Value]:
    """The second and the first bfloat16 of each lane, as float32."""
    second = code.binary("and", v, code.const(-65536, v))
    first = code.binary("shl", v, code.const(16, v))
    return code.convert("bitcast", second, "float"), code.convert("bitcast", first, "float")


def _by_words(code: Code, lanes: int, a: Value, b: Value) -> Value:
    x, y = _words(code, lanes, a), _words(code, lanes, b)
    eight, low = code.const(8, x), code.const(0xFF, x)
    even = _madd(code, lanes, code.binary("and", x, low), code.binary("ashr", code.binary("shl", y, eight), eight))
    odd = _madd(code, lanes, code.binary("lshr", x, eight), code.binary("ashr", y, eight))
    return code.binary("add", even, odd)


EMITTERS: dict[str, Callable[[Code, Value, Value, Value | None], Value]] = {
    "dot2": dot2,
    "dot2i": dot2i,
    "dot4": dot4,
    "dot4s": dot4s,
}
"""Those that take what they are added to, by scalar operation."""
