"""What code needs of a CPU: every feature that it can need is one that a running artifact can look for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.llvm.features import COMPUTING, NOT_COMPUTING
from tilewright.deploy.include import get_include

SOURCE = (Path(get_include()) / "features.c").read_text()
KNOWN = frozenset(re.findall(r'\{"([a-z0-9.-]+)", ', SOURCE))


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_every_feature_can_be_asked_for(arch: str) -> None:
    by_rule = {n for n in COMPUTING[arch] if arch == "riscv64" and (len(n) == 1 or n.startswith("zvl"))}
    assert not set(COMPUTING[arch]) - by_rule - KNOWN


@pytest.mark.parametrize(
    "cpu", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "haswell", "skylake-avx512", "cascadelake",
            "icelake-server", "sapphirerapids", "graniterapids", "alderlake", "znver1", "znver3", "znver5"],
)  # fmt: skip
def test_what_x86_cpus_have(cpu: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    assert not target.enabled - NOT_COMPUTING - KNOWN


def test_what_this_machine_has() -> None:
    """LLVM finds more than the names of CPUs say: those before AVX10 have no feature of that name."""
    host = detect_host()
    if host.triple.startswith("x86_64"):
        assert not host.enabled - NOT_COMPUTING - KNOWN


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("aarch64-linux-gnu", "fp-armv8 neon"),
        ("aarch64-linux-gnu -mcpu=cortex-a72", "fp-armv8 neon"),
        ("aarch64-linux-gnu -mcpu=neoverse-n1", "dotprod fp-armv8 fullfp16 lse neon rcpc rdm"),
        ("aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=-dotprod", "fp-armv8 fullfp16 lse neon rcpc rdm"),
        ("aarch64-apple-macos -mcpu=apple-m1",
         "altnzcv complxnum dotprod flagm fp-armv8 fp16fml fullfp16 lse neon rcpc rcpc-immo rdm sha3"),
        ("riscv64-linux-gnu", "a c d f m zaamo zalrsc zca zicsr zmmul"),
        ("riscv64-linux-gnu -mcpu=sifive-u74", "a c d f m zaamo zalrsc zca zicsr zmmul"),
        ("riscv64-linux-gnu -mattr=+zba,-c", "a d f m zaamo zalrsc zba zicsr zmmul"),
    ],
)  # fmt: skip
def test_what_other_cpus_have(target: str, expected: str) -> None:
    assert " ".join(sorted(parse_target(f"llvm -mtriple={target}").enabled)) == expected


@pytest.mark.parametrize(
    ("target", "bits", "registers", "fma"),
    [
        ("aarch64-linux-gnu -mcpu=neoverse-v1", 128, 32, True),
        ("riscv64-linux-gnu", 64, 16, True),
        ("riscv64-linux-gnu -mattr=+v", 128, 32, True),
        ("riscv64-linux-gnu -mattr=+v,+zvl256b", 256, 32, True),
        ("riscv64-linux-gnu -mcpu=spacemit-x60", 256, 32, True),
        ("wasm32-wasi", 128, 16, False),
        ("wasm32-wasi -mattr=-simd128", 64, 8, False),
    ],
)
def test_vectors(target: str, bits: int, registers: int, fma: bool) -> None:
    t = parse_target(f"llvm -mtriple={target}")
    assert (t.vector_bits, t.vector_registers, t.has_fma) == (bits, registers, fma)


def test_triples_are_written_out() -> None:
    written = {
        "aarch64-linux-gnu": "aarch64-unknown-linux-gnu", "x86_64-windows-gnu": "x86_64-unknown-windows-gnu",
        "wasm32-wasi": "wasm32-unknown-wasi", "aarch64-macos": "aarch64-apple-macos",
        "riscv64-unknown-linux-gnu": "riscv64-unknown-linux-gnu",
    }  # fmt: skip
    for short, long in written.items():
        assert parse_target(f"llvm -mtriple={short}").triple == long
