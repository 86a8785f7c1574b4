"""The OpenMP runtime that gives compiled code its threads: found and loaded at run time, never linked.

libgomp is looked for among the libraries of the system, then inside the installed xgboost wheel, which ships a copy
(only its files are read; xgboost is not imported). Without it, models run on one thread, and ``reason`` says why.
A forked child must not use the threads of its parent's runtime (libgomp would wait for them for ever), so
:func:`threads_usable` is False there.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NAMES = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")


@dataclass(frozen=True, slots=True, eq=False)
class OpenMP:
    """``addresses`` of the four functions that entry code calls, empty if there is no runtime; ``path`` and
    ``reason`` for people. ``library`` keeps it loaded."""

    addresses: dict[str, int]
    path: str | None
    reason: str
    library: ctypes.CDLL | None = None

    @property
    def available(self) -> bool:
        return bool(self.addresses)


class _ForkState:
    """Whether this process was forked after the runtime was loaded."""

    forked = False


@functools.cache
def load_openmp() -> OpenMP:
    """The OpenMP runtime of this process."""
    tried: list[str] = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
            addresses = {n: _address(library, n) for n in _NAMES}
        except (OSError, AttributeError) as e:
            tried.append(f"{candidate}: {e}")
            continue
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_mark_forked)
        return OpenMP(addresses, candidate, f"libgomp from {candidate}", library)
    detail = "; ".join(tried) if tried else "not among the system's libraries, and no xgboost wheel is installed"
    return OpenMP({}, None, f"one thread: no libgomp ({detail})")


def threads_usable() -> bool:
    """True if compiled code may open a parallel region in this process."""
    return not _ForkState.forked and load_openmp().available


def _mark_forked() -> None:
    _ForkState.forked = True


def _address(library: ctypes.CDLL, name: str) -> int:
    value = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    if value is None:
        raise AttributeError(f"{name} has no address")
    return value


def _candidates() -> Iterator[str]:
    found = ctypes.util.find_library("gomp")
    if found:
        yield found
    for directory in sys.path:
        bundled = Path(directory or ".") / "xgboost.libs"
        if bundled.is_dir():
            yield from sorted(str(p) for p in bundled.glob("libgomp*.so*"))
