"""Runs many small cases, each in a process forked off this one: a crash, a hang or a full memory costs one case.

What the cases share is imported, and warmed up, before; a case costs about what forking does. Use it from a process
that has no threads of its own.
"""

from __future__ import annotations

import math
import os
import re
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HANG = "took too long"
WAITING = 10.0

Note = Callable[[str], None]
Work = Callable[[int, Note], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How one case ended. ``notes``: what it said of itself, in order; ``failure``: empty, or what killed it.
    ``seconds``: of the processor."""

    case: int
    notes: tuple[str, ...]
    failure: str
    seconds: float
    peak_bytes: int


@dataclass(slots=True)
class _Running:
    case: int
    pid: int
    pipe: int
    since: float
    text: bytearray


def run_forked(
    cases: Iterable[int], work: Work, jobs: int = 1, seconds: float = 20.0, extra_bytes: int = 2 << 30
) -> Iterator[Ended]:
    """Call ``work(case, note)`` for every case in a child of its own, ``jobs`` at a time; in the order they end.

    ``seconds``: of the processor that a child may have; one that takes WAITING times as long without using them is
    ended, too. ``extra_bytes``: how much memory a child may have beyond what this process has. An exception that leaves
    ``work`` is a failure, as are a signal and reaching one of these limits.
    """
    todo = iter(cases)
    limit = data_bytes() + extra_bytes
    with selectors.DefaultSelector() as selector:
        running: dict[int, _Running] = {}
        while True:
            while len(running) < jobs and (case := next(todo, None)) is not None:
                child = _start(case, work, limit, math.ceil(seconds))
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            if not running:
                return
            first = min(r.since for r in running.values())
            ready = selector.select(max(0.0, first + WAITING * seconds - time.monotonic()) + 0.01)
            for key, _ in ready:
                child = running[key.fd]
                piece = os.read(child.pipe, 1 << 16)
                child.text.extend(piece)
                if not piece:
                    selector.unregister(child.pipe)
                    yield _end(running.pop(key.fd), "")
            for child in [r for r in running.values() if time.monotonic() - r.since > WAITING * seconds]:
                os.kill(child.pid, signal.SIGKILL)
                selector.unregister(child.pipe)
                yield _end(running.pop(child.pipe), HANG)


def data_bytes() -> int:
    """Private memory of this process, as RLIMIT_DATA counts it."""
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) << 10 if found else 1 << 30


def _start(case: int, work: Work, limit: int, seconds: int) -> _Running:
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return _Running(case, pid, ours, time.monotonic(), bytearray())
    os.close(ours)
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        work(case, lambda text: _say(theirs, text))
        status = 0
    except BaseException:  # noqa: BLE001 - reported to the parent; nothing of it may run on in the child
        _say(theirs, "raised " + traceback.format_exc())
    finally:
        os._exit(status)


def _say(pipe: int, text: str) -> None:
    os.write(pipe, text.encode("utf-8", "backslashreplace")[:8000] + b"\x1e")


def _end(child: _Running, failure: str) -> Ended:
    os.close(child.pipe)
    _, status, usage = os.wait4(child.pid, 0)
    notes = tuple(t.decode("utf-8", "replace") for t in bytes(child.text).split(b"\x1e") if t)
    if not failure and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        failure = HANG if name == "SIGXCPU" else f"killed by {name}"
    elif not failure and status:
        failure = notes[-1] if notes else f"ended with status {status}"
    return Ended(child.case, notes, failure, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)
