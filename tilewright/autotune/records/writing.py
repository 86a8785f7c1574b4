"""Appending to a log: each line short, with the definitions that the file does not have yet in front of it.

What the file has is looked up under its lock, in what came since this writer looked last; so a log that another process
rewrote, cut or continued meanwhile gets what it lacks. What many lines need is written again now and then: so a damaged
line, or a file without its beginning, does not cost all of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from tilewright.autotune.records.compact import CompactLine, compact_line, lines_with_definitions
from tilewright.autotune.records.definitions import Definitions, is_definition
from tilewright.autotune.records.logfile import START, Tail, append_made
from tilewright.autotune.records.record import Line
from tilewright.core.errors import ParseError

_FAR = 4 << 20
"""Bytes of a log after which definitions that many lines need are written again."""


class LogWriter:
    """Appends to the log at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._known: dict[str, int] = {}
        self._position = START

    def append(self, lines: Sequence[Line]) -> None:
        """Write lines under the lock of the file, in one write: all of them or, if that fails, none. Raises InputError
        if there is a file that is not a log."""
        self.append_compact([compact_line(x) for x in lines])

    def append_compact(self, made: Sequence[CompactLine]) -> None:
        """:meth:`append` for lines that are short already."""
        written: set[str] = set()

        def texts(tail: Tail) -> list[bytes]:
            nonlocal written
            if tail.is_new:
                self._known.clear()
            self._known.update(_defined(tail))
            self._position = tail.end
            needed = {name for x in made for name in (*x.objects, *x.steps)}
            near = {name for name in needed if self._known.get(name, -_FAR) > tail.end.at - _FAR}
            out, written = lines_with_definitions(made, self._known, near)
            return out

        with self._guard:
            after = append_made(self.path, self._position, texts)
            self._known.update(dict.fromkeys(written, self._position.at))
            self._position = after


def _defined(tail: Tail) -> dict[str, int]:
    """The whole definitions in what came, with the place of each."""
    out: dict[str, int] = {}
    for place, raw in tail.lines:
        if is_definition(raw):
            found = Definitions()
            with contextlib.suppress(ParseError):  # some of it is damaged; what is not counts
                found.add(raw)
            out.update(dict.fromkeys(found.texts(), place))
    return out
