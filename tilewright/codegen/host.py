"""The CPU this process runs on, and CPUs named by the user, as :class:`tilewright.core.target.Target`.

Vector width and register count follow from LLVM's feature names; caches from sysfs, with the sizes of a small server
core where it says nothing; threads from :mod:`tilewright.runtime.threads`.
"""

from __future__ import annotations

import functools
import shlex
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.codegen.jit import initialize, target_machine
from tilewright.core.errors import TargetError
from tilewright.core.target import Target
from tilewright.runtime.threads import count_threads

_FALLBACK_CACHES = (32 * 1024, 512 * 1024, 0)
# CPU names whose vector extensions matter when compiling for another machine; by LLVM name prefix
_X86_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+avx2,+avx,+fma,+f16c",
     ("x86-64-v4", "znver4", "znver5", "skylake-avx512", "cascadelake", "cooperlake", "icelake", "tigerlake",
      "rocketlake", "sapphirerapids", "graniterapids", "emeraldrapids", "diamondrapids", "cannonlake")),
    ("+avx2,+avx,+fma,+f16c",
     ("x86-64-v3", "znver1", "znver2", "znver3", "haswell", "broadwell", "skylake", "alderlake", "raptorlake",
      "meteorlake", "arrowlake", "lunarlake", "pantherlake", "gracemont", "sierraforest", "grandridge",
      "clearwaterforest", "core-avx2", "bdver4")),
    ("+avx,+f16c", ("ivybridge", "core-avx-i")),
    ("+avx", ("sandybridge", "corei7-avx", "btver2", "bdver")),
    ("", ("x86-64", "x86-64-v2", "nehalem", "westmere", "core2", "penryn", "corei7", "atom", "silvermont", "k8",
          "barcelona", "btver1", "goldmont", "tremont")),
)  # fmt: skip


@functools.cache
def detect_host() -> Target:
    """The machine this process runs on. Detected once: none of it changes while a process lives."""
    initialize()
    triple = llvm.get_process_triple()
    features = ",".join(("+" if on else "-") + name for name, on in sorted(llvm.get_host_cpu_features().items()))
    l1, l2, l3 = read_caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    return _with_vectors(Target(triple, llvm.get_host_cpu_name(), features, 128, 16, l1, l2, l3, count_threads().count))


def parse_target(text: str | Target | None) -> Target:
    """``"llvm -mcpu=znver4 -mattr=+avx2,-avx512f -mtriple=... -num-threads=4"``; None is this machine, and a
    target is itself.

    Raises TargetError for an unknown option, CPU or value.
    """
    if isinstance(text, Target):
        return text
    host = detect_host()
    if text is None:
        return host
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise TargetError(f"target {text!r}: {e}") from e
    if not words or words[0] != "llvm":
        raise TargetError(f"target {text!r}: expected 'llvm' first, got {words[0] if words else 'nothing'!r}")
    options: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in ("-mcpu", "-mattr", "-mtriple", "-num-threads") or not equals or not value:
            raise TargetError(
                f"target {text!r}: expected -mcpu=, -mattr=, -mtriple= or -num-threads= with a value, got {word!r}"
            )
        options[key] = value
    out = host
    if "-mtriple" in options:
        out = replace(out, triple=options["-mtriple"], cpu="generic", features="")
    cpu = options.get("-mcpu")
    if cpu is not None and cpu not in ("native", host.cpu):
        out = replace(out, cpu=cpu, features=_features_of(out.triple, cpu, text))
    if "-mattr" in options:
        out = replace(out, features=_merge(out.features, options["-mattr"], text))
    if "-num-threads" in options:
        number = options["-num-threads"]
        if not number.isdigit() or int(number) < 1:
            raise TargetError(f"target {text!r}: -num-threads must be a number >= 1, got {number!r}")
        out = replace(out, threads=int(number))
    if out.triple != host.triple or out.cpu != host.cpu:
        target_machine(out)
    return _with_vectors(out)


def runs_here(target: Target) -> bool:
    """True if this machine can execute code for ``target``."""
    host = detect_host()
    if target.triple.split("-")[0] != host.triple.split("-")[0]:
        return False
    have = set(host.features.split(","))
    return all(f in have for f in target.features.split(",") if f.startswith("+"))


def _features_of(triple: str, cpu: str, text: str) -> str:
    """The features of a named CPU that code generation asks about."""
    if not _is_x86(triple):
        return "+neon" if triple.split("-")[0] in ("aarch64", "arm64") else ""
    for features, names in _X86_LEVELS:
        if any(cpu == n or (cpu.startswith(n) and n not in ("skylake", "x86-64", "core2")) for n in names):
            return features
    raise TargetError(f"target {text!r}: unknown x86 CPU {cpu!r}; add -mattr= to a known one, e.g. -mcpu=x86-64-v3")


def _merge(features: str, extra: str, text: str) -> str:
    words = [w for w in features.split(",") if w]
    for word in extra.split(","):
        if len(word) < 2 or word[0] not in "+-":
            raise TargetError(f"target {text!r}: -mattr expects +feature or -feature, got {word!r}")
        words = [w for w in words if w[1:] != word[1:]]
        words.append(word)
    return ",".join(words)


def _is_x86(triple: str) -> bool:
    return triple.split("-")[0] in ("x86_64", "amd64", "i686", "i386")


def _with_vectors(target: Target) -> Target:
    """``target`` with the vector facts that its features imply."""
    on = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    if not _is_x86(target.triple):
        arm = target.triple.split("-")[0] in ("aarch64", "arm64")
        return replace(target, vector_bits=128, vector_registers=32, has_fma=arm)
    if "avx512f" in on:
        return replace(target, vector_bits=512, vector_registers=32, has_fma=True)
    bits = 256 if "avx" in on else 128
    return replace(target, vector_bits=bits, vector_registers=16, has_fma="fma" in on)


def read_caches(directory: Path) -> tuple[int, int, int]:
    """``(l1 data, l2, l3)`` in bytes from a sysfs cache directory."""
    found: dict[int, int] = {}
    for index in sorted(directory.glob("index*")) if directory.is_dir() else ():
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(size[-1:], 1)
        digits = size.rstrip("KMG")
        if kind != "Instruction" and digits.isdigit():
            found[level] = int(digits) * unit
    l1, l2, l3 = (found.get(i + 1, default) for i, default in enumerate(_FALLBACK_CACHES))
    return l1, l2, l3


__all__ = ["count_threads", "detect_host", "parse_target", "read_caches", "runs_here"]
