"""Threads that run what other threads wait for, one job after the other, and are asleep in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, Thread


class _Worker:
    """A thread with one job at a time. It holds nothing of a job that is done."""

    __slots__ = ("_idle", "_job", "_lock")

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self._job: Callable[[], None] | None = None
        self._lock = Lock()
        self._lock.acquire()
        Thread(target=self._live, daemon=True, name="tilewright-lane").start()

    def start(self, job: Callable[[], None]) -> None:
        self._job = job
        self._lock.release()

    def _live(self) -> None:
        while True:
            self._lock.acquire()
            job, self._job = self._job, None
            if job is not None:
                job()
                del job
            self._idle.append(self)


class Workers:
    """As many threads as there ever were jobs at once. A forked child starts with none: its parent's threads do not
    exist there."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._idle = []

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job``, which raises nothing, on a thread that is idle; a new one if there is none."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self._idle)
        worker.start(job)


WORKERS = Workers()
