"""What a CPU's features mean: its vector registers, and their names for people."""

from __future__ import annotations

import re
from dataclasses import replace

from tilewright.machine.target import Target

_RISCV_VECTOR = re.compile(r"zvl\d+b")
"""LLVM's names of the least lengths of RISC-V's vectors, in bits."""


_VECTORS = {
    "avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse4.2": "SSE4.2", "sve": "SVE", "neon": "NEON", "v": "RVV",
    "simd128": "SIMD128",
}  # fmt: skip
"""Vector units, the widest first."""
_PRODUCTS = {
    "avx512vnni": "VNNI", "avxvnni": "VNNI", "avx512bf16": "BF16", "avx512fp16": "FP16", "amx-tile": "AMX",
    "dotprod": "dot products", "i8mm": "I8MM", "bf16": "BF16", "fullfp16": "FP16",
}  # fmt: skip
"""What decides which products are fast."""


def target_text(target: Target) -> str:
    """A target in a few words, ``znver4 (AVX-512, VNNI, BF16), 2 threads``: LLVM's name of the CPU, its widest vector
    unit, and what makes products of narrow elements fast. ``target.key()`` has everything."""
    on = target.enabled
    names = [name for feature, name in _VECTORS.items() if feature in on][:1]
    names += [name for feature, name in _PRODUCTS.items() if feature in on]
    units = f" ({', '.join(dict.fromkeys(names))})" if names else ""
    return f"{target.cpu}{units}, {target.threads} thread{'s' if target.threads != 1 else ''}"


def is_x86(triple: str) -> bool:
    return triple.split("-")[0] in ("x86_64", "amd64", "i686", "i386")


def share_of_pairs(target: Target) -> float:
    """The time of two products of bfloat16 in a lane, as a share of that of two multiply-adds of float32. CPUs that
    have matrix tiles for them take their time for them in vectors (117 Gop/s where float32 reaches 189)."""
    if "avx512bf16" not in target.enabled:
        return 2.0
    return 1.6 if "amx-bf16" in target.enabled else 0.5


def share_of_bytes(target: Target) -> float:
    """The time of four products of bytes in a lane, as a share of that of four multiply-adds of float32."""
    if target.enabled & {"avx512vnni", "avxvnni"}:
        return 0.3
    return 0.8 if target.enabled & {"avx2", "avx512bw"} else 3.0


def converts_halves(target: Target) -> tuple[str, ...]:
    """The floats of 16 bits of which vectors become float32 in an instruction or two, by name, the fastest first."""
    if target.enabled & {"f16c", "avx512f", "neon"}:
        return "float16", "bfloat16"
    return ("bfloat16",) if "avx2" in target.enabled else ()


def has_matrix_tiles(target: Target, product: str) -> bool:
    """True if products of words, ``dot2`` or ``dot4``, run in matrix tiles: Linux lets a process use them."""
    needed = {"amx-tile", "amx-bf16" if product == "dot2" else "amx-int8"}
    return needed <= target.enabled and "linux" in target.triple


def share_of_tiles(target: Target, product: str) -> float:
    """The time of a product in matrix tiles, as a share of that of a multiply-add of float32."""
    return target.costs.tile_pair if product == "dot2" else target.costs.tile_byte


def bytes_ahead(target: Target) -> int:
    """How far ahead a row times a large weight fetches the weight by itself; 0 for not at all. Measured on a CPU with
    matrix tiles (two threads, per token: 556 MB of bytes 24.4 -> 22.4 ms, 309 MB of nibbles 13.3 -> 12.4, 0.8 GB of
    float32 31.4 -> 28.2); a decision of tuning elsewhere."""
    return 3072 if "amx-tile" in target.enabled else 0


def share_of_shorts(target: Target) -> float:
    """The time of two products of int16 in a lane, as a share of that of two multiply-adds of float32."""
    return 0.6 if is_x86(target.triple) else 1.5


def share_of_products(target: Target) -> float:
    """The time of an exact product of bytes, as a share of that of a multiply-add of float32."""
    return min(share_of_bytes(target), share_of_shorts(target))


def permutes_bytes(target: Target) -> bool:
    """True if an instruction takes 64 bytes from any place of 128."""
    return {"avx512vbmi"} <= target.enabled and target.vector_bits == 512


PART = 16
"""Bytes from any place of which an instruction takes others."""


def shuffled_bytes(target: Target) -> int:
    """How many bytes an instruction takes each from any of 16 or more places at once; 0 if there is none."""
    on = target.enabled
    if not is_x86(target.triple) or not {"ssse3", "sse4.1"} <= on:
        return 0
    if target.vector_bits >= 512 and "avx512bw" in on:
        return 64
    return 32 if target.vector_bits >= 256 and "avx2" in on else 16


def look_up_operations(target: Target) -> float:
    """The time of elements from a table of 256 bytes, in operations on as many of float32."""
    if permutes_bytes(target):
        return 4.0
    return 12.0 if shuffled_bytes(target) else target.costs.look_up


def with_vectors(target: Target) -> Target:
    """``target`` with the vector facts that its features imply."""
    on = target.enabled
    arch = target.triple.split("-")[0]
    if arch == "riscv64":
        bits = max((int(f[3:-1]) for f in on if _RISCV_VECTOR.fullmatch(f)), default=0)
        return _with_pairs(replace(target, vector_bits=bits, vector_registers=32, has_fma="d" in on))
    if arch == "wasm32":  # as many registers as the machine below has: engines mostly run on x86
        bits = 128 if "simd128" in on else 0
        return _with_pairs(replace(target, vector_bits=bits, vector_registers=16, has_fma=False))
    if not is_x86(target.triple):
        return replace(target, vector_bits=128, vector_registers=32, has_fma=arch in ("aarch64", "arm64"))
    if "avx512f" in on:
        return replace(target, vector_bits=512, vector_registers=32, has_fma=True)
    bits = 256 if "avx" in on else 128
    return replace(target, vector_bits=bits, vector_registers=16, has_fma="fma" in on)


def _with_pairs(target: Target) -> Target:
    """``target``, or if it has no vectors of two numbers, one with two registers each as a vector of 64 bits: schedules
    are made of vectors, and LLVM makes scalars of them."""
    if target.vector_bits >= 64:
        return target
    return replace(target, vector_bits=64, vector_registers=target.vector_registers // 2)


def share_of_paired_bytes(target: Target) -> float | None:
    """The time of four products of bytes in a lane, two of them added in 16 bits, as a share of that of four
    multiply-adds of float32; None where there are no such products, or those of four bytes take one instruction."""
    on = target.enabled
    if not is_x86(target.triple) or on & {"avx512vnni", "avxvnni"} or not on & {"avx2", "avx512bw"}:
        return None
    return 0.48
