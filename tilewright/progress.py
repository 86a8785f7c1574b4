"""A line of progress on a terminal for whatever takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from tilewright.core.console import console

if TYPE_CHECKING:
    from rich.live import Live

_DELAY = 1.0
_INTERVAL = 0.1


class Progress:
    """A context manager. ``show``: None asks whether ``stream`` is a terminal. The line is erased at the end."""

    def __init__(self, show: bool | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._show = self._stream.isatty() if show is None else show
        self._start = self._last = time.monotonic()
        self._line: Live | None = None

    def __enter__(self) -> Progress:
        return self

    def say(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """What is going on; drawn at most ten times a second, and not before the first second is over."""
        now = time.monotonic()
        if not self._show or now - self._start < _DELAY or now - self._last < _INTERVAL:
            return
        self._last = now
        if self._line is None:
            self._line = self._begin()
        count = f" {done}/{total}" if done is not None and total else ""
        self._line.update(f"{now - self._start:5.1f} s  {what[:80]}{count}", refresh=True)

    def _begin(self) -> Live:
        from rich.live import Live

        line = Live(console=console(self._stream, True), auto_refresh=False, transient=True, redirect_stdout=False)
        line.start(refresh=True)  # the next one erases the line that the cursor is in
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()
