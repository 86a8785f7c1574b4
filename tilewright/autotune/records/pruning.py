"""What is kept of a log that is made small, and which of its records is the default schedule's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tilewright.autotune.records.index import usable
from tilewright.autotune.records.reading import LineReader, TornLine
from tilewright.autotune.records.record import Line, Machine, Record, Verdict, machine_of, sort_key
from tilewright.core.errors import InputError, ParseError


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


def lines_to_keep(lines: Iterable[bytes], k: int, failures: bool) -> set[int]:
    """The numbers of the lines of a log that a prune keeps: also of those that this version does not understand, but
    not of torn ones."""
    reader = LineReader()
    kept: set[int] = set()
    read: list[tuple[int, Line]] = []
    for number, raw in enumerate(lines):
        try:
            line = reader.read(raw.decode(errors="replace"))
        except TornLine:
            continue
        except ParseError:
            line = None
        if line is None:
            kept.add(number)
        else:
            read.append((number, line))
    chosen = set(map(id, to_keep([x for _, x in read], k, failures)))
    return kept | {number for number, x in read if id(x) in chosen}


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
