"""What LLVM calls CPUs and their features, and which features a CPU has: asked once per process, of a child."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass

from tilewright.core.errors import TargetError

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tilewright.codegen.llvm.child import main
main(sys.argv[2:])
"""
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """Names of CPUs and features of an architecture. ``has``: the features of the CPU that was asked about, None if
    there is none of the name or LLVM ended over it; ``complaint`` is its last word."""

    cpus: tuple[str, ...]
    features: tuple[str, ...]
    has: frozenset[str] | None
    complaint: str


@functools.cache
def ask_llvm(triple: str, cpu: str = "", attributes: str = "") -> Known:
    """What LLVM knows of ``triple`` and of ``cpu`` with ``attributes``. Raises TargetError if the child gives nothing.

    LLVM prints lists to the terminal and ends the process over some CPUs: hence the child.
    """
    command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), triple, cpu, attributes]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise TargetError(f"target {triple}: cannot ask LLVM for its CPU names: {e}") from e
    said = child.stderr.strip().splitlines()
    complaint = next((x for x in said if "LLVM ERROR" in x), said[-1] if said else f"status {child.returncode}")
    lines = child.stdout.splitlines()
    if not lines:
        raise TargetError(f"target {triple}: cannot ask LLVM for its CPU names: {complaint}")
    cpus, features = json.loads(lines[0])
    has = frozenset(json.loads(lines[1])) if len(lines) > 1 else None
    return Known(tuple(cpus), tuple(features), has, complaint)
