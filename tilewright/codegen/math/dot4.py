"""``dot4``: four products of bytes in each lane of 32 bits, added up. One instruction where the CPU has it (VNNI).

Elsewhere on x86 the bytes at even and at odd places are widened to 16 bits, where a product of two and their sum fit
into 32 (``pmaddwd``): nothing saturates, as it would with products of bytes summed up in 16 bits (``pmaddubsw``).
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Code, Value

_SHORT = (frozenset({"avxvnni"}), frozenset({"avx512vnni", "avx512vl"}))
_VNNI = {4: _SHORT, 8: _SHORT, 16: (frozenset({"avx512vnni"}),)}
"""Features, one set of which it takes, by lanes."""
_PMADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
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
        unsigned = code.binary("and", code.binary("lshr", a, code.const(s, a)), code.const(0xFF, a))
        signed = code.binary("ashr", code.binary("shl", b, code.const(24 - s, b)), code.const(24, b))
        total = code.binary("add", total, code.binary("mul", unsigned, signed))
    return total


def _by_words(code: Code, lanes: int, a: Value, b: Value) -> Value:
    words = 2 * lanes
    x, y = (code.emit("i16", words, f"bitcast {v.full} {v.text} to <{words} x i16>") for v in (a, b))
    eight, low = code.const(8, x), code.const(0xFF, x)
    name = _PMADDWD[lanes]
    code.module.declare(name, f"<{lanes} x i32>", [x.full, x.full])
    even = code.call(
        name, "i32", lanes, code.binary("and", x, low), code.binary("ashr", code.binary("shl", y, eight), eight)
    )
    odd = code.call(name, "i32", lanes, code.binary("lshr", x, eight), code.binary("ashr", y, eight))
    return code.binary("add", even, odd)
