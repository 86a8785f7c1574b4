"""``doctor``: what this machine is, what will be used of it, and why."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from pathlib import Path

from tilewright.autotune.measure.peaks import measure_peaks
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.config import from_environment
from tilewright.machine.target import Target
from tilewright.runtime.resources.threads import count_threads

_PACKAGES = ("tilewright", "numpy", "ml_dtypes", "onnx", "llvmlite", "xgboost", "scipy", "onnxruntime")
_TELLING = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16",
            "avxvnni", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "sve")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-peaks", action="store_true", help="do not measure the peaks (takes about two seconds)")


def run(args: argparse.Namespace) -> int:
    host = detect_host()
    for title, lines in (
        ("CPU", _cpu(host)),
        ("threads", _threads()),
        ("measured peaks", [] if args.no_peaks else _peaks(host)),
        ("object cache", _cache()),
        ("packages", _packages()),
    ):
        if lines:
            print(f"{title}:", *(f"  {line}" for line in lines), sep="\n")
    return 0


def _cpu(host: Target) -> list[str]:
    present = {f[1:] for f in host.features.split(",") if f.startswith("+")}
    return [
        f"{_model_name()} (LLVM: {host.cpu}), {host.triple}",
        f"features: {' '.join(f for f in _TELLING if f in present)}",
        f"vectors: {host.vector_registers} registers of {host.vector_bits} bits, fused multiply-add {host.has_fma}",
        f"caches: L1d {_size(host.l1_bytes)}, L2 {_size(host.l2_bytes)}, L3 {_size(host.l3_bytes)}",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    ]


def _model_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _threads() -> list[str]:
    return [f"{count_threads().reasons}; the least counts"]


def _peaks(host: Target) -> list[str]:
    lines = []
    for n in sorted({1, host.threads}):
        p = measure_peaks(host, n)
        lines.append(f"{n} thread(s): {p.flops_per_second / 1e9:.1f} GFLOP/s (float32), "
                     f"{p.bytes_per_second / 1e9:.1f} GB/s read")  # fmt: skip
    return lines


def _cache() -> list[str]:
    config = from_environment()
    if config.cache_dir is None:
        return ["off (TILEWRIGHT_CACHE)"]
    files = [p for p in config.cache_dir.rglob("*") if p.is_file()] if config.cache_dir.is_dir() else []
    used = sum(p.stat().st_size for p in files)
    return [f"{config.cache_dir}: {len(files)} files, {_size(used)} of at most {_size(config.cache_bytes)}"]


def _packages() -> list[str]:
    return [f"{name:<12} {_version(name)}" for name in _PACKAGES]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _size(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n //= 1024
    return f"{n} GiB"
