"""Two logs, kernel by kernel: is the best of the new one faster, slower, or is there no difference?

A kernel is a workload on a machine. Its time is that of its best record; what it is compared on are the raw samples of
that record. A difference counts if it is larger than a threshold and chance is an unlikely explanation
(:mod:`~tilewright.autotune.review.rank_test`, corrected for the number of kernels).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.autotune.records.index import usable
from tilewright.autotune.records.record import Line, Machine, Record, machine_of, sort_key
from tilewright.autotune.review.rank_test import holm, rank_test, smallest_p


class Change(StrEnum):
    """What became of a kernel. ``too_few``: no test could tell, with so few samples."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    TOO_FEW = "too few samples"
    NEW = "only in the new"
    GONE = "only in the old"


@dataclass(frozen=True, slots=True)
class KernelChange:
    """``old``, ``new``: the best records; None if there is none. ``p``: the corrected probability that chance explains
    the difference; None if there is nothing to test."""

    old: Record | None
    new: Record | None
    change: Change
    p: float | None = None

    @property
    def ratio(self) -> float | None:
        """The new time divided by the old one."""
        if self.old is None or self.new is None:
            return None
        return (self.new.seconds or 0.0) / (self.old.seconds or 1.0)

    @property
    def record(self) -> Record:
        """The one that there is, the new one of both."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def same_schedule(self) -> bool:
        """True if both records are of one candidate."""
        return self.old is not None and self.new is not None and self.old.candidate == self.new.candidate

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        r = self.record
        return {
            "workload": r.workload.hash, "task": r.task, "cpu": r.target.cpu, "threads": r.target.threads,
            "old_seconds": None if self.old is None else self.old.seconds,
            "new_seconds": None if self.new is None else self.new.seconds,
            "ratio": self.ratio, "p": self.p, "change": str(self.change),
            "same_schedule": self.same_schedule,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """``kernels``: the largest slowdown first. ``alpha``, ``threshold``: of what counts."""

    kernels: tuple[KernelChange, ...]
    alpha: float
    threshold: float

    def of(self, change: Change) -> tuple[KernelChange, ...]:
        """The kernels of which this became."""
        return tuple(k for k in self.kernels if k.change is change)

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of kernels that are in both; None if none are."""
        ratios = [k.ratio for k in self.kernels if k.ratio]
        return statistics.geometric_mean(ratios) if ratios else None


def compare(old: Iterable[Line], new: Iterable[Line], alpha: float = 0.05, threshold: float = 0.02) -> Comparison:
    """What became of each kernel. ``alpha``: how probable a difference may be by chance, in any of the kernels;
    ``threshold``: smaller ones, relative, do not count."""
    before, after = best_records(old), best_records(new)
    both = before.keys() & after.keys()
    p = {k: rank_test(before[k].samples, after[k].samples) for k in sorted(both)}
    corrected = holm(p)
    found = []
    for k in before.keys() | after.keys():
        one, other = before.get(k), after.get(k)
        change = _change(one, other, corrected.get(k), len(both), alpha, threshold)
        found.append(KernelChange(one, other, change, corrected.get(k)))
    return Comparison(tuple(sorted(found, key=_order)), alpha, threshold)


def best_records(lines: Iterable[Line]) -> Mapping[tuple[str, Machine], Record]:
    """The best usable record of each workload and machine."""
    out: dict[tuple[str, Machine], Record] = {}
    for r in sorted(usable(x for x in lines if isinstance(x, Record)), key=sort_key):
        out.setdefault((r.workload.hash, machine_of(r.target)), r)
    return out


def _change(
    old: Record | None, new: Record | None, p: float | None, tests: int, alpha: float, threshold: float
) -> Change:
    if old is None or new is None or p is None:
        return Change.NEW if old is None else Change.GONE
    ratio = (new.seconds or 0.0) / (old.seconds or 1.0)
    if abs(math.log(ratio)) <= math.log1p(threshold):
        return Change.SAME
    if p < alpha and _further(old.samples, new.samples) == (ratio > 1.0):
        return Change.SLOWER if ratio > 1.0 else Change.FASTER
    least = smallest_p(len(old.samples), len(new.samples)) * tests
    return Change.TOO_FEW if least >= alpha else Change.SAME


def _further(old: Sequence[float], new: Sequence[float]) -> bool:
    """True if the new samples as a whole are the larger ones: the time of a record is that of its fastest visit."""
    return statistics.median(new) > statistics.median(old)


def _order(k: KernelChange) -> tuple[float, str, str]:
    return (-(k.ratio or 0.0), k.record.task, k.record.workload.hash)
