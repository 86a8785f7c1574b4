"""A log as a space: what was recorded, with its results; every strategy runs on it; the ablation's table repeats."""

import importlib
from dataclasses import replace

import numpy as np
import pytest

from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.search.recorded_space import RecordedSpace
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, wrong
from tilewright.tests.sources import ROOT

ABLATION = ROOT / "benchmarks" / "search_ablation.py"


def recorded(count=12, seed=0):
    found = candidates(dense(), HERE, count, seed)
    return [record(dense(), c, 1e-3 * (1 + (n * 7) % 12), time=float(n)) for n, c in enumerate(found)]


def test_it_holds_what_was_recorded():
    records = recorded()
    space = RecordedSpace(records)
    assert space.size() == len(records)
    assert space.default().key == records[0].candidate
    assert [c.key for c in space.enumerate(100)] == [r.candidate for r in records]
    c = space.default()
    assert space.measure(c) == Ok(1e-3, (1e-3,), 1e-7, 0.1)
    assert space.with_decisions(c.values()).key == c.key
    rng = np.random.default_rng(0)
    assert space.sample(rng).key in space.results
    assert space.neighbour(c, rng).key != c.key


def test_samples_are_what_was_drawn_at_random():
    records = [replace(r, tuner="random" if n % 3 else "annealing") for n, r in enumerate(recorded())]
    space = RecordedSpace(records)
    rng = np.random.default_rng(0)
    drawn = {space.sample(rng).key for _ in range(400)}
    assert drawn == {r.candidate for r in records if r.tuner == "random"}
    reached = {space.neighbour(c, rng).key for c in space.enumerate(99) for _ in range(40)}
    assert reached == {r.candidate for r in records}


def test_neighbours_differ_in_few_decisions():
    space = RecordedSpace(recorded(24))
    rng = np.random.default_rng(0)
    everyone = list(space.enumerate(99))
    start = everyone[3]

    def apart(c):
        return sum(start.values().get(k) != v for k, v in c.values().items())

    near = np.mean([apart(space.neighbour(start, rng)) for _ in range(30)])
    assert near <= np.mean([apart(c) for c in everyone if c.key != start.key])


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_exhaust_it(name):
    space = RecordedSpace(recorded())
    strategy = STRATEGIES[name](space, lambda cs: np.zeros(len(cs)), np.random.default_rng(0), {})
    seen = []
    while batch := strategy.propose(4):
        seen += [c.key for c in batch]
        strategy.observe([(c, space.measure(c)) for c in batch])
    assert sorted(seen) == sorted(space.results)


def test_wrong_records_are_refused():
    (c,) = candidates(dense(48), HERE, 1)
    with pytest.raises(InputError, match="records of one workload, got 2"):
        RecordedSpace([*recorded(), wrong(dense(48), c)])
    with pytest.raises(InputError, match="records of one workload, got 0"):
        RecordedSpace([])


@pytest.mark.skipif(not ABLATION.is_file(), reason="benchmarks are not part of an installed package")
def test_the_ablation_repeats(tmp_path, capsys, monkeypatch):
    database = JSONDatabase(tmp_path / "log.jsonl")
    for r in recorded(20):
        database.append(r)
    monkeypatch.syspath_prepend(str(ABLATION.parent))
    module = importlib.import_module("search_ablation")
    options = ["compare", "--log", str(database.path), "--seeds", "2", "--trials", "16", "--out"]
    texts = []
    for _ in range(2):
        assert module.main([*options, str(tmp_path / "table")]) == 0
        texts.append((tmp_path / "table.md").read_text())
    assert texts[0] == texts[1]
    assert "| dense |" in texts[0]
    assert set(module.TASKS) <= set(module.read_tasks().tasks)
