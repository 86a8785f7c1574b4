"""Tuning records, kept and looked up: in memory, in a log file, or in several databases at once.

A look-up names a workload and a target and has a policy. ``exact``: the same workload on the same machine facts.
``compatible``: the same workload on any CPU with the same vector unit, the nearest first. ``any``: any CPU, and the
nearest other sizes of the same structure. What a query answers does not depend on the order of the records, so a log
that was merged, copied or written by several processes gives the same builds.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from tilewright.autotune.dataset import Dataset, dataset_of
from tilewright.autotune.logfile import append_line, read_lines, rewrite_lines
from tilewright.autotune.records import (
    Choice,
    Line,
    Record,
    RecordWarning,
    Verdict,
    from_line,
    isa_class,
    sort_key,
    target_differences,
    to_line,
)
from tilewright.autotune.workload import Workload, distance
from tilewright.core.errors import InputError, ParseError
from tilewright.core.target import Target

Policy: TypeAlias = Literal["exact", "compatible", "any"]
POLICIES: tuple[Policy, ...] = ("exact", "compatible", "any")
LOG_NAME = "tuning.jsonl"

_ACTIVE: ContextVar[tuple[Database, ...]] = ContextVar("tilewright_databases", default=())


class Database(Protocol):
    """What a build and a tuner need of tuning records."""

    def append(self, line: Line) -> None:
        """Keep one more line."""

    def lines(self) -> Iterator[Line]:
        """All records, verdicts and choices, in the order of the log."""

    def query(self, workload: Workload | str, target: Target, policy: Policy = "exact") -> Record | None:
        """The best record; None if there is none."""

    def top_k(
        self, workload: Workload | str, k: int, target: Target | None = None, policy: Policy = "exact"
    ) -> list[Record]:
        """The best ``k`` candidates, best first."""

    def measured(self, workload: Workload | str, target: Target) -> dict[str, Record]:
        """The latest record of every candidate tried on this machine, failed ones too, by candidate."""

    def verdict(self, workload: Workload | str, target: Target, network: str) -> Verdict | None:
        """The latest verdict on the workload in this network on this machine."""

    def choice(self, workload: Workload | str, target: Target, network: str) -> Choice | None:
        """The latest choice of algorithm for the workload in this network on this machine."""

    def relatives(self, structure: str) -> list[Record]:
        """The usable records of all workloads of a structure, on any target."""

    def merge(self, other: Database) -> int:
        """Append the lines of ``other`` that are not here yet; how many there were."""

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, those proved in place, and verdicts; how many
        records went."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


def active_database() -> Database | None:
    """The database of the innermost ``with database:`` block around this call; None outside of any."""
    found = _ACTIVE.get()
    return found[-1] if found else None


class _Index:
    """Records by workload and structure; the common part of all databases that hold records."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._by_workload: dict[str, list[Record]] = {}
        self._by_structure: dict[str, dict[str, None]] = {}
        self._verdicts: dict[str, list[Verdict]] = {}
        self._choices: dict[str, list[Choice]] = {}

    def add(self, line: Line) -> None:
        self._lines.append(line)
        if isinstance(line, Verdict):
            self._verdicts.setdefault(line.workload, []).append(line)
        elif isinstance(line, Choice):
            self._choices.setdefault(line.workload, []).append(line)
        else:
            self._by_workload.setdefault(line.workload.hash, []).append(line)
            self._by_structure.setdefault(line.workload.structure, {})[line.workload.hash] = None

    def lines(self) -> list[Line]:
        return list(self._lines)

    def of_workload(self, name: str) -> list[Record]:
        return list(self._by_workload.get(name, ()))

    def of_structure(self, name: str) -> list[Record]:
        return [r for w in self._by_structure.get(name, ()) for r in self._by_workload[w]]

    def verdicts(self, name: str) -> list[Verdict]:
        return list(self._verdicts.get(name, ()))

    def choices(self, name: str) -> list[Choice]:
        return list(self._choices.get(name, ()))


class _Base:
    """Look-ups over an index that a subclass keeps up to date."""

    def _index(self) -> _Index:
        raise NotImplementedError

    def append(self, line: Line) -> None:
        raise NotImplementedError

    def prune(self, k: int = 1, failures: bool = False) -> int:
        raise NotImplementedError

    def lines(self) -> Iterator[Line]:
        """All records, verdicts and choices, in the order of the log."""
        yield from self._index().lines()

    def records(self) -> list[Record]:
        """All measurements, in the order of the log."""
        return [x for x in self.lines() if isinstance(x, Record)]

    def __len__(self) -> int:
        return len(self._index().lines())

    def query(self, workload: Workload | str, target: Target, policy: Policy = "exact") -> Record | None:
        """The best record; None if there is none. A workload given by its hash finds no other sizes."""
        found = self.top_k(workload, 1, target, policy)
        return found[0] if found else None

    def top_k(
        self, workload: Workload | str, k: int, target: Target | None = None, policy: Policy = "exact"
    ) -> list[Record]:
        """The best ``k`` candidates, best first; those of every target if none is given."""
        if policy not in POLICIES:
            raise InputError(f"policy: expected one of {', '.join(POLICIES)}, got {policy!r}")
        found = self._index().of_workload(_hash(workload))
        if policy == "any" and isinstance(workload, Workload):
            found = self._index().of_structure(workload.structure)
        best = usable(found)
        if target is None:
            return sorted(best, key=sort_key)[:k]
        ranked = [(rank(r, workload, target), r) for r in best]
        limit = {"exact": 0, "compatible": 1, "any": 2}[policy]
        kept = [(key, r) for key, r in ranked if key[0] <= limit]
        return [r for _, r in sorted(kept, key=lambda x: (x[0], sort_key(x[1])))[:k]]

    def measured(self, workload: Workload | str, target: Target) -> dict[str, Record]:
        """The latest record of every candidate tried on this machine, failed ones too, by candidate."""
        here = [r for r in self._index().of_workload(_hash(workload)) if not target_differences(r.target, target)]
        return {r.candidate: r for r in sorted(here, key=lambda r: (r.time, r.candidate))}

    def verdict(self, workload: Workload | str, target: Target, network: str) -> Verdict | None:
        """The latest verdict on the workload in this network on this machine."""
        here = [
            v for v in self._index().verdicts(_hash(workload))
            if v.network == network and not target_differences(v.target, target)
        ]  # fmt: skip
        return max(here, key=lambda v: (v.time, v.candidate, v.helps), default=None)

    def choice(self, workload: Workload | str, target: Target, network: str) -> Choice | None:
        """The latest choice of algorithm for the workload in this network on this machine."""
        here = [
            c for c in self._index().choices(_hash(workload))
            if c.network == network and not target_differences(c.target, target)
        ]  # fmt: skip
        return max(here, key=lambda c: (c.time, c.algorithm), default=None)

    def relatives(self, structure: str) -> list[Record]:
        """The usable records of all workloads of a structure, on any target."""
        return sorted(usable(self._index().of_structure(structure)), key=sort_key)

    def to_arrays(self) -> Dataset:
        """All measurements as features and times, for studies of cost models."""
        return dataset_of(self.records())

    def merge(self, other: Database) -> int:
        """Append the lines of ``other`` that are not here yet; how many there were."""
        have = {_identity(x) for x in self.lines()}
        added = 0
        for x in other.lines():
            if (name := _identity(x)) not in have:
                have.add(name)
                self.append(x)
                added += 1
        return added

    def __enter__(self) -> Self:
        _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        _ACTIVE.set(_ACTIVE.get()[:-1])


class MemoryDatabase(_Base):
    """Records in memory, for tests and for tuning that keeps nothing."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._kept = _Index()
        for x in lines:
            self._kept.add(x)

    def _index(self) -> _Index:
        return self._kept

    def append(self, line: Line) -> None:
        """Keep one more line."""
        self._kept.add(line)

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, those proved in place, and verdicts; how many
        records went."""
        before = self._kept.lines()
        kept = _prune(before, k, failures)
        self._kept = _Index()
        for x in kept:
            self._kept.add(x)
        return len(before) - len(kept)


class JSONDatabase(_Base):
    """Records in a log of JSON lines; see ``docs/log-format.md``. A directory stands for the ``tuning.jsonl`` in it.

    Several processes may append to one log. A look-up reads what they wrote since the last one. Lines that cannot be
    read are left in the file, and each is reported once as a :class:`RecordWarning`.
    """

    def __init__(self, path: str | Path) -> None:
        given = Path(path).expanduser()
        self.path = given / LOG_NAME if given.is_dir() else given
        self._kept = _Index()
        self._read_to = self._file = self._count = 0
        self._told: set[bytes] = set()
        self._guard = threading.RLock()

    def append(self, line: Line) -> None:
        """Write one more line to the log, under its lock."""
        append_line(self.path, to_line(line).encode())

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, those proved in place, and verdicts; how many
        lines went.

        Lines this version does not understand stay, byte for byte; so do, with ``failures``, records of failures.
        Records of wrong results stay too, so that such a candidate never comes back. Torn lines go.
        """
        gone = 0

        def change(lines: list[bytes]) -> list[bytes]:
            nonlocal gone
            kept = prune_lines(lines, k, failures)
            gone = len(lines) - len(kept)
            return kept

        with self._guard:
            rewrite_lines(self.path, change)
            self._forget()
        return gone

    def _forget(self) -> None:
        self._kept = _Index()
        self._read_to = self._file = self._count = 0

    def _index(self) -> _Index:
        with self._guard:
            tail = read_lines(self.path, self._read_to, self._file)
            if tail.begin == 0:
                self._forget()
            for raw in tail.lines:
                self._count += 1
                self._take(raw)
            if tail.torn and tail.torn not in self._told:
                self._tell(tail.torn, f"{self.path}: the last line is cut off in the middle; skipped")
            self._read_to, self._file = tail.end, tail.file
            return self._kept

    def _take(self, raw: bytes) -> None:
        if not raw.strip():
            return
        try:
            line = from_line(raw.decode(errors="replace"))
        except ParseError as e:
            self._tell(raw, f"{self.path}: line {self._count}: {e}; skipped")
            return
        if line is None:
            self._tell(b"version", f"{self.path}: line {self._count}: of a newer version or another kind; left alone")
        else:
            self._kept.add(line)

    def _tell(self, what: bytes, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            warnings.warn(text, RecordWarning, stacklevel=4)


class UnionDatabase(_Base):
    """Several databases as one: look-ups see all, the first takes what is appended."""

    def __init__(self, first: Database, *others: Database) -> None:
        self.databases = (first, *others)

    def append(self, line: Line) -> None:
        """Append to the first database."""
        self.databases[0].append(line)

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Prune each database by itself; how many records went."""
        return sum(d.prune(k, failures) for d in self.databases)

    def _index(self) -> _Index:
        index = _Index()
        for database in self.databases:
            for x in database.lines():
                index.add(x)
        return index


def open_database(source: Database | str | Path | Sequence[str | Path]) -> Database:
    """A database, the log at a path, or the union of several logs."""
    if isinstance(source, (str, Path)):
        return JSONDatabase(source)
    if isinstance(source, Sequence):
        if not source:
            raise InputError("database: expected at least one log, got an empty list")
        parts = [JSONDatabase(p) for p in source]
        return parts[0] if len(parts) == 1 else UnionDatabase(*parts)
    return source


def usable(records: Iterable[Record]) -> list[Record]:
    """One record, the latest, of each candidate of each workload and machine that ran and never gave a wrong result."""
    latest: dict[tuple[object, ...], Record] = {}
    wrong: set[tuple[object, ...]] = set()
    for r in records:
        name = (r.workload.hash, _machine(r.target), r.candidate)
        if r.is_wrong:
            wrong.add(name)
        old = latest.get(name)
        if old is None or (old.time, _seconds(old)) < (r.time, _seconds(r)):
            latest[name] = r
    return [r for name, r in latest.items() if name not in wrong and r.seconds is not None]


def rank(record: Record, workload: Workload | str, target: Target) -> tuple[float, ...]:
    """How far a record is from what is asked for: 0 exact, 1 compatible, 2 any; then sizes, then the machine."""
    far = distance(record.workload.text, workload.text) if isinstance(workload, Workload) else 0.0
    same = record.workload.hash == _hash(workload)
    different = target_differences(record.target, target)
    foreign = isa_class(record.target) != isa_class(target)
    level = 0 if same and not different else 1 if same and not foreign else 2
    return (level, float(foreign), 0.0 if same else far, float(len(different)))


def prune_lines(lines: Sequence[bytes], k: int, failures: bool) -> list[bytes]:
    """The lines of a log that a prune keeps, as they were: those it does not understand too, torn ones not."""
    parsed: list[tuple[bytes, Line | None]] = []
    for raw in lines:
        try:
            parsed.append((raw, from_line(raw.decode(errors="replace"))))
        except ParseError:
            continue
    kept = {id(x) for x in _prune([x for _, x in parsed if x is not None], k, failures)}
    return [raw for raw, x in parsed if x is None or id(x) in kept]


def _prune(lines: Sequence[Line], k: int, failures: bool) -> list[Line]:
    if k < 1:
        raise InputError(f"prune: expected to keep at least 1 candidate, got {k}")
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in usable(x for x in lines if isinstance(x, Record)):
        groups.setdefault((r.workload.hash, _machine(r.target)), []).append(r)
    proved = {(x.workload, x.candidate) for x in lines if isinstance(x, Verdict) and x.helps}
    best = {id(r) for g in groups.values() for r in sorted(g, key=sort_key)[:k]}
    best |= {id(r) for g in groups.values() for r in g if (r.workload.hash, r.candidate) in proved}
    return [
        x for x in lines
        if isinstance(x, (Verdict, Choice)) or id(x) in best or x.is_wrong or (failures and x.failure is not None)
    ]  # fmt: skip


def _hash(workload: Workload | str) -> str:
    return workload.hash if isinstance(workload, Workload) else workload


def _machine(t: Target) -> tuple[object, ...]:
    return (isa_class(t), t.cpu, t.threads, t.l1_bytes, t.l2_bytes, t.l3_bytes)


def _seconds(r: Record) -> float:
    return float("inf") if r.seconds is None else r.seconds


def _identity(line: Line) -> object:
    """Equal for the same line of two logs."""
    return to_line(line)
