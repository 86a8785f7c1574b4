"""A tuning log of any length as short rows: what charts and tables need of each line, and where the line is.

The traces and texts of a log are most of it. They stay in the file: a row keeps the place of its line, and the few
records that the page shows in full are read again.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.reading import LineReader
from tilewright.autotune.records.record import Choice, Machine, Record, RecordWarning, Verdict, machine_of
from tilewright.core.errors import InputError, ParseError

_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement. ``seconds`` None: it failed. ``predicted``: the cost model's score before it was measured.
    ``batch``: trials of its task before the batch that it was proposed in. ``place``: of its line in the file.
    ``is_default``: the log says that it is of the default schedule."""

    workload: str
    machine: Machine
    candidate: str
    seconds: float | None
    failure: str | None
    time: float
    own_seconds: float
    predicted: float | None
    batch: int | None
    weight: float | None
    task: str
    place: int
    is_default: bool = False

    @property
    def is_of_first_batch(self) -> bool:
        """True unless others of its task were measured in an earlier batch."""
        return not self.batch


@dataclass(frozen=True, slots=True)
class Log:
    """The rows of a log, in the order of the file. ``skipped``: lines that were not understood. ``reader``: has the
    definitions that lines name."""

    path: Path
    rows: tuple[Row, ...]
    verdicts: tuple[Verdict, ...]
    choices: tuple[Choice, ...]
    versions: dict[str, str]
    tuners: tuple[str, ...]
    skipped: int
    reader: LineReader

    def record(self, row: Row) -> Record:
        """All of a measurement. Raises InputError if the log was rewritten meanwhile."""
        with self.path.open("rb") as f:
            f.seek(row.place)
            try:
                line = self.reader.read(f.readline().decode(errors="replace"))
            except ParseError:
                line = None
        if not isinstance(line, Record) or line.candidate != row.candidate:
            raise InputError(f"{self.path}: expected the log to stay as it is while it is read, found it rewritten")
        return line


def read_log(path: str | Path) -> Log:
    """The log at ``path`` (or ``tuning.jsonl`` in that directory). Raises InputError if it has no measurement."""
    found = open_database(path).path
    reader = LineReader()
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    choices: list[Choice] = []
    versions: dict[str, str] = {}
    tuners: dict[str, None] = {}
    skipped = 0
    latest = -1.0

    for _, raw in _lines(found):
        with contextlib.suppress(ParseError):  # counted below
            reader.define(raw)
    for place, raw in _lines(found):
        try:
            if reader.define(raw):
                continue
            line = reader.read(raw.decode(errors="replace"))
        except ParseError:
            line = None
        if isinstance(line, Verdict):
            verdicts.append(line)
        elif isinstance(line, Choice):
            choices.append(line)
        elif isinstance(line, Record):
            rows.append(_row(line, place))
            tuners[line.tuner] = None
            if line.time >= latest:
                latest, versions = line.time, dict(line.versions)
        else:
            skipped += 1
    if not rows:
        raise InputError(f"{path}: expected a log with measurements, found none")
    if skipped:
        warnings.warn(f"{found}: {skipped} lines were not understood; skipped", RecordWarning, stacklevel=2)
    used = tuple(t for t in tuners if t)
    return Log(found, tuple(rows), tuple(verdicts), tuple(choices), versions, used, skipped, reader)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    place = 0
    with path.open("rb") as f:
        for raw in f:
            if raw.strip():
                yield place, raw
            place += len(raw)


def _row(r: Record, place: int) -> Row:
    extra = r.extra
    batch = extra.get("batch")
    return Row(
        r.workload.hash, machine_of(r.target), r.candidate, r.seconds, r.failure, r.time,
        (r.compile_seconds or 0.0) + sum(r.samples), _number(extra.get("predicted")),
        batch if isinstance(batch, int) else None, _number(extra.get("weight")), r.task, place, r.is_default,
    )  # fmt: skip


def _number(x: object) -> float | None:
    """A field of the tuner's, if it is a number that can be calculated with."""
    return float(x) if type(x) in (int, float) and abs(x) <= _LARGEST else None  # type: ignore[arg-type]
