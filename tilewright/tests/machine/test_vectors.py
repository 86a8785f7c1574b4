"""A target in a few words."""

from __future__ import annotations

import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.machine.vectors import target_text

X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (X86 + "znver4", "znver4 (AVX-512, VNNI, BF16), 2 threads"),
        (X86 + "haswell", "haswell (AVX2), 2 threads"),
        (X86 + "alderlake", "alderlake (AVX2, VNNI), 2 threads"),
        (X86 + "sapphirerapids", "sapphirerapids (AVX-512, VNNI, BF16, FP16, AMX), 2 threads"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "neoverse-n1 (NEON, dot products, FP16), 2 threads"),
    ],
)
def test_in_a_few_words(target: str, text: str) -> None:
    assert target_text(parse_target(target).with_threads(2)) == text


def test_a_cpu_without_any_of_them() -> None:
    bare = parse_target("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64").with_threads(1)
    assert target_text(bare) == "generic-rv64, 1 thread"
