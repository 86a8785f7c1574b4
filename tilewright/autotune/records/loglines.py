"""The lines of one log file, followed as it grows; measurements are decoded when somebody asks for their workload.

What stands in front of a measurement's trace says which workload it is of, so opening a log looks at that only. A build
decodes what its kernels need; a line that turns out to be damaged then is skipped like one that is seen to be at once.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from pathlib import Path

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.index import Index, Wanted
from tilewright.autotune.records.logfile import START, Tail, reading
from tilewright.autotune.records.reading import LineReader
from tilewright.autotune.records.record import RecordWarning
from tilewright.core.collector import paused_collector
from tilewright.core.errors import ParseError

_SHOWN = 3


class LogLines:
    """The log at ``path``. ``skipped``: by number of the line, what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._told: set[bytes] = set()
        self.forget()

    def forget(self) -> None:
        """Read it from the beginning next time."""
        self.skipped: dict[int, str] = {}
        self._index = Index()
        self._reader = LineReader()
        self._pending: dict[Workload, list[tuple[int, int, int]]] = {}
        self._count = 0
        self._position = START
        self._news: list[str] = []

    def index(self, wanted: Wanted) -> Index:
        """What is in the file now, with at least the records of these workloads. Raises InputError if it is not a
        log."""
        with self._guard:
            with contextlib.ExitStack() as interrupted, paused_collector(), reading(self.path, self._position) as tail:
                interrupted.callback(self.forget)
                if tail.is_new:
                    self.forget()
                for place, raw in tail.lines:
                    self._count += 1
                    self._look_at(place, raw, wanted)
                for workload in [w for w in self._pending if wanted(w)]:
                    for number, place, length in self._pending.pop(workload):
                        self._decode(number, tail.read(place, length))
                self._position = tail.end
                interrupted.pop_all()
            self._report(tail)
            return self._index

    def _look_at(self, place: int, raw: bytes, wanted: Wanted) -> None:
        front = self._reader.peek(raw)
        if front is None or wanted(front[0]):
            self._decode(self._count, raw)
        else:
            workload, target = front
            self._index.add_target(target)
            self._pending.setdefault(workload, []).append((self._count, place, len(raw)))

    def _decode(self, number: int, raw: bytes) -> None:
        if not raw.strip():
            return
        try:
            line = self._reader.read(raw.decode(errors="replace"))
        except ParseError as e:
            self.skipped[number] = str(e)
            self._tell(raw, f"line {number}: {e}; skipped")
            return
        if line is None:
            self._tell(b"version", f"line {number}: of a newer version or another kind; left alone")
        else:
            self._index.add(line, number)

    def _tell(self, what: bytes, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._news.append(text)

    def _report(self, tail: Tail) -> None:
        """One warning of all that was found now, each thing once."""
        if tail.torn:
            self._tell(tail.torn, "the last line is cut off in the middle; skipped")
        news, self._news = self._news, []
        if news:
            more = f"; and {len(news) - _SHOWN} lines more" if len(news) > _SHOWN else ""
            text = "; ".join(news[:_SHOWN])
            warnings.warn(f"{self.path}: {text}{more}", RecordWarning, stacklevel=4)
