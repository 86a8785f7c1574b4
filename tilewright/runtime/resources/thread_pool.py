"""Threads that help an inference: one pool per process and size, started when first needed, asleep when idle."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tilewright.core.config import from_environment
from tilewright.machine.memory import LINE_BYTES
from tilewright.runtime.resources.arrays import address, aligned_empty
from tilewright.runtime.resources.threads import count_threads

HEAD_BYTES = 512
CHUNKS_PER_THREAD = 4


SPIN_SECONDS = 0.005


def spin_seconds() -> float:
    """How long an idle worker waits for the next loop before it sleeps: to be woken costs tens of microseconds.

    Not at all under a CPU quota, where the waiting would be charged; otherwise 5 ms, or ``TILEWRIGHT_SPIN_MS``.
    """
    given = from_environment().spin_milliseconds
    if given is not None:
        return given / 1e3
    return 0.0 if count_threads().quota is not None else SPIN_SECONDS


class ThreadPoolCode(Protocol):
    """Addresses of the native functions of a pool (made by the code generator)."""

    @property
    def worker(self) -> int: ...
    @property
    def initialize(self) -> int: ...
    @property
    def stop(self) -> int: ...


Affinity: TypeAlias = "tuple[frozenset[int], ...]"
"""For each worker, the CPUs on which it stays; the first again for more workers than entries, none: where the system
likes."""


class ThreadPool:
    """``threads - 1`` workers. ``address`` is what native code takes as its pool."""

    def __init__(self, code: ThreadPoolCode, threads: int, affinity: Affinity = ()) -> None:
        self.threads = threads
        self.lock = threading.Lock()
        self._code = code
        self._memory = aligned_empty(HEAD_BYTES + LINE_BYTES * threads)
        self._memory[:] = 0
        self.address = address(self._memory)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.initialize)(
            self.address, threads, CHUNKS_PER_THREAD * threads, int(1e9 * spin_seconds())
        )
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.worker)

        def live(k: int) -> None:
            if affinity:
                os.sched_setaffinity(0, affinity[(k - 1) % len(affinity)])
            worker(self.address, k)

        self._workers = [
            threading.Thread(target=live, args=(k,), daemon=True, name=f"tilewright-{k}") for k in range(1, threads)
        ]
        for w in self._workers:
            w.start()

    def close(self) -> None:
        """Let the workers end. The pool must not be used afterwards."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._code.stop)(self.address, len(self._workers))
        for w in self._workers:
            w.join()


_Key: TypeAlias = "tuple[int, int, Affinity]"


class ThreadPools:
    """The pools of this process, by size, number and affinity. A forked child starts with none: its parent's workers do
    not exist there."""

    def __init__(self) -> None:
        self.known: dict[_Key, ThreadPool] = {}
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self.known = {}
        self._lock = threading.Lock()

    def get(self, code: ThreadPoolCode, threads: int, number: int = 0, affinity: Affinity = ()) -> ThreadPool:
        """The pool of that size; of several the one of that number, with the CPUs behind those of the ones before."""
        key = threads, number, affinity
        with self._lock:
            pool = self.known.get(key)
            if pool is None:
                start = number * threads % max(1, len(affinity))
                pool = self.known[key] = ThreadPool(code, threads, affinity[start:] + affinity[:start])
            return pool


THREAD_POOLS = ThreadPools()
_ALONE = nullcontext()


@dataclass(slots=True)
class PoolHandle:
    """How many threads a call runs on, and the native code they need (None: one thread). ``threads`` may be set before
    each call. ``total``: of calls at once together, which decides how many pools of ``threads`` there may be."""

    threads: int
    code: ThreadPoolCode | None = None
    total: int = 0
    affinity: Affinity = ()

    def borrowed(self, parallel: bool) -> AbstractContextManager[int | None]:
        """The address of a pool for one native call, if there is shared work in it; None (work alone) for one thread or
        if all pools of this size are busy."""
        return _Borrowed(self, self.code) if parallel and self.threads > 1 and self.code is not None else _ALONE


class _Borrowed:
    """A pool for the duration of a native call; a class, since a generator takes longer than some kernels."""

    __slots__ = ("_code", "_handle", "_held")

    def __init__(self, handle: PoolHandle, code: ThreadPoolCode) -> None:
        self._handle, self._code = handle, code
        self._held: ThreadPool | None = None

    def __enter__(self) -> int | None:
        h = self._handle
        pool = THREAD_POOLS.known.get((h.threads, 0, h.affinity)) or self._pool(0)
        if pool.lock.acquire(False):
            self._held = pool
            return pool.address
        return self._another()

    def _another(self) -> int | None:
        """The first of the other pools that is idle."""
        for number in range(1, self._handle.total // self._handle.threads):
            pool = self._pool(number)
            if pool.lock.acquire(False):
                self._held = pool
                return pool.address
        return None

    def _pool(self, number: int) -> ThreadPool:
        return THREAD_POOLS.get(self._code, self._handle.threads, number, self._handle.affinity)

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.lock.release()
