"""Runs of a session as a trace that Chrome (``chrome://tracing``) and Perfetto show, with ONNX Runtime's fields.

Format: Trace Event Format, complete events; times in microseconds since the session began.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.core.io.files import create_file
from tilewright.runtime.profile import KernelSpan


class ChromeTrace:
    """The events of one session. ``began``: nanoseconds of ``time.monotonic_ns`` when it was made."""

    def __init__(self) -> None:
        self.began = time.monotonic_ns()
        self._events: list[dict[str, object]] = []

    def add(self, category: str, name: str, start: float, seconds: float, **args: object) -> None:
        """One event; ``start`` in seconds of ``time.monotonic``."""
        self._events.append({
            "cat": category, "pid": os.getpid(), "tid": threading.get_native_id(), "dur": round(seconds * 1e6, 3),
            "ts": round(start * 1e6 - self.began / 1e3, 3), "ph": "X", "name": name, "args": args,
        })  # fmt: skip

    def add_run(self, start: float, seconds: float, kernels: Sequence[KernelSpan]) -> None:
        """A run and its kernels, each under the names of the nodes that it computes."""
        self.add("Session", "model_run", start, seconds)
        for k in kernels:
            threads = "all" if k.parallel else "1"
            self.add("Node", ", ".join(k.nodes), k.start, k.seconds, kernel=k.kernel, threads=threads,
                     provider="CPUExecutionProvider")  # fmt: skip

    def write(self, prefix: str) -> str:
        """Write the events to a new file ``prefix_DATE_TIME.json``; its name."""
        path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        return str(create_file(path, json.dumps(self._events, indent=1).encode()))
