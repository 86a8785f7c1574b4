"""Which lines of a log somebody wants to see: of a model, a CPU, a time, a version."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tilewright.autotune.records.record import Choice, Line, Record, Verdict
from tilewright.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Selection:
    """``model``: the name of a model's file, a pattern of it (``resnet*``), or the beginning of its digest; records
    without a session have none. ``cpu``: LLVM's name or a pattern of it. ``since``, ``until``: seconds since the epoch,
    the second left out. ``version``: of tilewright, or the beginning of a commit. None takes everything."""

    model: str | None = None
    cpu: str | None = None
    since: float | None = None
    until: float | None = None
    version: str | None = None

    def __bool__(self) -> bool:
        return self != Selection()

    def has(self, r: Record) -> bool:
        """True if the measurement is wanted."""
        return self._is_here_and_then(r) and self._is_of_model(r) and self._is_of_version(r)

    def of(self, lines: Sequence[Line]) -> list[Line]:
        """The measurements that are wanted, and the verdicts and choices of that CPU and time about their kernels and
        networks."""
        if not self:
            return list(lines)
        records = [x for x in lines if isinstance(x, Record) and self.has(x)]
        workloads = {r.workload.hash for r in records}
        judged = [x for x in lines if not isinstance(x, Record)]
        networks = {x.network for x in judged if x.workload in workloads}
        wanted = set(map(id, records))
        wanted |= {id(x) for x in judged if x.network in networks and self._is_here_and_then(x)}
        return [x for x in lines if id(x) in wanted]

    def _is_here_and_then(self, x: Record | Verdict | Choice) -> bool:
        if self.cpu is not None and not fnmatchcase(x.target.cpu, self.cpu):
            return False
        return (self.since is None or x.time >= self.since) and (self.until is None or x.time < self.until)

    def _is_of_model(self, r: Record) -> bool:
        if self.model is None:
            return True
        s = r.session
        if s is None:
            return False
        return fnmatchcase(s.model, self.model) or (bool(self.model) and s.digest.startswith(self.model))

    def _is_of_version(self, r: Record) -> bool:
        if self.version is None or r.versions.get("tilewright") == self.version:
            return True
        return r.session is not None and bool(self.version) and r.session.commit.startswith(self.version)


def parse_time(text: str) -> float:
    """``2026-11-24`` or ``2026-11-24T09:30`` (in UTC, unless it says otherwise) as seconds since the epoch. Raises
    InputError."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as e:
        raise InputError(f"expected a date like 2026-11-24 or 2026-11-24T09:30, got {text!r}") from e
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
