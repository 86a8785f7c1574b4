"""``doctor``: what this machine is, what will be used of it, and why."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.autotune.measure.peaks import measure_costs, measure_denormals, measure_dot_products, measure_peaks
from tilewright.codegen.detect_cpu import detect_host, tiles_refusal
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.core.config import from_environment
from tilewright.core.console import bytes_text, table
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
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    host = detect_host()
    found = _found(host, measured=not args.no_peaks)
    if args.json:
        print_json("doctor", found)
        return 0
    for title, lines in (
        ("CPU", _cpu(found, sorted(host.enabled) if args.verbose else found["cpu"]["features"])),
        ("threads", [f"{count_threads().reasons}; the least counts"]),
        ("measured peaks", _peaks(found)),
        ("costs", _costs(host, found)),
        ("object cache", _cache(found["cache"])),
        ("packages", [f"{name:<12} {version or 'not installed'}" for name, version in found["packages"].items()]),
    ):
        if lines:
            print(f"{title}:", *(f"  {line}" for line in lines), sep="\n")
    return 0


# -- what there is -------------------------------------------------------------------------------------------------
def _found(host: Target, measured: bool) -> dict[str, Any]:
    """Under the keys of :mod:`tilewright.commands.output.keys`."""
    threads = count_threads()
    peaks = [(n, measure_peaks(host, n)) for n in sorted({1, host.threads})] if measured else []
    return {
        "cpu": {
            "name": _model_name(), "llvm_name": host.cpu, "triple": host.triple,
            "features": [f for f in _TELLING if f in host.enabled], "vector_registers": host.vector_registers,
            "vector_bits": host.vector_bits, "fused_multiply_add": host.has_fma, "l1d_bytes": host.l1_bytes,
            "l2_bytes": host.l2_bytes, "l3_bytes": host.l3_bytes, "matrix_tiles": _matrix_tiles(host),
        },
        "system": {
            "name": platform.system(), "release": platform.release(), "python": platform.python_version(),
        },
        "threads": {
            "count": threads.count, "affinity": threads.affinity, "quota": threads.quota,
            "physical_cores": threads.physical,
        },
        "peaks": [
            {"threads": n, "operations_per_second": p.flops_per_second, "bytes_per_second": p.bytes_per_second}
            for n, p in peaks
        ],
        "dot_products": [
            {"name": d.name, "elements": d.elements, "bits": d.bits, "operations_per_second": rate}
            for d, rate in (measure_dot_products(host) if measured else ())
        ],
        "denormal_slowdown": measure_denormals() if measured else None,
        "costs": {"cpu": host.cpu if host.cpu in CPUS else "generic", "rows": _cost_rows(host, measured)},
        "cache": _cache_use(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }  # fmt: skip


def _matrix_tiles(host: Target) -> dict[str, Any]:
    """What they are used for and whether they compute it, or why they are not."""
    uses = [what for what, product in (("bfloat16", "dot2"), ("bytes", "dot4")) if has_matrix_tiles(host, product)]
    wrong = list(wrong_tile_products(host)) if uses else []
    return {"used_for": uses, "wrong": wrong, "refusal": "" if uses else tiles_refusal()}


def _model_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cost_rows(host: Target, measured: bool) -> list[dict[str, Any]]:
    """What estimates assume, and beside it what is measured here on one thread."""
    c, seen = host.costs, dataclasses.asdict(measure_costs(host)) if measured else {}
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
    found = [
        {"cost": what, "unit": unit, "assumed": assumed, "measured": seen.get(name)}
        for what, unit, assumed, name in rows
    ]
    return [r for r in found if r["assumed"] is not None or r["measured"] is not None]


def _cache_use() -> dict[str, Any]:
    config = from_environment()
    if config.cache_dir is None:
        return {"directory": None, "files": 0, "bytes": 0, "limit_bytes": config.cache_bytes}
    files = [p for p in config.cache_dir.rglob("*") if p.is_file()] if config.cache_dir.is_dir() else []
    used = sum(p.stat().st_size for p in files)
    return {"directory": str(config.cache_dir), "files": len(files), "bytes": used, "limit_bytes": config.cache_bytes}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# -- as text -------------------------------------------------------------------------------------------------------
def _cpu(found: Mapping[str, Any], features: Sequence[str]) -> list[str]:
    c, s = found["cpu"], found["system"]
    return [
        f"{c['name']} (LLVM: {c['llvm_name']}), {c['triple']}",
        f"features: {' '.join(features)}",
        *_tile_lines(c["matrix_tiles"]),
        f"vectors: {c['vector_registers']} registers of {c['vector_bits']} bits, fused multiply-add "
        f"{c['fused_multiply_add']}",
        f"caches: L1d {bytes_text(c['l1d_bytes'])}, L2 {bytes_text(c['l2_bytes'])}, L3 {bytes_text(c['l3_bytes'])}",
        f"{s['name']} {s['release']}, Python {s['python']}",
    ]


def _tile_lines(tiles: Mapping[str, Any]) -> list[str]:
    if tiles["used_for"]:
        checked = f"WRONG here: {', '.join(tiles['wrong'])}" if tiles["wrong"] else "checked here"
        return [f"matrix tiles: used for products of {' and '.join(tiles['used_for'])}; {checked}"]
    return [f"matrix tiles: not used, {tiles['refusal']}"] if tiles["refusal"] else []


def _peaks(found: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{p['threads']} thread(s): {p['operations_per_second'] / 1e9:.1f} GFLOP/s (float32), "
        f"{p['bytes_per_second'] / 1e9:.1f} GB/s read"
        for p in found["peaks"]
    ]
    if (slowdown := found["denormal_slowdown"]) is not None:
        lines.append(f"multiplications with denormal results take {slowdown:.1f} times as long (profile counts them)")
    return lines + [
        f"1 thread(s): {d['operations_per_second'] / 1e9:.1f} Gop/s ({d['elements']}, {d['name']} of {d['bits']} bits)"
        for d in found["dot_products"]
    ]


def _costs(host: Target, found: Mapping[str, Any]) -> list[str]:
    costs, core = found["costs"], host.costs.core
    lines = [f"of {costs['cpu']} in the table of CPUs; builds follow what is assumed there, not what is measured here"]
    if core is not None:
        lines.append(f"core, by its manual: begins {core.fma_ports} multiply-adds of vectors in a cycle, each takes "
                     f"{core.fma_latency}; loads {core.load_bytes} bytes in a cycle")  # fmt: skip
    cells = [(r["cost"], _number(r["assumed"]), _number(r["measured"]), r["unit"]) for r in costs["rows"]]
    return [*lines, *table(("cost", " assumed", " measured", "unit"), cells).splitlines()]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _cache(c: Mapping[str, Any]) -> list[str]:
    if c["directory"] is None:
        return ["off (TILEWRIGHT_CACHE)"]
    return [f"{c['directory']}: {c['files']} files, {bytes_text(c['bytes'])} of at most {bytes_text(c['limit_bytes'])}"]
