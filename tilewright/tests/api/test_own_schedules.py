"""Schedule rules and cost models of a user, for a whole model: used, searched, looked up, refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import ScheduleRule, Target, TuneOptions
from tilewright.autotune.base.measure_result import MeasureResult
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.features import COLUMNS
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.network.tune_network import tune_model
from tilewright.core.errors import InputError, ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.tests.api.models import perceptron

FEED = {"x": np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)}


def _any(s: Schedule, block: str, target: Target) -> Sequence[str]:
    return s.loops(block)[-1:]


def _cut(s: Schedule, block: str, loop: str, target: Target) -> None:
    s.split(loop, (None, s.sample_categorical(f"{block}.cut", (2, 4, 8), 4)))


CUT = ScheduleRule("cut", _any, _cut, decisions=("cut",))


def traces(**options: Any) -> dict[str, str]:
    kernels = tilewright.compile(perceptron(), stop_after="codegen", progress=False, **options)
    return {name: k.trace.to_text() for name, k in kernels.items()}


def test_a_build_schedules_by_it() -> None:
    own, default = traces(schedule_rules=[CUT]), traces()
    assert own.keys() == default.keys()
    assert all(".cut" in t and "split" in t for t in own.values())
    assert not any(".cut" in t for t in default.values())
    model = tilewright.compile(perceptron(), schedule_rules=CUT, progress=False)
    want = tilewright.compile(perceptron(), progress=False).run(FEED)["y"]
    np.testing.assert_allclose(model.run(FEED)["y"], want, rtol=1e-5, atol=1e-6)
    scheduled = tilewright.compile(perceptron(), schedule_rules=[CUT], stop_after="schedule", progress=False)
    assert {name: str(f) for name, f in scheduled.items()} == {
        name: str(k.scheduled()) for name, k in tilewright.compile(
            perceptron(), schedule_rules=[CUT], stop_after="codegen", progress=False).items()
    }  # fmt: skip
    told = model.explain().partition("schedule rules of yours:\n")[2]
    assert all(f"  {name}: cut (" in told for name in own)
    assert "schedule rules of yours" not in tilewright.compile(perceptron(), progress=False).explain()


def test_a_rule_that_is_refused_leaves_the_nest_to_the_others() -> None:
    def refuse(s: Schedule, block: str, loop: str, target: Target) -> None:
        s.vectorize(loop)
        raise ScheduleError("never")

    assert traces(schedule_rules=[ScheduleRule("never", _any, refuse)]) == traces()


def _by_cut(candidate: Candidate) -> float:
    """The wider the better, so that a record differs from the default."""
    cuts = [v for k, v in candidate.values().items() if k.endswith(".cut")]
    return 1e-3 / max(1, *(int(v) for v in cuts), 1)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    options = TuneOptions(
        time_budget_s=None, max_trials=12, sizes={"batch": 4}, check_network=False, strategy="grid",
        schedule_rules=[CUT],
    )  # fmt: skip
    done = tune_model(perceptron(), tmp_path / "log.jsonl", measurer=TableMeasurer(_by_cut), options=options)
    assert all(any(k.endswith(".cut") for k in t.trials[0].candidate.values()) for t in done.result.tasks)
    assert any(t.speedup == 2.0 for t in done.result.tasks)
    return tmp_path / "log.jsonl"


def test_tuning_searches_its_decisions_and_a_build_finds_them(log: Path) -> None:
    kept = {"schedule_rules": [CUT], "database": log}
    model = tilewright.compile(perceptron(), progress=False, **kept)
    assert model.coverage().tuned == 1.0
    assert any("decision=8" in t for t in traces(**kept).values())
    # a record replays without the rule, which only says what the default is
    assert tilewright.compile(perceptron(), database=log, progress=False).coverage().tuned == 1.0


def test_the_default_is_that_of_the_rules(log: Path) -> None:
    lines = [r for r in tilewright.JSONDatabase(log).records() if r.is_default]
    assert lines
    assert all(".cut" in r.trace.to_text() for r in lines)
    reasons = {r.reason for r in tilewright.compile(
        perceptron(), database=log, schedule_rules=[CUT], progress=False).coverage().rows}  # fmt: skip
    assert not any("does not replay" in r for r in reasons)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "schedule_rules: expected a list of ScheduleRule values, got 3"),
        ("cut", "schedule_rules: expected a list of ScheduleRule values, got 'cut'"),
        ([_cut], "schedule_rules: expected a ScheduleRule, got function"),
        ([CUT, CUT], "schedule_rules: expected a name that no other rule has, got 'cut'"),
        ([ScheduleRule("register_tiles", _any, _cut)], "expected a name that no other rule has, got 'register_tiles'"),
        ([ScheduleRule("", _any, _cut)], "expected a name that no other rule has, got ''"),
        ([ScheduleRule("x", None, _cut)], "schedule_rules: x: matches: expected a function, got None"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_rule_is_named(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tilewright.compile(perceptron(), schedule_rules=given)


class Counting:
    """A cost model that remembers what it is asked."""

    def __init__(self) -> None:
        self.fitted: list[int] = []
        self.asked = 0

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        assert features.shape == (len(seconds), len(COLUMNS))
        assert len(groups) == len(seconds)
        self.fitted.append(len(seconds))

    def predict(self, features: np.ndarray) -> np.ndarray:
        self.asked += len(features)
        return np.arange(len(features), dtype=np.float64)


def _slow(candidate: Candidate) -> float | MeasureResult:
    return 1e-6 * len(candidate.trace.steps)


def test_a_cost_model_of_ones_own_is_shared_by_all_tasks() -> None:
    mine = Counting()
    options = TuneOptions(time_budget_s=None, max_trials=16, sizes={"batch": 4}, check_network=False, cost_model=mine)
    done = tune_model(perceptron(), measurer=TableMeasurer(_slow), options=options)
    assert len(done.result.tasks) > 1
    assert mine.fitted == sorted(mine.fitted)
    assert mine.fitted[-1] > 8
    assert mine.asked > done.result.trials


def test_a_cost_model_that_is_never_asked_is_told(caplog: pytest.LogCaptureFixture) -> None:
    mine = Counting()
    options = TuneOptions(time_budget_s=None, max_trials=2, sizes={"batch": 4}, check_network=False, cost_model=mine)
    with caplog.at_level(logging.WARNING, logger="tilewright"):
        tune_model(perceptron(), measurer=TableMeasurer(_slow), options=options)
    assert not mine.fitted
    assert "tune: the cost model was never fitted: 2 measurements, the first fit needs 8" in caplog.text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Counting, "cost_model: expected a cost model, got the class Counting; make one: Counting"),
        (lambda: 3, "cost_model: expected an object with fit and predict, got 3 without fit"),
        (lambda: "xgboost", "cost_model: expected an object with fit and predict, got 'xgboost' without fit"),
    ],
)
def test_what_is_no_cost_model_is_named(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tilewright.tune(perceptron(), cost_model=make())
