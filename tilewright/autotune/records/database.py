"""Tuning records, kept and looked up: in memory, in a log file, or in several databases at once.

A look-up names a workload and a target and has a policy. ``exact``: the same workload on the same machine facts.
``compatible``: the same workload on any CPU with the same vector unit, the nearest first. ``any``: any CPU, and the
nearest other sizes of the same structure. What a query answers does not depend on the order of the records, so a log
that was merged, copied or written by several processes gives the same builds.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias, overload, runtime_checkable

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.compact import CompactLine
from tilewright.autotune.records.dataset import Dataset, dataset_of
from tilewright.autotune.records.definitions import Definitions
from tilewright.autotune.records.index import Index, Wanted, every_workload, no_workload, rank, usable
from tilewright.autotune.records.logfile import require_log, rewrite_lines
from tilewright.autotune.records.loglines import LogLines
from tilewright.autotune.records.pruning import Kept, lines_to_keep, to_keep
from tilewright.autotune.records.record import (
    Choice,
    Line,
    Record,
    RecordWarning,
    Verdict,
    line_json,
    sort_key,
    target_differences,
)
from tilewright.autotune.records.writing import LogWriter
from tilewright.core.errors import InputError
from tilewright.machine.target import Target

Policy: TypeAlias = Literal["exact", "compatible", "any"]
Networks: TypeAlias = str | tuple[str, ...]
"""The digest of a network, or that and those under which older logs have it."""
POLICIES: tuple[Policy, ...] = ("exact", "compatible", "any")
LOG_NAME = "tuning.jsonl"
_AT_ONCE = 256
"""Lines that a merge appends in one write."""

_ACTIVE: ContextVar[tuple[Database, ...]] = ContextVar("tilewright_databases", default=())


@runtime_checkable
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

    def verdict(self, workload: Workload | str, target: Target, network: Networks) -> Verdict | None:
        """The latest verdict on the workload in this network on this machine."""

    def choice(self, workload: Workload | str, target: Target, network: Networks) -> Choice | None:
        """The latest choice of implementation for the workload in this network on this machine."""

    def relatives(self, structure: str) -> list[Record]:
        """The usable records of all workloads of a structure, on any target."""

    def related(self, wanted: Wanted) -> list[Record]:
        """The usable records of the workloads that ``wanted`` takes, on any target."""

    def targets(self) -> list[Target]:
        """The machines that there are measurements of."""

    def merge(self, other: Database) -> int:
        """Append the lines of ``other`` that are not here yet; how many there were."""

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, the default's, those proved in a network, and
        verdicts; how many records went."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


DatabaseLike: TypeAlias = Database | str | os.PathLike[str] | Sequence[Database | str | os.PathLike[str]]


def active_database() -> Database | None:
    """The database of the innermost ``with database:`` block around this call; None outside of any."""
    found = _ACTIVE.get()
    return found[-1] if found else None


class _Base:
    """Look-ups over an index that a subclass keeps up to date."""

    def _index(self, wanted: Wanted) -> Index:
        """What there is now, with at least the records of these workloads."""
        raise NotImplementedError

    def append(self, line: Line) -> None:
        raise NotImplementedError

    def prune(self, k: int = 1, failures: bool = False) -> int:
        raise NotImplementedError

    def lines(self) -> Iterator[Line]:
        """All records, verdicts and choices, in the order of the log."""
        yield from self._index(every_workload).lines()

    def records(self) -> list[Record]:
        """All measurements, in the order of the log."""
        return [x for x in self.lines() if isinstance(x, Record)]

    def __len__(self) -> int:
        return len(self._index(every_workload))

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
        if policy == "any" and isinstance(workload, Workload):
            found = self._like(workload)
        else:
            found = self._of_workload(workload)
        best = usable(found)
        if target is None:
            return sorted(best, key=sort_key)[:k]
        ranked = [(rank(r, workload, target), r) for r in best]
        limit = {"exact": 0, "compatible": 1, "any": 2}[policy]
        kept = [(key, r) for key, r in ranked if key[0] <= limit]
        return [r for _, r in sorted(kept, key=lambda x: (x[0], sort_key(x[1])))[:k]]

    def measured(self, workload: Workload | str, target: Target) -> dict[str, Record]:
        """The latest record of every candidate tried on this machine, failed ones too, by candidate."""
        here = [r for r in self._of_workload(workload) if not target_differences(r.target, target)]
        return {r.candidate: r for r in sorted(here, key=lambda r: (r.time, r.candidate))}

    def verdict(self, workload: Workload | str, target: Target, network: Networks) -> Verdict | None:
        """The latest verdict on the workload in this network on this machine."""
        here = [
            v for name in _hashes(workload) for v in self._index(no_workload).verdicts(name)
            if v.network in _digests(network) and not target_differences(v.target, target)
        ]  # fmt: skip
        return max(here, key=lambda v: (v.time, v.candidate, v.helps), default=None)

    def choice(self, workload: Workload | str, target: Target, network: Networks) -> Choice | None:
        """The latest choice of implementation for the workload in this network on this machine."""
        here = [
            c for name in _hashes(workload) for c in self._index(no_workload).choices(name)
            if c.network in _digests(network) and not target_differences(c.target, target)
        ]  # fmt: skip
        return max(here, key=lambda c: (c.time, c.implementation), default=None)

    def relatives(self, structure: str) -> list[Record]:
        """The usable records of all workloads of a structure, on any target."""
        return sorted(usable(self._of_structures({structure})), key=sort_key)

    def related(self, wanted: Wanted) -> list[Record]:
        """The usable records of the workloads that ``wanted`` takes, on any target."""
        return sorted(usable(self._index(wanted).matching(wanted)), key=sort_key)

    def targets(self) -> list[Target]:
        """The machines that there are measurements of."""
        return list(self._index(no_workload).targets)

    def to_arrays(self) -> Dataset:
        """All measurements as features and times, for studies of cost models."""
        return dataset_of(self.records())

    def merge(self, other: Database) -> int:
        """Append the lines of ``other`` that are not here yet; how many there were."""
        have = {_identity(x) for x in self._whole_lines()}
        new: list[Line] = []
        for x in other._whole_lines() if isinstance(other, _Base) else other.lines():
            if (name := _identity(x)) not in have:
                have.add(name)
                new.append(x)
        self._append_all(new)
        self._take_loose(other)
        return len(new)

    def _append_all(self, lines: Sequence[Line]) -> None:
        for x in lines:
            self.append(x)

    def _whole_lines(self) -> list[Line]:
        """All lines but those that :meth:`_take_loose` is about."""
        return list(self.lines())

    def _take_loose(self, other: Database) -> None:
        """What ``other`` has that means nothing without another file, if it can be kept."""

    def _of_workload(self, workload: Workload | str) -> list[Record]:
        """The records of a workload; those of what it was formerly as records of what it is."""
        names = _hashes(workload)
        index = self._index(lambda w: w.hash in names)
        return [_as_of(workload, r) for name in sorted(names) for r in index.of_workload(name)]

    def _like(self, workload: Workload) -> list[Record]:
        """The records of a workload's structure, and of the structures that it had."""
        return [_as_of(workload, r) for r in self._of_structures({w.structure for w in (workload, *workload.former)})]

    def _of_structures(self, structures: Set[str]) -> list[Record]:
        index = self._index(lambda w: w.structure in structures)
        return [r for s in sorted(structures) for r in index.of_structure(s)]

    def __enter__(self) -> Self:
        _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        _ACTIVE.set(_ACTIVE.get()[:-1])


class MemoryDatabase(_Base):
    """Records in memory, for tests and for tuning that keeps nothing.

    >>> database = tilewright.MemoryDatabase()
    >>> with database:  # the database of every build in the block
    ...     model = tilewright.compile("model.onnx")
    >>> model.coverage().tuned
    0.0
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._kept = Index()
        for x in lines:
            self._kept.add(x)

    def _index(self, wanted: Wanted) -> Index:
        return self._kept

    def append(self, line: Line) -> None:
        """Keep one more line."""
        self._kept.add(line)

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, the default's, those proved in a network, and
        verdicts; how many records went."""
        before = self._kept.lines()
        kept = to_keep(before, k, failures)
        self._kept = Index()
        for x in kept:
            self._kept.add(x)
        return len(before) - len(kept)


class JSONDatabase(_Base):
    """Records in a log of JSON lines; see ``docs/log-format.md``. A directory stands for the ``tuning.jsonl`` in it. A
    file that is missing is made by the first append.

    Several processes may append to one log. A look-up reads what they wrote since the last one. Lines that cannot be
    read are left in the file, and each is reported once as a :class:`RecordWarning`. Raises InputError if there is a
    file that is not a log.

    >>> log = tilewright.JSONDatabase("new.jsonl")
    >>> len(log), log.targets()
    (0, [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path).expanduser()
        self.path = given / LOG_NAME if given.is_dir() else given
        require_log(self.path)
        self._lines = LogLines(self.path)
        self._writer = LogWriter(self.path)

    def __repr__(self) -> str:
        return f"JSONDatabase({os.fspath(self.path)!r})"

    @property
    def skipped(self) -> tuple[str, ...]:
        """What is wrong with the damaged lines of the log, a text per line."""
        self._index(every_workload)
        return tuple(f"line {n}: {text}" for n, text in sorted(self._lines.skipped.items()))

    def share(self, definitions: Definitions) -> None:
        """Let the log be read with what others define, and they with what it does, which is read now."""
        if self._lines.definitions is not definitions:
            self._lines.definitions = definitions
            self._lines.forget()
        self._lines.index(no_workload, is_all=False)

    def append(self, line: Line) -> None:
        """Write one more line to the log, under its lock."""
        self._writer.append([line])

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Keep the best ``k`` candidates of each workload and machine, the default's, those proved in a network, and
        verdicts; how many lines went.

        Lines this version does not understand stay, byte for byte; so do, with ``failures``, records of failures.
        Records of wrong results stay too, so that such a candidate never comes back. Torn lines go.
        """
        return self.rewrite(lambda lines: to_keep(lines, k, failures)).removed

    def rewrite(
        self, choose: Callable[[Sequence[Line]], Sequence[Line]], output: Path | None = None, dry_run: bool = False
    ) -> Kept:
        """Keep the lines that ``choose`` takes of those that are understood, and all others but torn ones. ``output``:
        write what is kept there, and leave this log as it is; ``dry_run``: only say what would stay."""
        kept = Kept({})

        def chosen(lines: Iterable[bytes]) -> Mapping[int, bytes | None]:
            nonlocal kept
            kept = lines_to_keep(lines, choose)
            return kept.texts

        rewrite_lines(self.path, chosen, output, dry_run)
        return kept

    def _index(self, wanted: Wanted) -> Index:
        return self._lines.index(wanted)

    def _append_all(self, lines: Sequence[Line]) -> None:
        for start in range(0, len(lines), _AT_ONCE):
            self._writer.append(lines[start : start + _AT_ONCE])

    def _whole_lines(self) -> list[Line]:
        return self._lines.index(every_workload, is_all=False).lines()

    def _take_loose(self, other: Database) -> None:
        """A log may come in parts, one after the other: a record in one, what it needs in another."""
        for d in other.databases if isinstance(other, UnionDatabase) else (other,):
            waiting, definitions = d._lines.loose() if isinstance(d, JSONDatabase) else ([], {})
            if waiting or definitions:
                here, _ = self._lines.loose()
                made = [CompactLine(x) for x in dict.fromkeys(waiting) if x not in here]
                steps = {k: v for k, v in definitions.items() if v.startswith(b"[")}
                objects = {k: v for k, v in definitions.items() if k not in steps}
                self._writer.append_compact([CompactLine(objects=objects, steps=steps), *made])


class UnionDatabase(_Base):
    """Several databases as one: look-ups see all, the first takes what is appended. Lines of one log may need what
    another one defines.

    >>> mine, shared = tilewright.MemoryDatabase(), tilewright.MemoryDatabase()
    >>> both = tilewright.UnionDatabase(mine, shared)
    >>> len(both)
    0
    """

    def __init__(self, first: Database, *others: Database) -> None:
        self.databases = (first, *others)
        self._definitions = Definitions()

    def _logs(self) -> list[JSONDatabase]:
        return [d for d in self.databases if isinstance(d, JSONDatabase)]

    def append(self, line: Line) -> None:
        """Append to the first database."""
        self.databases[0].append(line)

    def prune(self, k: int = 1, failures: bool = False) -> int:
        """Prune each database by itself; how many records went."""
        return sum(d.prune(k, failures) for d in self.databases)

    def _index(self, wanted: Wanted) -> Index:
        index = Index()
        for log in self._logs():
            log.share(self._definitions)
        for d in self.databases:
            for x in d._index(wanted).select(wanted) if isinstance(d, _Base) else d.lines():
                index.add(x)
            index.targets.update(dict.fromkeys(d.targets()))
        return index


@overload
def open_database(source: str | os.PathLike[str], create: bool = False) -> JSONDatabase: ...
@overload
def open_database(source: DatabaseLike, create: bool = False) -> Database: ...
def open_database(source: DatabaseLike, create: bool = False) -> Database:
    """A database, the log at a path, or the union of several logs. ``create``: the log that records go to, the first,
    need not exist yet.

    Raises InputError for a path without a log.
    """
    if isinstance(source, (str, os.PathLike)):
        return JSONDatabase(source) if create else _existing(source)
    if isinstance(source, (list, tuple)):
        if not source:
            raise InputError("database: expected at least one log, got an empty list")
        parts = [open_database(p, create and n == 0) for n, p in enumerate(source)]
        return parts[0] if len(parts) == 1 else UnionDatabase(*parts)
    if not isinstance(source, Database):
        raise InputError(f"database: expected a database or paths of logs, got {type(source).__name__}")
    return source


def database_of_build(source: DatabaseLike | None) -> Database | None:
    """The database that a build uses: ``source``, or that of the ``with`` block around the call. One whose log is not
    there yet is worth a :class:`RecordWarning`: nothing is tuned."""
    found = active_database() if source is None else open_database(source)
    for d in found.databases if isinstance(found, UnionDatabase) else (found,):
        if isinstance(d, JSONDatabase) and not d.path.exists():
            warnings.warn(f"{d.path}: no such file yet, so there are no records", RecordWarning, stacklevel=3)
    return found


def places_of(source: DatabaseLike | None) -> DatabaseLike | None:
    """``source`` for another process: logs by their absolute paths, other databases as they are."""
    if isinstance(source, JSONDatabase):
        return str(source.path.absolute())
    if isinstance(source, UnionDatabase) and all(isinstance(d, JSONDatabase) for d in source.databases):
        return [str(d.path.absolute()) for d in source.databases if isinstance(d, JSONDatabase)]
    return source


def _existing(path: str | os.PathLike[str]) -> JSONDatabase:
    """The log at a path. Raises InputError, with names that look like it, if there is none."""
    database = JSONDatabase(path)
    if database.path.exists():
        return database
    given, folder = Path(path), database.path.parent
    names = [p.name for p in sorted(folder.iterdir())] if folder.is_dir() else []
    if database.path == given.expanduser():
        import difflib  # for a message alone

        found, near = "no such file", difflib.get_close_matches(given.name, names, 3)
    else:
        found, near = f"a directory without {LOG_NAME}", [n for n in names if n.endswith(Path(LOG_NAME).suffix)][:3]
    hint = f"; did you mean {' or '.join(str(folder / n) for n in near)}?" if near else ""
    raise InputError(f"{path}: expected a tuning log, found {found}{hint}")


def _hashes(workload: Workload | str) -> frozenset[str]:
    return workload.hashes() if isinstance(workload, Workload) else frozenset((workload,))


def _digests(network: Networks) -> tuple[str, ...]:
    return (network,) if isinstance(network, str) else network


def _as_of(workload: Workload | str, record: Record) -> Record:
    """The record with ``workload`` in the place of what that was formerly."""
    if isinstance(workload, Workload) and any(record.workload.hash == f.hash for f in workload.former):
        return replace(record, workload=workload)
    return record


def _identity(line: Line) -> bytes:
    """Equal for the same line of two logs."""
    return hashlib.sha256(json.dumps(line_json(line), sort_keys=True).encode()).digest()
