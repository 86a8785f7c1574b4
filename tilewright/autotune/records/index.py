"""Tuning records by workload and structure, and what counts among several records of one candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from tilewright.autotune.base.workload import Workload, distance
from tilewright.autotune.records.record import Choice, Line, Record, Verdict, isa_class, machine_of, target_differences
from tilewright.machine.target import Target

Wanted: TypeAlias = Callable[[Workload], bool]
"""Which workloads a look-up is about."""


def no_workload(workload: Workload) -> bool:
    """For look-ups of verdicts and choices."""
    return False


def every_workload(workload: Workload) -> bool:
    """For all lines."""
    return True


class Index:
    """Lines in the order of their numbers, and records, verdicts and choices by workload."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self._by_workload: dict[str, list[Record]] = {}
        self._by_structure: dict[str, dict[str, None]] = {}
        self._verdicts: dict[str, list[Verdict]] = {}
        self._choices: dict[str, list[Choice]] = {}
        self.targets: dict[Target, None] = {}
        self._latest: Target | None = None

    def add(self, line: Line, number: int | None = None) -> None:
        """One more line. ``number``: where it stands among the others; None: after them."""
        self._lines[len(self._lines) if number is None else number] = line
        if isinstance(line, Verdict):
            self._verdicts.setdefault(line.workload, []).append(line)
        elif isinstance(line, Choice):
            self._choices.setdefault(line.workload, []).append(line)
        else:
            if line.workload.hash not in self._by_workload:
                self._by_workload[line.workload.hash] = []
                self._by_structure.setdefault(line.workload.structure, {})[line.workload.hash] = None
            self._by_workload[line.workload.hash].append(line)
            self.add_target(line.target)

    def add_target(self, target: Target) -> None:
        """There are measurements of this machine."""
        if target is not self._latest:
            self._latest = target
            self.targets[target] = None

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self) -> list[Line]:
        return [self._lines[n] for n in sorted(self._lines)]

    def of_workload(self, name: str) -> list[Record]:
        return list(self._by_workload.get(name, ()))

    def of_structure(self, name: str) -> list[Record]:
        return [r for w in self._by_structure.get(name, ()) for r in self._by_workload[w]]

    def matching(self, wanted: Wanted) -> list[Record]:
        return [r for found in self._by_workload.values() if wanted(found[0].workload) for r in found]

    def verdicts(self, name: str) -> list[Verdict]:
        return list(self._verdicts.get(name, ()))

    def choices(self, name: str) -> list[Choice]:
        return list(self._choices.get(name, ()))

    def select(self, wanted: Wanted) -> Iterator[Line]:
        """The records of some workloads, and all verdicts and choices."""
        return (x for x in self.lines() if not isinstance(x, Record) or wanted(x.workload))


def usable(records: Iterable[Record]) -> list[Record]:
    """One record, the latest, of each candidate of each workload and machine that ran and never gave a wrong result."""
    latest: dict[tuple[object, ...], Record] = {}
    wrong: set[tuple[object, ...]] = set()
    for r in records:
        name = (r.workload.hash, machine_of(r.target), r.candidate)
        if r.is_wrong:
            wrong.add(name)
        old = latest.get(name)
        if old is None or (old.time, _seconds(old)) < (r.time, _seconds(r)):
            latest[name] = r
    return [r for name, r in latest.items() if name not in wrong and r.seconds is not None]


def rank(record: Record, workload: Workload | str, target: Target) -> tuple[float, ...]:
    """How far a record is from what is asked for: 0 exact, 1 compatible, 2 any; then sizes, then the machine."""
    far = 0.0
    if isinstance(workload, Workload):
        far = distance(record.workload.text, workload.as_in(record.workload).text)
    same = record.workload.hash == (workload.hash if isinstance(workload, Workload) else workload)
    different = target_differences(record.target, target)
    foreign = isa_class(record.target) != isa_class(target)
    level = 0 if same and not different else 1 if same and not foreign else 2
    return (level, float(foreign), 0.0 if same else far, float(len(different)))


def _seconds(r: Record) -> float:
    return float("inf") if r.seconds is None else r.seconds
