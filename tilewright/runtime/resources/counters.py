"""Hardware counters of the calling thread, by Linux's ``perf_event_open``: cycles, instructions, misses.

They count what user code does between :meth:`Events.start` and :meth:`Events.stop`. A CPU has few counters: where more
events are asked for, the kernel lets them take turns and tells for how long each was counted, so that values are
scaled. What starting and stopping costs is measured and taken off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tilewright.core.errors import MeasurementError

_SYSCALLS: Mapping[str, int] = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
"""Of perf_event_open, by the name of the machine."""
HARDWARE: Mapping[str, tuple[int, int]] = {
    "cycles": (0, 0), "instructions": (0, 1), "l1_misses": (3, 1 << 16), "llc_misses": (0, 3), "branch_misses": (0, 5),
}  # fmt: skip
"""Events: the kernel's type and number of each. L1: loads that missed the first-level data cache; LLC: the kernel's
``cache-misses``, which are those of the last-level cache on most CPUs."""
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_TIMES_ENABLED_AND_RUNNING = 0b11
_DISABLED_NO_KERNEL_NO_HYPERVISOR = 1 | 1 << 5 | 1 << 6
_START, _STOP = 32, 31
"""Operations of prctl on all events of the process."""
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_CALIBRATIONS = 20


class Events(Protocol):
    """The counters of a system."""

    def open(self, kind: int, number: int) -> int:
        """A stopped counter for an event. Raises OSError."""
        ...

    def read(self, counter: int) -> tuple[int, int, int]:
        """Its value, and the nanoseconds for which it was enabled and for which it counted."""
        ...

    def start(self) -> None:
        """All counters."""
        ...

    def stop(self) -> None: ...

    def close(self, counter: int) -> None: ...


class LinuxEvents:
    """The kernel's. Raises OSError (ENOSYS) on other systems."""

    def __init__(self) -> None:
        machine = platform.machine()
        if not sys.platform.startswith("linux") or machine not in _SYSCALLS:
            raise OSError(errno.ENOSYS, f"{platform.system()} on {machine} has no perf_event_open")
        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall, self._prctl, self._number = libc.syscall, libc.prctl, _SYSCALLS[machine]

    def open(self, kind: int, number: int) -> int:
        """As the protocol says: of this thread, wherever it runs."""
        flags = _DISABLED_NO_KERNEL_NO_HYPERVISOR
        attributes = _ATTRIBUTES.pack(
            kind, _ATTRIBUTES.size, number, 0, 0, _TIMES_ENABLED_AND_RUNNING, flags, 0, 0, 0
        )  # fmt: skip
        this_thread, any_cpu, no_group, no_flags = map(ctypes.c_long, (0, -1, -1, 0))
        number_of_call = ctypes.c_long(self._number)
        found: int = self._syscall(number_of_call, attributes, this_thread, any_cpu, no_group, no_flags)
        if found < 0:
            raise OSError(code := ctypes.get_errno(), os.strerror(code))
        return found

    def read(self, counter: int) -> tuple[int, int, int]:
        """As the protocol says."""
        value, enabled, running = struct.unpack("=QQQ", os.read(counter, 24))
        return value, enabled, running

    def start(self) -> None:
        """As the protocol says."""
        self._prctl(_START, 0, 0, 0, 0)

    def stop(self) -> None:
        """As the protocol says."""
        self._prctl(_STOP, 0, 0, 0, 0)

    def close(self, counter: int) -> None:
        """As the protocol says."""
        os.close(counter)


class Counters:
    """Counts events in calls, on the thread that makes it. Close it, or use it in a ``with`` statement.

    ``refused``: why an event is not counted, by its name. Raises MeasurementError where none is, and says why.
    """

    def __init__(
        self, make: Callable[[], Events] = LinuxEvents, events: Mapping[str, tuple[int, int]] = HARDWARE
    ) -> None:
        try:
            self._events = make()
        except OSError as e:
            raise MeasurementError(f"counters: {_why(e)}") from e
        self.refused: dict[str, str] = {}
        self._open: dict[str, int] = {}
        for name, (kind, number) in events.items():
            try:
                self._open[name] = self._events.open(kind, number)
            except OSError as e:
                self.refused[name] = _why(e)
        if not self._open:
            raise MeasurementError(f"counters: {'; '.join(dict.fromkeys(self.refused.values()))}")
        self._before = {name: self._events.read(c) for name, c in self._open.items()}
        self._calls, self._overhead = 0, dict.fromkeys(self._open, 0.0)
        self._overhead = self._calibrated()

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the counters back."""
        for counter in self._open.values():
            self._events.close(counter)
        self._open = {}

    def around(self, call: Callable[..., int]) -> Callable[..., int]:
        """``call``, counted."""

        def counted(*arguments: object) -> int:
            self._calls += 1
            self._events.start()
            try:
                return call(*arguments)
            finally:
                self._events.stop()

        return counted

    def take(self) -> dict[str, float]:
        """What was counted in all calls since the last time; of an event that never had its turn, nothing."""
        out: dict[str, float] = {}
        for name, counter in self._open.items():
            now, before = self._events.read(counter), self._before[name]
            value, enabled, running = (float(n - b) for n, b in zip(now, before, strict=True))
            self._before[name] = now
            if running > 0:
                out[name] = max(0.0, value * enabled / running - self._calls * self._overhead[name])
        self._calls = 0
        return out

    def _calibrated(self) -> dict[str, float]:
        """What a call counts that does nothing: the least of several."""
        nothing = self.around(lambda: 0)
        found: dict[str, list[float]] = {name: [] for name in self._open}
        for _ in range(_CALIBRATIONS):
            nothing()
            for name, value in self.take().items():
                found[name].append(value)
        return {name: min(values, default=0.0) for name, values in found.items()}


def _why(e: OSError) -> str:
    """What an error of the system means here, and what to do."""
    if e.errno in (errno.EPERM, errno.EACCES):
        try:
            level = f" ({_PARANOID} is {_PARANOID.read_text().strip()})"
        except OSError:
            level = ""
        return (
            f"the system does not let this process count{level}: sysctl kernel.perf_event_paranoid=2, or the "
            "capability CAP_PERFMON; in a container also a seccomp profile that allows perf_event_open"
        )
    if e.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return f"this CPU has no such counter ({e.strerror}); virtual machines mostly hide theirs"
    if e.errno == errno.ENOSYS:
        return f"this system has none: {e.strerror}"
    return f"the system gives none: {e.strerror}"
