"""Features of CPUs, by LLVM's names, as far as their instructions may stand in code: what a CPU must have to run it.

LLVM also calls hints for tuning and what only systems use features. For x86 those that do not matter are listed, since
virtual machines hide some of them; for other architectures those that do, which are few among hundreds. How a running
program asks for each is in ``deploy/native/features.c``.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_COMPUTING = frozenset({
    "aes", "cldemote", "clflushopt", "clwb", "clzero", "cx16", "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid",
    "kl", "lwp", "movdir64b", "movdiri", "mwaitx", "pclmul", "pconfig", "pku", "ptwrite", "rdpid", "rdpru", "rdrnd",
    "rdseed", "rtm", "serialize", "sgx", "sha", "sha512", "shstk", "sm3", "sm4", "tsxldtrk", "uintr", "usermsr", "vaes",
    "vpclmulqdq", "waitpkg", "wbnoinvd", "widekl", "xsave", "xsavec", "xsaveopt", "xsaves",
})  # fmt: skip
"""Features of x86 whose instructions stand in no kernel."""

COMPUTING: Mapping[str, tuple[str, ...]] = {
    "aarch64": (
        "neon", "fp-armv8", "lse", "rdm", "fullfp16", "dotprod", "fp16fml", "rcpc", "rcpc-immo", "rcpc3", "flagm",
        "altnzcv", "complxnum", "sha3", "i8mm", "bf16", "f32mm", "f64mm", "cssc", "mops", "faminmax", "cmpbr", "fprcvt",
        "sve", "sve2", "sve-bitperm", "sve-sha3", "sve2p1", "sve2p2", "sve-b16b16",
    ),
    "riscv64": (
        "m", "a", "f", "d", "c", "v", "zba", "zbb", "zbc", "zbs", "zbkb", "zbkx", "zfh", "zfhmin", "zfa", "zfbfmin",
        "zicond", "zca", "zcb", "zcd", "zmmul", "zaamo", "zalrsc", "zabha", "zacas", "zawrs", "zicsr",
        "zve32f", "zve32x", "zve64d", "zve64f", "zve64x", "zvfh", "zvfhmin", "zvfbfmin", "zvfbfwma", "zvbb", "zvkb",
        "zvbc", "zvl32b", "zvl64b", "zvl128b", "zvl256b", "zvl512b", "zvl1024b", "zvl2048b", "zvl4096b",
    ),
    "wasm32": (
        "bulk-memory", "bulk-memory-opt", "call-indirect-overlong", "fp16", "multivalue", "mutable-globals",
        "nontrapping-fptoint", "reference-types", "relaxed-simd", "sign-ext", "simd128", "tail-call",
    ),
}  # fmt: skip
"""Features of other architectures whose instructions may stand in code."""

BASELINE: Mapping[str, str] = {"aarch64": "+neon", "riscv64": "+m,+a,+f,+d,+c", "wasm32": "+simd128"}
"""What CPUs of an architecture have that their generic one lacks: distributions of Linux for RISC-V are built for it,
and WebAssembly has had vectors everywhere since 2023."""

_OTHER_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}


def architecture(triple: str) -> str:
    """LLVM's name for the architecture of a triple: of two spellings the one that tables have."""
    arch = triple.split("-")[0]
    return _OTHER_NAMES.get(arch, arch)
