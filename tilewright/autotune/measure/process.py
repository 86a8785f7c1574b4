"""A worker process as its parent sees it: ask, wait no longer than allowed, kill, read why it died.

Each worker is a fresh interpreter in a session and process group of its own, so that a time-out kills everything it
started, and Ctrl-C at the terminal reaches only the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from tilewright.autotune.measure.worker import HEADER, READY
from tilewright.autotune.measure.worker_protocol import Job
from tilewright.core.config import child_environment
from tilewright.core.errors import TilewrightError

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tilewright.autotune.measure.worker import main
main(sys.argv[2:])
"""
_START_SECONDS = 120.0
_TAIL_BYTES = 16 << 10
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_MEMORY_WORDS = ("out of memory", "bad_alloc", "cannot allocate memory", "memoryerror")


class WorkerGone(TilewrightError):
    """The worker has no answer: it took too long and was killed, or it died.

    ``signal_number``: what killed it (None: it was us, or it ended by itself). ``detail``: its last words.
    """

    def __init__(self, message: str, timed_out: bool, signal_number: int | None, detail: str) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.signal_number = signal_number
        self.detail = detail

    @property
    def for_lack_of_memory(self) -> bool:
        return any(w in self.detail.lower() for w in _MEMORY_WORDS)

    @property
    def from_outside(self) -> bool:
        """True if somebody else ended it: nothing a candidate does to itself sends these signals."""
        return self.signal_number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class WorkerProcess:
    """One worker. ``prepared``: the key of the subject that it has data for (kept by the owner)."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.prepared: str | None = None
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        path = json.dumps(sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, path, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, start_new_session=True,
            env=child_environment(_QUIET),
        )  # fmt: skip
        self._started = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def call(self, job: Job, timeout: float, memory: int | None = None) -> object:
        """The answer to ``job``. ``memory``: bytes it may allocate. Raises WorkerGone; the worker is dead then."""
        if not self._started:
            if self._receive(_START_SECONDS) != READY:
                raise self._gone("did not start as a worker", False)
            self._started = True
        self._words.seek(0)
        self._words.truncate()
        data = pickle.dumps((job, memory), pickle.HIGHEST_PROTOCOL)
        try:
            stdin = self._process.stdin
            if stdin is not None:
                stdin.write(HEADER.pack(len(data)) + data)
                stdin.flush()
        except OSError as e:
            raise self._gone(f"cannot be reached ({e})", False) from e
        return self._receive(timeout)

    def interrupt(self) -> None:
        """End the process and all it started, from any thread; a :meth:`call` that waits for it raises WorkerGone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and forget it. Harmless if it has ended."""
        self.interrupt()
        self._process.wait()
        self._words.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _receive(self, timeout: float) -> object:
        deadline = time.monotonic() + timeout
        (size,) = HEADER.unpack(self._read(HEADER.size, deadline, timeout))
        return pickle.loads(self._read(size, deadline, timeout))

    def _read(self, count: int, deadline: float, timeout: float) -> bytes:
        if self._process.stdout is None:
            raise self._gone("has no output", False)
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        chunks: list[bytes] = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise self._gone(f"gave no answer in {timeout:g} s", True)
            data = os.read(fd, min(count, 1 << 20))
            if not data:
                raise self._gone("ended", False)
            chunks.append(data)
            count -= len(data)
        return b"".join(chunks)

    def _gone(self, what: str, timed_out: bool) -> WorkerGone:
        """The error, after making sure that the process is dead."""
        number: int | None = None
        if not timed_out:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(5)
                number = -status if status < 0 else None
                what = f"was ended by {_signal_name(number)}" if number else f"ended with status {status}"
        detail = self._last_words()
        self.kill()
        line = _telling_line(detail)
        return WorkerGone(f"the worker {what}{f': {line}' if line else ''}", timed_out, number, detail)

    def _last_words(self) -> str:
        if self._words.closed:
            return ""
        end = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, end - _TAIL_BYTES))
        return self._words.read().decode(errors="replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _telling_line(text: str) -> str:
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    if any(x.startswith("Traceback") for x in lines):
        return lines[-1][:300]
    return next((x for x in lines if "error" in x.lower()), lines[-1] if lines else "")[:300]
