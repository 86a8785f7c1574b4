"""``doctor``: what this machine is, what will be used of it, and why."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import platform
from pathlib import Path

from tilewright.autotune.measure.peaks import measure_costs, measure_dot_products, measure_peaks
from tilewright.codegen.detect_cpu import detect_host, tiles_refusal
from tilewright.core.config import from_environment
from tilewright.core.console import table
from tilewright.kernels.check_tiles import wrong_tile_products
from tilewright.machine.cpus import CPUS
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles
from tilewright.runtime.resources.threads import count_threads

_PACKAGES = ("tilewright", "numpy", "ml_dtypes", "onnx", "llvmlite", "xgboost", "scipy", "rich", "jinja2",
             "matplotlib", "onnxruntime")  # fmt: skip
_TELLING = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16",
            "avxvnni", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "sve")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-peaks", action="store_true", help="do not measure (takes about three seconds)")


def run(args: argparse.Namespace) -> int:
    host = detect_host()
    for title, lines in (
        ("CPU", _cpu(host)),
        ("threads", _threads()),
        ("measured peaks", [] if args.no_peaks else _peaks(host)),
        ("costs", _costs(host, measured=not args.no_peaks)),
        ("object cache", _cache()),
        ("packages", _packages()),
    ):
        if lines:
            print(f"{title}:", *(f"  {line}" for line in lines), sep="\n")
    return 0


def _cpu(host: Target) -> list[str]:
    return [
        f"{_model_name()} (LLVM: {host.cpu}), {host.triple}",
        f"features: {' '.join(f for f in _TELLING if f in host.enabled)}",
        *_matrix_tiles(host),
        f"vectors: {host.vector_registers} registers of {host.vector_bits} bits, fused multiply-add {host.has_fma}",
        f"caches: L1d {_size(host.l1_bytes)}, L2 {_size(host.l2_bytes)}, L3 {_size(host.l3_bytes)}",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    ]


def _matrix_tiles(host: Target) -> list[str]:
    """A line if the CPU has matrix tiles: what they are used for and whether they compute it, or why they are not."""
    uses = [what for what, product in (("bfloat16", "dot2"), ("bytes", "dot4")) if has_matrix_tiles(host, product)]
    if uses:
        wrong = wrong_tile_products(host)
        checked = f"WRONG here: {', '.join(wrong)}" if wrong else "checked here"
        return [f"matrix tiles: used for products of {' and '.join(uses)}; {checked}"]
    reason = tiles_refusal()
    return [f"matrix tiles: not used, {reason}"] if reason else []


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
    return lines + [
        f"1 thread(s): {rate / 1e9:.1f} Gop/s ({d.elements}, {d.name} of {d.bits} bits)"
        for d, rate in measure_dot_products(host)
    ]


def _costs(host: Target, measured: bool) -> list[str]:
    """What estimates assume, and beside it what is measured here on one thread."""
    c, seen = host.costs, dataclasses.asdict(measure_costs(host)) if measured else {}
    named = host.cpu if host.cpu in CPUS else "generic"
    lines = [f"of {named} in the table of CPUs; builds follow what is assumed there, not what is measured here"]
    if c.core is not None:
        lines.append(f"core, by its manual: begins {c.core.fma_ports} multiply-adds of vectors in a cycle, each takes "
                     f"{c.core.fma_latency}; loads {c.core.load_bytes} bytes in a cycle")  # fmt: skip
    rows: tuple[tuple[str, str, float | None, str], ...] = (
        ("multiply-adds", "operations/ns", c.multiply_add_rate, "multiply_adds"),
        ("other arithmetic", "operations/ns", c.operation_rate, "operations"),
        ("exponentials", "elements/ns", None, "exponentials"),
        ("read from L1", "bytes/ns", None, "l1"),
        ("read from L2", "bytes/ns", None, "l2"),
        ("read from L3", "bytes/ns", c.stream_rate, "l3"),
        ("read from memory", "bytes/ns", c.memory_rate, "memory"),
        ("start of a parallel loop", "ns", None, "parallel_start"),
        ("least work that threads share", "ns", c.parallel_ns, ""),
    )
    known = [(what, assumed, seen.get(name), unit) for what, unit, assumed, name in rows]
    cells = [(what, _number(a), _number(b), unit) for what, a, b, unit in known if a is not None or b is not None]
    return [*lines, *table(("cost", " assumed", " measured", "unit"), cells).splitlines()]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


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
