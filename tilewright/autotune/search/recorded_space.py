"""A log as a space: search over what was measured before, with the recorded results. For studies of strategies.

Nothing is measured: samples are drawn from the records, a neighbour is one of the records that differ in the fewest
decisions. Any strategy runs on it, as often and with as many seeds as wanted, and always gives the same. Where the log
says which records were drawn at random, samples are drawn among these only, as they are from the space itself: what a
search had to look for does not come up by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tilewright.autotune.base.measure_result import MeasureResult
from tilewright.autotune.base.space import Candidate, Decision
from tilewright.autotune.records.record import Record, result_of
from tilewright.core.errors import InputError, ParseError, ScheduleError
from tilewright.schedule.decisions import Choice
from tilewright.tensor_ir.ir import Func

_NEAREST = 8


class RecordedSpace:
    """The candidates of one workload in a log; ``results`` by key. The first record (by time) is the default.

    Raises InputError if the records are of several workloads, or none replays.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        workloads = {r.workload.hash for r in records}
        if len(workloads) != 1:
            raise InputError(f"recorded space: expected records of one workload, got {len(workloads)}")
        ordered = sorted(records, key=lambda r: (r.time, r.candidate))
        self._func = ordered[0].scheduled_function()
        self.results: dict[str, MeasureResult] = {}
        self._candidates: dict[str, Candidate] = {}
        values = {r.candidate: r.choices() for r in ordered}
        options = _options(values.values())
        for r in ordered:
            self.results[r.candidate] = result_of(r)
            if r.candidate not in self._candidates:
                try:
                    scheduled = r.trace.apply(self._func)
                except (ParseError, ScheduleError):
                    continue
                decisions = tuple(Decision(k, options[k], v) for k, v in values[r.candidate].items())
                self._candidates[r.candidate] = Candidate(decisions, r.trace, scheduled)
        self._all = list(self._candidates.values())
        if not self._all:
            raise InputError("recorded space: expected records that replay with this version, got none")
        drawn = {r.candidate for r in ordered if r.tuner == "random"}
        self._drawn = [c for c in self._all if c.key in drawn] or self._all
        self._codes = _encode(self._all, options)
        self._place = {c.key: n for n, c in enumerate(self._all)}

    @property
    def func(self) -> Func:
        return self._func

    def default(self) -> Candidate:
        """The candidate of the first record."""
        return self._all[0]

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        """Any of the candidates that were drawn at random; any recorded one if the log does not know."""
        return self._drawn[int(rng.integers(len(self._drawn)))]

    def neighbour(self, candidate: Candidate, rng: np.random.Generator) -> Candidate | None:
        """One of the few candidates with the fewest different decisions; None if there is only one."""
        at = self._place[candidate.key]
        apart = (self._codes != self._codes[at]).sum(axis=1) + 0.5 * rng.random(len(self._all))
        apart[at] = np.inf
        count = min(_NEAREST, len(self._all) - 1)
        if count == 0:
            return None
        nearest = np.argsort(apart, kind="stable")[:count]
        return self._all[int(nearest[int(rng.integers(count))])]

    def with_decisions(self, values: Mapping[str, Choice]) -> Candidate | None:
        """The recorded candidate with these decisions; None if there is none."""
        found = (c for c in self._all if all(values.get(k, v) == v for k, v in c.values().items()))
        return next(found, None)

    def enumerate(self, limit: int) -> Iterator[Candidate]:
        """The candidates in the order of the log."""
        return itertools.islice(iter(self._all), limit)

    def size(self) -> int:
        """How many candidates there are."""
        return len(self._all)

    def measure(self, candidate: Candidate) -> MeasureResult:
        """The recorded result: what a :class:`~tilewright.autotune.measure.measurer.TableMeasurer` is made of."""
        return self.results[candidate.key]


def _options(values: Iterable[Mapping[str, Choice]]) -> dict[str, tuple[Choice, ...]]:
    found: dict[str, set[Choice]] = {}
    for choices in values:
        for k, v in choices.items():
            found.setdefault(k, set()).add(v)
    return {k: tuple(sorted(v, key=str)) for k, v in found.items()}


def _encode(candidates: Sequence[Candidate], options: Mapping[str, tuple[Choice, ...]]) -> np.ndarray:
    """Decisions as integers, one column a label; -1 where a label did not come up."""
    labels = list(options)
    codes = np.full((len(candidates), len(labels)), -1, np.int32)
    for row, c in enumerate(candidates):
        for k, v in c.values().items():
            codes[row, labels.index(k)] = options[k].index(v)
    return codes
