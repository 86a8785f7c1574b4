"""The CPU this process runs on, and CPUs named by the user, as :class:`tilewright.machine.target.Target`.

Names are LLVM's, and so is what a named CPU has (:mod:`tilewright.codegen.llvm.names`). What follows from the features,
and what the system says of the caches, is in :mod:`tilewright.machine`; threads are counted in
:mod:`tilewright.runtime.resources.threads`.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import llvmlite.binding as llvm

from tilewright.codegen.llvm.features import BASELINE, NOT_COMPUTING, architecture
from tilewright.codegen.llvm.jit import initialize
from tilewright.codegen.llvm.names import ask_llvm
from tilewright.codegen.permissions import why_no_matrix_tiles
from tilewright.core.errors import TargetError
from tilewright.core.options import require_whole, shown
from tilewright.core.suggestions import did_you_mean
from tilewright.machine.caches import read_caches
from tilewright.machine.target import Target
from tilewright.machine.vectors import is_x86, with_vectors
from tilewright.runtime.resources.threads import count_threads

_TILE_FEATURES = "amx-"
"""How the features of matrix tiles begin."""
_ARCHITECTURES = (
    "x86_64", "i686", "aarch64", "arm", "riscv64", "riscv32", "powerpc64le", "s390x", "loongarch64", "wasm32",
)  # fmt: skip
_SYSTEMS = (
    "linux", "darwin", "macos", "macosx", "windows", "wasi", "freebsd", "openbsd", "netbsd", "android",
    "unknown", "none",
)  # fmt: skip


@functools.cache
def detect_host() -> Target:
    """The machine this process runs on, as far as the system lets the process use it: it is asked for matrix tiles.
    Detected once: none of it changes while a process lives."""
    initialize()
    triple = llvm.get_process_triple()
    features = usable_features(llvm.get_host_cpu_features())
    l1, l2, l3 = read_caches()
    return with_vectors(Target(triple, llvm.get_host_cpu_name(), features, 128, 16, l1, l2, l3, count_threads().count))


def usable_features(found: Mapping[str, bool]) -> str:
    """LLVM's text of the features that a CPU has; without matrix tiles that the process may not use."""
    tiles = not tiles_refusal(found)
    usable = {name: on and (tiles or not name.startswith(_TILE_FEATURES)) for name, on in found.items()}
    return ",".join(("+" if on else "-") + name for name, on in sorted(usable.items()))


def tiles_refusal(found: Mapping[str, bool] | None = None) -> str:
    """Why this process may not use the matrix tiles that its CPU has; empty if it may, or the CPU has none. ``found``:
    the CPU's features, if not those that LLVM finds."""
    has = (llvm.get_host_cpu_features() if found is None else found).get("amx-tile", False)
    return why_no_matrix_tiles() if has else ""


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
    if not isinstance(text, str):
        raise TargetError(f"target: expected text like 'llvm -mcpu=znver4' or a Target, got {shown(text)}")
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
        triple = _require_triple(options["-mtriple"], text)
        threads = 1 if architecture(triple) == "wasm32" else out.threads
        out = replace(out, triple=triple, cpu="generic", features="", threads=threads)
    cpu, attributes = options.get("-mcpu"), options.get("-mattr", "")
    is_host = out.cpu == host.cpu and cpu in (None, "native", host.cpu)
    if is_host:
        names = {f[1:] for f in host.features.split(",")}
        for word in _attributes(attributes, text):
            if word[1:] not in names:
                _require_attribute(word, ask_llvm(out.triple).features, text)
        out = replace(out, features=_merge(out.features, attributes))
    else:
        cpu = out.cpu if cpu is None else cpu
        out = replace(out, cpu=cpu, features=_features_of(out.triple, cpu, attributes, text))
    if "-num-threads" in options:
        number = options["-num-threads"]
        if not number.isdigit() or int(number) < 1:
            raise TargetError(f"target {text!r}: -num-threads must be a number >= 1, got {number!r}")
        out = replace(out, threads=int(number))
    return with_vectors(out)


def with_threads(target: Target, threads: int | None) -> Target:
    """``target`` with the number of threads that a user asks for; None for its own. Raises InputError."""
    return target if threads is None else target.with_threads(require_whole("threads", threads))


def runs_here(target: Target) -> bool:
    """True if this machine can execute code for ``target``."""
    return not why_foreign(target)


@functools.lru_cache(maxsize=64)
def why_foreign(target: Target) -> str:
    """Why this machine cannot execute code for ``target``; empty if it can."""
    host = detect_host()
    ours, theirs = llvm.get_triple_parts(host.triple), llvm.get_triple_parts(target.triple)
    if theirs.Arch != ours.Arch or theirs.ObjectFormat != ours.ObjectFormat or theirs.OS not in (ours.OS, "unknown"):
        return f"built for {target.triple}, this machine is {host.triple}"
    words = {w for w in target.features.split(",") if w}
    needed = {w[1:] for w in words if w[0] == "+"}
    if target.cpu not in (host.cpu, "generic"):
        needed |= {f for f in ask_llvm(target.triple, target.cpu).has or () if f"-{f}" not in words}
    lacking = sorted(needed - host.enabled - NOT_COMPUTING)
    if not lacking:
        return ""
    return f"built for {target.cpu}, this CPU ({host.cpu}) lacks {', '.join(lacking)}"


def require_runs_here(target: Target, who: str) -> None:
    """Raises TargetError, in the name of ``who``, unless this machine can execute code for ``target``."""
    if reason := why_foreign(target):
        raise TargetError(f"{who}: {reason}")


def _require_triple(triple: str, text: str) -> str:
    """``triple`` with all its parts, if LLVM has its architecture and knows its system."""
    arch, *others = triple.split("-")
    if others and others[0] in _SYSTEMS[:-2]:
        others = ["apple" if others[0] in ("darwin", "macos", "macosx") else "unknown", *others]
        triple = "-".join([arch, *others])
    try:
        initialize()
        llvm.Target.from_triple(triple)
    except RuntimeError as e:
        near = did_you_mean(arch, _ARCHITECTURES)
        raise TargetError(f"target {text!r}: LLVM has no architecture {arch!r} in -mtriple{near}") from e
    if len(others) > 1 and llvm.get_triple_parts(triple).OS == "unknown" and others[1] not in ("unknown", "none"):
        odd = next((o for o in others if o not in _SYSTEMS and did_you_mean(o, _SYSTEMS)), others[1])
        raise TargetError(f"target {text!r}: unknown system {odd!r} in -mtriple{did_you_mean(odd, _SYSTEMS)}")
    return triple


def _features_of(triple: str, cpu: str, attributes: str, text: str) -> str:
    """What a named CPU has, and what ``attributes`` took from it."""
    words = _attributes(attributes, text)
    least = BASELINE.get(architecture(triple), "") if cpu == "generic" else ""
    attributes = _merge(least, attributes)
    plain = ask_llvm(triple, cpu, least)
    if cpu not in plain.cpus:
        arch = triple.split("-")[0]
        raise TargetError(f"target {text!r}: LLVM knows no CPU {cpu!r} for {arch}{did_you_mean(cpu, plain.cpus)}")
    for word in words:
        _require_attribute(word, plain.features, text)
    given = ask_llvm(triple, cpu, attributes) if words else plain
    if given.has is None or plain.has is None:
        raise TargetError(f"target {text!r}: LLVM cannot compile for this CPU: {given.complaint or plain.complaint}")
    if not is_x86(triple) and not given.has:
        return attributes
    passed_over = NOT_COMPUTING if is_x86(triple) else frozenset()
    on = [f"+{f}" for f in sorted(given.has - passed_over)]
    return ",".join([*on, *(f"-{f}" for f in sorted(plain.has - given.has - passed_over))])


def _attributes(attributes: str, text: str) -> list[str]:
    words = attributes.split(",") if attributes else []
    for word in words:
        if len(word) < 2 or word[0] not in "+-":
            raise TargetError(f"target {text!r}: -mattr expects +feature or -feature, got {word!r}")
    return words


def _require_attribute(word: str, known: Sequence[str], text: str) -> None:
    if word[1:] not in known:
        raise TargetError(f"target {text!r}: LLVM knows no feature {word[1:]!r}{did_you_mean(word[1:], known)}")


def _merge(features: str, attributes: str) -> str:
    """``features`` with each of ``attributes`` in the place of an earlier word on the same feature."""
    words = [w for w in features.split(",") if w]
    for word in filter(None, attributes.split(",")):
        words = [w for w in words if w[1:] != word[1:]]
        words.append(word)
    return ",".join(words)


__all__ = ["count_threads", "detect_host", "parse_target", "require_runs_here", "runs_here", "why_foreign"]
