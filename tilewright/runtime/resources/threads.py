"""How many threads to use, and why: the least of affinity mask, cgroup quota and physical cores.

Pure standard library; reads ``/proc`` and ``/sys`` on Linux and falls back to ``os.cpu_count`` elsewhere. More
threads than any of the three would only take processors from each other.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from tilewright.runtime.resources.cgroups import control_directories, read


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """``count`` threads; ``reasons`` says what each limit was (None: no limit found)."""

    count: int
    affinity: int
    quota: float | None
    physical: int | None

    @property
    def reasons(self) -> str:
        """One line for people."""
        quota = "none" if self.quota is None else f"{self.quota:g}"
        physical = "unknown" if self.physical is None else str(self.physical)
        return f"{self.count} threads: affinity mask {self.affinity}, cgroup quota {quota}, physical cores {physical}"


def count_threads(root: Path = Path("/")) -> ThreadCount:
    """The default number of threads. ``root`` is where ``proc`` and ``sys`` are found (tests give their own)."""
    mask = _affinity()
    affinity = len(mask) if mask is not None else (os.cpu_count() or 1)
    quota = _cgroup_quota(root)
    physical = _physical_cores(root, mask)
    count = affinity
    if quota is not None:
        count = min(count, max(1, math.ceil(quota - 1e-9) if quota < 1 else math.floor(quota + 1e-9)))
    if physical is not None:
        count = min(count, physical)
    return ThreadCount(max(1, count), affinity, quota, physical)


def _affinity() -> frozenset[int] | None:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _cgroup_quota(root: Path) -> float | None:
    """CPUs that the tightest cgroup on the way to the root allows (version 2 or 1)."""
    limits: list[float] = []
    for version, directory in control_directories(root, "cpu"):
        if version == 2:
            limits += _quota_v2(read(directory / "cpu.max"))
        else:
            limits += _quota_v1(read(directory / "cpu.cfs_quota_us"), read(directory / "cpu.cfs_period_us"))
    return min(limits) if limits else None


def _quota_v2(text: str | None) -> list[float]:
    fields = (text or "").split()
    if len(fields) != 2 or fields[0] == "max":
        return []
    try:
        return [int(fields[0]) / int(fields[1])]
    except (ValueError, ZeroDivisionError):
        return []


def _quota_v1(quota: str | None, period: str | None) -> list[float]:
    try:
        q, p = int(quota or "-1"), int(period or "0")
    except ValueError:
        return []
    return [q / p] if q > 0 and p > 0 else []


def _physical_cores(root: Path, mask: frozenset[int] | None) -> int | None:
    """Distinct cores among the CPUs of the mask, from the topology files."""
    cores: set[tuple[str, str]] = set()
    base = root / "sys/devices/system/cpu"
    numbers = mask if mask is not None else frozenset(range(os.cpu_count() or 1))
    for n in numbers:
        core = read(base / f"cpu{n}/topology/core_id")
        package = read(base / f"cpu{n}/topology/physical_package_id")
        if core is None:
            return None
        cores.add(((package or "0").strip(), core.strip()))
    return len(cores) or None
