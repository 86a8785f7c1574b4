"""What is kept of a log that is made small, and which of its records is the default schedule's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.autotune.records.definitions import MissingDefinition, is_compact, references_of
from tilewright.autotune.records.index import usable
from tilewright.autotune.records.reading import LineReader, TornLine
from tilewright.autotune.records.record import Line, Machine, Record, Verdict, machine_of, sort_key
from tilewright.core.errors import InputError, ParseError

_NAMES = re.compile(rb'"([\w-]{10})"')
"""What may be the id of a definition in a line of a kind that this version does not know."""


class Measured(Protocol):
    """What is asked of a measurement to find the default's."""

    @property
    def candidate(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def is_default(self) -> bool: ...
    @property
    def is_of_first_batch(self) -> bool: ...


def recorded_default(measured: Iterable[Measured]) -> str | None:
    """The candidate that was the default schedule when a task was measured; None if the log does not have it.

    Logs of earlier versions do not say; there it is what was measured first, if that was in the first batch.
    """
    ordered = sorted(measured, key=lambda m: (m.time, m.candidate))
    marked = [m.candidate for m in ordered if m.is_default]
    if marked:
        return marked[-1]
    return ordered[0].candidate if ordered and ordered[0].is_of_first_batch else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of the lines of a log. ``texts``: by number of the line, None where it stays as it is. ``before``,
    ``after``: the lines that were understood. ``foreign``: how many were not, which stay; ``torn``: how many are no
    JSON, which go."""

    texts: Mapping[int, bytes | None]
    before: tuple[Line, ...] = ()
    after: tuple[Line, ...] = ()
    foreign: int = 0
    torn: int = 0

    @property
    def removed(self) -> int:
        """How many lines go, without definitions."""
        return len(self.before) - len(self.after) + self.torn


def lines_to_keep(lines: Iterable[bytes], choose: Callable[[Sequence[Line]], Sequence[Line]]) -> Kept:
    """What stays of a log if ``choose`` says which of the understood lines do: also those that this version does not
    understand, but not torn ones; and of the definitions those that are needed, once."""
    reader = LineReader()
    defining: dict[int, bytes] = {}
    foreign: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    read: dict[int, Line] = {}
    references: dict[int, set[str]] = {}
    torn = 0

    def look_at(number: int, raw: bytes, later: dict[int, bytes]) -> None:
        nonlocal torn
        try:
            if reader.define(raw):
                defining[number] = raw
                return
            line = reader.read(text := raw.decode(errors="replace"))
        except TornLine:
            torn += 1
            return
        except MissingDefinition:
            later[number] = raw
            return
        except ParseError:
            line = None
        if line is None:
            foreign[number] = raw
        else:
            read[number] = line
            short = text.encode()
            references[number] = references_of(short) if is_compact(short) else set()

    for number, raw in enumerate(lines):
        look_at(number, raw, waiting)
    for number, raw in waiting.items():
        look_at(number, raw, foreign)
    before = [read[n] for n in sorted(read)]
    after = choose(before)
    chosen = set(map(id, after))
    texts: dict[int, bytes | None] = dict.fromkeys((*foreign, *(n for n, x in read.items() if id(x) in chosen)))
    named = set[str]().union(*(references[n] for n in texts if n in references))
    named |= {name.decode() for raw in foreign.values() for name in _NAMES.findall(raw)}
    needed = reader.definitions.used_by(named)
    for number, raw in defining.items():
        text, defined = reader.definitions.trimmed(raw, needed)
        needed -= defined
        if text is not None:
            texts[number] = None if text == raw else text
    return Kept(texts, tuple(before), tuple(after), len(foreign), torn)


def to_keep(lines: Sequence[Line], k: int, failures: bool) -> list[Line]:
    """The lines that a prune keeps."""
    if k < 1:
        raise InputError(f"prune: expected to keep at least 1 candidate, got {k}")
    records = [x for x in lines if isinstance(x, Record)]
    best = {id(r) for g in _by_task(usable(records)) for r in sorted(g, key=sort_key)[:k]}
    proved = {(x.workload, x.candidate) for x in lines if isinstance(x, Verdict) and x.helps}
    best |= {id(r) for r in usable(records) if (r.workload.hash, r.candidate) in proved}
    best |= {id(r) for g in _by_task(records) for r in _defaults(g)}
    return [
        x for x in lines
        if not isinstance(x, Record) or id(x) in best or x.is_wrong or (failures and x.failure is not None)
    ]  # fmt: skip


def _defaults(records: Sequence[Record]) -> list[Record]:
    """The latest record of the default, and the one that shows that it is."""
    key = recorded_default(records)
    own = sorted((r for r in records if r.candidate == key), key=lambda r: (r.time, r.candidate))
    return [own[0], own[-1]] if own else []


def _by_task(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[tuple[str, Machine], list[Record]] = {}
    for r in records:
        groups.setdefault((r.workload.hash, machine_of(r.target)), []).append(r)
    return list(groups.values())
