"""How much memory a run may take: that of the machine with its swap, or of the tightest cgroup around the process.

Systems that promise more memory than they have end a process that uses it, without a word. So what cannot fit is
refused. Pure standard library; reads ``/proc`` and ``/sys`` on Linux, and knows no limit where nothing tells.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tilewright.core.errors import ResourceError
from tilewright.runtime.resources.cgroups import control_files

UNLIMITED = 1 << 62


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process can have at most. ``root`` is where ``proc`` and ``sys`` are found (tests give one)."""
    limits = [UNLIMITED]
    try:
        text = (root / "proc/meminfo").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = ""
    found = {name: int(kib) << 10 for name, kib in re.findall(r"^(MemTotal|SwapTotal): +(\d+) kB$", text, re.MULTILINE)}
    if "MemTotal" in found:
        limits.append(sum(found.values()))
    for text in control_files(root, "memory", "memory.max", "memory.limit_in_bytes"):
        if text.strip().isdigit():
            limits.append(int(text))
    return min(limits)


@cache
def _own_limit() -> int:
    return memory_limit()


def require_memory(who: str, what: str, nbytes: int) -> None:
    """Raises ResourceError where this process can never have so many bytes."""
    if nbytes > _own_limit():
        raise ResourceError(f"{who}: {what} need {nbytes} bytes, expected at most the memory of {_own_limit()} bytes")
