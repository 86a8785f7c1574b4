"""The lines of one log file, followed as it grows; measurements are decoded when somebody asks for their workload.

What stands in front of a measurement's trace, or the definition that it names, says which workload it is of, so
opening a log looks at that only. A build decodes what its kernels need; a line that turns out to be damaged then is
skipped like one that is seen to be at once. A line whose definition is not in the file yet waits for it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.definitions import (
    Definitions,
    MissingDefinition,
    is_compact,
    is_definition,
    references_of,
)
from tilewright.autotune.records.index import Index, Wanted, every_workload
from tilewright.autotune.records.logfile import START, Tail, reading
from tilewright.autotune.records.reading import LineReader
from tilewright.autotune.records.record import RecordWarning
from tilewright.core.collector import paused_collector
from tilewright.core.errors import ParseError

_SHOWN = 4
_NUMBERS_SHOWN = 3
_VARIES = re.compile(r"\(.*?\)|\d+|got `?\w+`?|`[^`]*`")
"""What may differ in two lines that are damaged in the same way."""
_LEFT_ALONE = "of a newer version or another kind; left alone"

_Place: TypeAlias = tuple[int, int, int]
"""Of a line: its number, its first byte, its length."""


class LogLines:
    """The log at ``path``. ``skipped``: by number of the line, what is wrong with it. ``definitions``: also those of
    other logs, if its lines may name them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.definitions = Definitions()
        self._guard = threading.RLock()
        self._told: set[int] = set()
        self.forget()

    def forget(self) -> None:
        """Read it from the beginning next time."""
        self.skipped: dict[int, str] = {}
        self._index = Index()
        self._reader = LineReader(self.definitions)
        self._pending: dict[Workload, list[_Place]] = {}
        self._waiting: list[_Place] = []
        self._count = 0
        self._defined = 0
        self._position = START
        self._news: list[tuple[int, str]] = []

    def index(self, wanted: Wanted, is_all: bool = True) -> Index:
        """What is in the file now, with at least the records of these workloads. ``is_all``: no other log is read that
        could define what its lines name. Raises InputError if it is not a log."""
        with self._guard:
            with contextlib.ExitStack() as interrupted, paused_collector(), reading(self.path, self._position) as tail:
                interrupted.callback(self.forget)
                if tail.is_new:
                    self.forget()
                for place, raw in tail.lines:
                    self._count += 1
                    self._look_at((self._count, place, len(raw)), raw, wanted)
                if len(self.definitions) > self._defined:
                    self._defined = len(self.definitions)
                    self._look_again(tail, wanted)
                for workload in [w for w in self._pending if wanted(w)]:
                    for at in self._pending.pop(workload):
                        self._decode(at, tail.read(*at[1:]))
                if is_all:
                    self._give_up(tail)
                self._position = tail.end
                interrupted.pop_all()
            self._report(tail)
            return self._index

    def loose(self) -> tuple[list[bytes], dict[str, bytes]]:
        """What of the file means something only together with another one: lines that lack a definition, and
        definitions, by id, that no line here needs."""
        self.index(every_workload, is_all=False)
        needed: set[str] = set()
        own = Definitions()
        with reading(self.path) as tail:
            waiting = [tail.read(*at[1:]) for at in self._waiting]
        with reading(self.path) as tail:
            for _, raw in tail.lines:
                with contextlib.suppress(ParseError, ValueError, RecursionError):
                    if is_definition(raw):
                        own.add(raw)
                    elif is_compact(raw) and raw not in waiting:
                        needed |= references_of(raw)
        needed = own.used_by(needed)
        return waiting, {name: text for name, text in own.texts().items() if name not in needed}

    def _look_at(self, at: _Place, raw: bytes, wanted: Wanted) -> None:
        front = self._reader.peek(raw)
        if front is None or wanted(front[0]):
            self._decode(at, raw)
        else:
            workload, target = front
            self._index.add_target(target)
            self._pending.setdefault(workload, []).append(at)

    def _look_again(self, tail: Tail, wanted: Wanted) -> None:
        """At lines whose definitions may have come after them."""
        waiting, self._waiting = self._waiting, []
        for at in waiting:
            self._look_at(at, tail.read(*at[1:]), wanted)

    def _give_up(self, tail: Tail) -> None:
        """Say which lines still lack a definition; they go on waiting."""
        for at in self._waiting:
            if at[0] not in self.skipped:
                raw = tail.read(*at[1:])
                try:
                    self._reader.read(raw.decode(errors="replace"))
                except ParseError as e:
                    self._skip(at[0], raw, e)

    def _decode(self, at: _Place, raw: bytes) -> None:
        number = at[0]
        if not raw.strip():
            return
        try:
            if is_compact(raw) and self._reader.define(raw):
                return
            line = self._reader.read(raw.decode(errors="replace"))
        except MissingDefinition:
            self._waiting.append(at)
            return
        except ParseError as e:
            self._skip(number, raw, e)
            return
        self.skipped.pop(number, None)
        if line is None:
            self._tell(number, b"version", _LEFT_ALONE)
        else:
            self._index.add(line, number)

    def _skip(self, number: int, raw: bytes, e: ParseError) -> None:
        self.skipped[number] = str(e)
        self._tell(number, raw, f"{e}; skipped")

    def _tell(self, number: int, what: bytes, text: str) -> None:
        if (name := hash(what)) not in self._told:
            self._told.add(name)
            self._news.append((number, text))

    def _report(self, tail: Tail) -> None:
        """One warning of all that was found now, each thing once."""
        parts = grouped(self._news)
        self._news = []
        if tail.torn and (name := hash(tail.torn)) not in self._told:
            self._told.add(name)
            parts.append("the last line is cut off in the middle; skipped")
        if parts:
            warnings.warn(f"{self.path}: {'; '.join(parts)}", RecordWarning, stacklevel=4)


def grouped(found: Iterable[tuple[int, str]]) -> list[str]:
    """What is wrong with lines, by number, a part for each reason, the most frequent first: ``line 3: not JSON``,
    ``lines 3, 5, 8 and 12 more: not JSON``."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for number, text in found:
        groups.setdefault(_VARIES.sub("", text), []).append((number, text))
    ordered = sorted((sorted(g) for g in groups.values()), key=lambda g: (-len(g), g[0]))
    parts = []
    for g in ordered[:_SHOWN]:
        more = f" and {len(g) - _NUMBERS_SHOWN} more" if len(g) > _NUMBERS_SHOWN else ""
        numbers = ", ".join(str(n) for n, _ in g[:_NUMBERS_SHOWN])
        parts.append(f"line{'s' if len(g) > 1 else ''} {numbers}{more}: {g[0][1]}")
    rest = sum(map(len, ordered[_SHOWN:]))
    return [*parts, f"{rest} lines more, with {len(ordered) - _SHOWN} other reasons"] if rest else parts
