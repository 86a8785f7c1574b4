"""A whole run over a space with every fault in it: each is recorded as its kind, none wins, none stops the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.measure.measurer import LocalMeasurer
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.search.tuner import Budget, tune_task
from tilewright.schedule.decisions import Choice
from tilewright.tensor_ir.ir import Func
from tilewright.tests.autotune.measure.measuring import FAULTS, QUICK, faulty, split, task

KINDS = {
    "wrong": "wrong_result",
    "hang": "run_timeout",
    "segfault": "crash",
    "greedy": "memory",
    "huge": "memory",
    "endless": "compile_timeout",
}


class FixedSpace:
    """Some candidates of one function, the first of them the default."""

    def __init__(self, candidates: list[Candidate], func: Func) -> None:
        self.func = func
        self._all = candidates

    def default(self) -> Candidate:
        return self._all[0]

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        return self._all[int(rng.integers(len(self._all)))]

    def neighbour(self, candidate: Candidate, rng: np.random.Generator) -> Candidate | None:
        return self.sample(rng)

    def with_decisions(self, values: Mapping[str, Choice]) -> Candidate | None:
        return None

    def enumerate(self, limit: int) -> Iterator[Candidate]:
        yield from self._all[:limit]

    def size(self) -> int:
        return len(self._all)


def test_each_is_its_kind_and_none_wins_and_none_stops_the_run(tmp_path: Path) -> None:
    t = task()
    bad = {faulty(t, fault).key: kind for fault, kind in KINDS.items()}
    good = [split(t, n) for n in (2, 3, 4)]
    space = FixedSpace([good[0], *(faulty(t, f) for f in KINDS), *good[1:]], t.func)
    log = tmp_path / "log.jsonl"
    config = replace(QUICK, timeout_s=4.0, build_timeout_s=8.0)
    with LocalMeasurer(config, modules=[FAULTS]) as measurer:
        result = tune_task(
            t, space, measurer, strategy="grid", database=JSONDatabase(log), training_set=TrainingSet(HeuristicModel()),
            budget=Budget(max_trials=64),
        )  # fmt: skip
    assert result.stopped == "the space is exhausted"
    assert result.best is not None
    assert result.best.candidate.key in {c.key for c in good}
    records = JSONDatabase(log).records()
    failed = {r.candidate: r.failure for r in records if r.failure is not None}
    assert failed == bad
    assert {r.candidate for r in records if r.seconds is not None} == {c.key for c in good}
    chosen = JSONDatabase(log).query(t.workload, t.target)
    assert chosen is not None
    assert chosen.candidate not in bad
    assert sum(result.failures.values()) == len(KINDS)
