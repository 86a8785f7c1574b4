"""What generated code calls of the system: a clock, semaphores, and to give a processor away.

On 64-bit Linux these are functions of the C library. Elsewhere they are others, or have other arguments: there the code
calls functions of the same form with ``tw_`` before their names. Artifacts bring them along
(``deploy/native/system.c``); models that run in Python get the ones here, which Python's own clock and semaphores do.
They take a microsecond instead of some nanoseconds.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.machine.target import Target

_NAMES = ("clock_gettime", "sem_init", "sem_post", "sem_wait", "sched_yield")
_FUNCTIONS = re.compile(rf"@({'|'.join(_NAMES)})\b")


def has_functions(target: Target) -> bool:
    """True if the C library of the target's system has them in the form that generated code calls."""
    return "linux" in target.triple and target.pointer_bytes == 8


def with_system(text: str, target: Target) -> str:
    """The text of a module for the system of ``target``."""
    return text if has_functions(target) else _FUNCTIONS.sub(r"@tw_\1", text)


def system_imports(names: Iterable[str], target: Target) -> dict[str, int]:
    """The addresses, in this process, of what code for ``target`` calls, by symbol."""
    if not has_functions(target):
        return {f"tw_{n}": ctypes.cast(_SUBSTITUTES[n], ctypes.c_void_p).value or 0 for n in names}
    process = ctypes.CDLL(None)
    return {n: ctypes.cast(getattr(process, n), ctypes.c_void_p).value or 0 for n in names}


# -- Python's own ----------------------------------------------------------------------------------------------------
_semaphores: dict[int, threading.Semaphore] = {}
"""By the address that generated code knows them by: of the pools of threads, which live as long as the process."""


def _clock_gettime(clock: int, at: int) -> int:
    seconds, nanoseconds = divmod(time.monotonic_ns(), 1_000_000_000)
    (ctypes.c_int64 * 2).from_address(at)[:] = [seconds, nanoseconds]
    return 0


def _sem_init(at: int, shared: int, value: int) -> int:
    _semaphores[at] = threading.Semaphore(value)
    return 0


def _sem_post(at: int) -> int:
    _semaphores[at].release()
    return 0


def _sem_wait(at: int) -> int:
    _semaphores[at].acquire()
    return 0


def _sched_yield() -> int:
    time.sleep(0)
    return 0


def _callback(function: Callable[..., int], *arguments: type) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(function)


_SUBSTITUTES = {
    "clock_gettime": _callback(_clock_gettime, ctypes.c_int32, ctypes.c_void_p),
    "sem_init": _callback(_sem_init, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
    "sem_post": _callback(_sem_post, ctypes.c_void_p),
    "sem_wait": _callback(_sem_wait, ctypes.c_void_p),
    "sched_yield": _callback(_sched_yield),
}
