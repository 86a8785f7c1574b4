"""Threads that run what others wait for."""

from __future__ import annotations

import os
import threading

import pytest

from tilewright.runtime.resources.workers import Workers


def _run(workers: Workers) -> threading.Thread:
    """The thread that a job ran on."""
    ran, done = list[threading.Thread](), threading.Event()

    def job() -> None:
        ran.append(threading.current_thread())
        done.set()

    workers.start(job)
    assert done.wait(60)
    return ran[0]


def _until_idle(workers: Workers, count: int) -> None:
    pause = threading.Event()
    for _ in range(60_000):
        if len(workers._idle) == count:
            return
        pause.wait(0.001)
    raise AssertionError(f"{len(workers._idle)} are idle instead of {count}")


def test_a_thread_is_used_again() -> None:
    workers = Workers()
    first = _run(workers)
    _until_idle(workers, 1)
    assert _run(workers) is first
    assert first.daemon


def test_jobs_at_once_have_a_thread_each() -> None:
    workers, meet = Workers(), threading.Barrier(3, timeout=60)
    for _ in range(2):
        workers.start(meet.wait)  # type: ignore[arg-type]
    meet.wait()
    _until_idle(workers, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_makes_threads_of_its_own() -> None:
    workers = Workers()
    _run(workers)
    _until_idle(workers, 1)
    child = os.fork()
    if child == 0:
        _run(workers)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
