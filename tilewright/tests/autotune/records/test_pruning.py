"""A prune keeps the default's record, so that what was gained can still be said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tilewright
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.pruning import recorded_default
from tilewright.autotune.records.record import Record
from tilewright.inspect.report.page import report
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record, with_threads, wrong


def _records(count: int = 5) -> list[Record]:
    """The default first, and each faster than the one before."""
    found = candidates(dense(), HERE, count)
    return [record(dense(), c, 1e-3 * (count - i), time=10.0 + i) for i, c in enumerate(found)]


def _with(r: Record, **extra: object) -> Record:
    return dataclasses.replace(r, extra=extra)


def test_the_first_measured_stays() -> None:
    records = _records()
    database = MemoryDatabase(records)
    assert database.prune() == 3
    assert database.records() == [records[0], records[-1]]
    assert database.prune() == 0


def test_the_default_may_be_the_best() -> None:
    records = [dataclasses.replace(r, seconds=1.0 + r.time) for r in _records()]
    database = MemoryDatabase(records)
    database.prune()
    assert database.records() == [records[0]]


def test_its_latest_record_and_its_first_stay() -> None:
    """The latest counts; the first shows that it came before all others."""
    a, b, c = _records(3)
    again = dataclasses.replace(a, seconds=0.5, time=99.0)
    more = dataclasses.replace(a, seconds=0.6, time=50.0)
    database = MemoryDatabase([a, b, c, more, again])
    assert database.prune() == 2
    assert database.records() == [a, c, again]


def test_a_mark_counts_more_than_the_order() -> None:
    records = _records(4)
    marked = [*records[:2], _with(records[2], default=True, batch=3), records[3]]
    database = MemoryDatabase(marked)
    database.prune()
    assert database.records() == marked[2:]
    assert recorded_default(marked) == records[2].candidate


def test_each_machine_has_its_own() -> None:
    records = _records(3)
    database = MemoryDatabase([*records, *(with_threads(r, 8) for r in records)])
    assert database.prune() == 2
    assert [r.target.threads for r in database.records()] == [2, 2, 8, 8]


def test_a_default_that_failed_stays() -> None:
    bad = dataclasses.replace(wrong(dense(), candidates(dense(), HERE, 1)[0], time=0.0), failure="crash")
    database = MemoryDatabase([bad, *_records()[1:]])
    database.prune()
    assert database.records()[0] == bad


def test_a_log_may_have_none() -> None:
    """What was proposed in a later batch is not what was measured first."""
    assert recorded_default([_with(r, batch=8) for r in _records()]) is None
    assert recorded_default([]) is None


def test_the_tuner_marks_it(tmp_path: Path) -> None:
    measurer = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16) / (1 << 24))
    path = tmp_path / "log"
    tilewright.tune(
        mlp_model(), database=path, measurer=measurer, time_budget_s=None, max_trials=18, check_network=False
    )
    records = JSONDatabase(path).records()
    for r in records:
        assert r.is_default == (r.candidate == Space(r.scheduled_function(), r.target).default().key)
    assert {r.workload.hash for r in records if r.is_default} == {r.workload.hash for r in records}


@pytest.mark.parametrize("is_today", [True, False])
def test_the_report_of_a_pruned_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_today: bool) -> None:
    """Also if the rules make another default by now."""
    if not is_today:
        monkeypatch.setattr("tilewright.inspect.report.page.default_candidate", lambda record: None)
    database = JSONDatabase(tmp_path / "log")
    for r in _records():
        database.append(r)
    assert "5.00 times as fast as by default" in report(database.path)
    assert database.prune() == 3
    assert "5.00 times as fast as by default" in report(database.path)


def test_the_report_of_a_log_without_the_default(tmp_path: Path) -> None:
    """As earlier versions pruned them."""
    database = JSONDatabase(tmp_path / "log")
    database.append(_with(_records()[-1], batch=8))
    page = report(database.path)
    assert "takes 1.00 ms; the log has no time of its default" in page.replace("\u2009", " ").replace("\u202f", " ")
    assert "nothing is faster than its default" not in page
    assert canonical(dense()) == database.records()[0].scheduled_function()
