"""Run in a process of its own: what LLVM knows of a triple, and what a CPU has. LLVM prints its lists of names on the
standard error stream once per process, and ends the process over a CPU that does not fit the triple.

Prints two lines of JSON: the names of CPUs and of features; then, if the CPU and all attributes are among them and
LLVM has not ended the process, the features of the CPU with these attributes (none for architectures that are neither
this machine's nor in :mod:`tilewright.codegen.llvm.features`: names alone do not tell instructions from hints for
tuning).

LLVM inlines a function only where the caller's CPU has all that the function was compiled for. So a caller for the CPU
in question calls a function for each feature, and those that were inlined name its features. Functions are compiled for
a CPU that has little, without what that one has and others lack.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence

import llvmlite.binding as llvm

from tilewright.codegen.llvm.features import COMPUTING
from tilewright.codegen.llvm.jit import initialize

_HEADINGS = ("Available CPUs for this target:", "Available features for this target:", "Use +feature")


def main(arguments: Sequence[str]) -> None:
    """``arguments``: triple, CPU (empty: only names are asked for), attributes."""
    triple, cpu, attributes = arguments
    initialize()
    cpus, features = _names(triple)
    print(json.dumps([cpus, features]), flush=True)
    if cpu in cpus and all(a[1:] in features for a in attributes.split(",") if a):
        print(json.dumps(_features_of(triple, cpu, attributes, features)), flush=True)


def _names(triple: str) -> tuple[list[str], list[str]]:
    with tempfile.TemporaryFile() as f:
        kept = os.dup(2)
        os.dup2(f.fileno(), 2)
        try:
            llvm.Target.from_triple(triple).create_target_machine(cpu="help")
        finally:
            os.dup2(kept, 2)
        f.seek(0)
        text = f.read().decode(errors="replace")
    between = text.partition(_HEADINGS[0])[2].partition(_HEADINGS[2])[0]
    before, _, after = between.partition(_HEADINGS[1])
    return _column(before), _column(after)


def _column(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ") and " - " in line]


def _features_of(triple: str, cpu: str, attributes: str, known: Sequence[str]) -> list[str]:
    arch = llvm.get_triple_parts(triple).Arch
    if (
        arch in COMPUTING
    ):  # of RISC-V's names only those of hints, which have hyphens: LLVM ends over some of the others
        least = "generic-rv64" if arch == "riscv64" else "generic"
        names = [n for n in known if "-" in n and n[:12] != "experimental"] if arch == "riscv64" else known
        has = _inlined(triple, least, "", least, names)
        return sorted(_inlined(triple, cpu, attributes, least, COMPUTING[arch], [f"-{n}" for n in sorted(has)]))
    is_here = arch == llvm.get_triple_parts(llvm.get_process_triple()).Arch
    names = [n for n in known if n in llvm.get_host_cpu_features()] if is_here else list(known)
    names = [n for n in names if not n.endswith("-mode")]
    if not is_here and arch not in ("x86_64", "i386"):
        _inlined(triple, cpu, attributes, "generic", ())  # does LLVM take it?
        return []
    least = "x86-64" if arch == "x86_64" else "generic"
    always = set() if is_here else _inlined(triple, least, "", least, names)  # hints for tuning fit any caller
    return sorted(_inlined(triple, cpu, attributes, least, names) - always)


def _inlined(
    triple: str, cpu: str, attributes: str, least: str, names: Sequence[str], without: Sequence[str] = ()
) -> set[str]:
    lines = [f'target triple = "{triple}"']
    for n, name in enumerate(names):
        vectors = ["+zve32x"] if name.startswith("zvl") else []  # sizes of vectors that there are
        features = ",".join([*without, *vectors, f"+{name}"])
        lines += [f'define void @f{n}(ptr %p) "target-cpu"="{least}" "target-features"="{features}" {{',
                  f"  store i32 {n}, ptr %p", "  ret void", "}"]  # fmt: skip
    lines.append(f'define void @caller(ptr %p) "target-cpu"="{cpu}" "target-features"="{attributes}" {{')
    lines += [f"  call void @f{n}(ptr %p)" for n in range(len(names))]
    module = llvm.parse_assembly("\n".join([*lines, "  ret void", "}"]), llvm.create_context())
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=attributes)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    calls = [x for x in str(module.get_function("caller")).splitlines() if "call void @f" in x]
    left = {int(x.partition("@f")[2].partition("(")[0]) for x in calls}
    return {name for n, name in enumerate(names) if n not in left}


if __name__ == "__main__":
    main(sys.argv[1:])
