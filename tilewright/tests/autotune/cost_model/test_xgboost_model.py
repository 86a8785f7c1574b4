"""Cost models: they learn an order, repeat, transfer, survive a file, refuse foreign features, and fall back aloud."""

import json
import warnings

import numpy as np
import pytest

from tilewright.autotune.cost_model.cost_model import HeuristicModel, RandomModel, TableModel
from tilewright.autotune.cost_model.features import COLUMNS, CYCLES_COLUMN, SCHEMA_VERSION
from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.autotune.cost_model.xgboost_model import (
    CostModelWarning,
    FallbackModel,
    XGBoostConfig,
    XGBoostModel,
    default_model,
)
from tilewright.core.errors import InputError

SMALL = XGBoostConfig(rounds=40, prior=0.0)
"""The rows here are made up; the roofline says nothing about them."""


def data(n, seed=0, scale=1e-3):
    """Rows with few levels, and seconds that depend on some columns."""
    rng = np.random.default_rng(seed)
    rows = (rng.integers(0, 8, (n, len(COLUMNS))) / 8).astype(np.float32)
    return rows, scale * np.exp(2 * rows[:, 40] - rows[:, 9] + rows[:, 50] * rows[:, 51])


def correlation(model, rows, seconds):
    return rank_correlation(model.predict(rows), seconds)


@pytest.mark.parametrize("objective", ["rank:pairwise", "reg:squarederror"])
def test_it_learns_an_order_from_tasks_of_any_scale(objective):
    model = XGBoostModel(XGBoostConfig(objective=objective, prior=0.0))
    a, b = data(150), data(150, 1, scale=10.0)
    model.fit(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]), ["a"] * 150 + ["b"] * 150)
    assert correlation(model, *data(200, 2)) > 0.8
    assert "func.ops" in " ".join(model.importance())


def test_the_same_data_gives_the_same_model():
    rows, seconds = data(60)
    first, second = XGBoostModel(SMALL), XGBoostModel(SMALL)
    for m in (first, second):
        m.fit(rows, seconds, ["a"] * 60)
    np.testing.assert_array_equal(first.predict(rows), second.predict(rows))


def test_the_roofline_helps_where_it_is_right():
    rows, seconds = data(80)
    rows[:, CYCLES_COLUMN] = np.log2(seconds / seconds.min())
    few = slice(0, 6)
    found = []
    for prior in (0.0, 1.0):
        model = XGBoostModel(XGBoostConfig(rounds=20, prior=prior))
        model.fit(rows[few], seconds[few], ["a"] * 6)
        found.append(correlation(model, rows[6:], seconds[6:]))
    assert found[1] > max(0.8, found[0])


def test_failures_rank_last():
    rows, seconds = data(80)
    seconds = np.where(rows[:, 40] > 0.8, np.inf, seconds)
    model = XGBoostModel(SMALL)
    model.fit(rows, seconds, ["a"] * 80)
    scores = model.predict(rows)
    assert scores[np.isinf(seconds)].mean() < np.quantile(scores[np.isfinite(seconds)], 0.2)


def test_before_training_it_is_the_roofline():
    rows, _ = data(5)
    model = XGBoostModel()
    np.testing.assert_array_equal(model.predict(rows), HeuristicModel().predict(rows))
    model.fit(rows, np.full(5, np.inf), ["a"] * 5)
    assert not model.is_trained, "nothing can be told apart"


def test_pretraining_carries_over_and_stays():
    model = XGBoostModel(SMALL)
    old = data(150)
    model.pretrain(*old, ["old"] * 150)
    unseen = data(100, 5, scale=7.0)
    assert correlation(model, *unseen) > 0.7
    model.fit(unseen[0][:8], unseen[1][:8], ["new"] * 8)
    assert correlation(model, *unseen) > 0.7, "eight rows do not make it forget"


def test_a_file_keeps_the_model(tmp_path):
    rows, seconds = data(60)
    model = XGBoostModel(SMALL)
    model.fit(rows, seconds, ["a"] * 60)
    model.save(tmp_path / "model.json")
    again = XGBoostModel.load(tmp_path / "model.json")
    assert again.config == SMALL
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert default_model(pretrained=tmp_path / "model.json").primary.is_trained
    unseen = data(100, 5, scale=7.0)
    before = correlation(again, *unseen)
    again.fit(unseen[0][:10], unseen[1][:10], ["new"] * 10)
    assert correlation(again, *unseen) > before - 0.1, "a few rows of a new task do not make it forget"


def test_other_features_are_refused(tmp_path):
    rows, seconds = data(60)
    model = XGBoostModel(SMALL)
    with pytest.raises(InputError, match="expected a trained cost model"):
        model.save(tmp_path / "model.json")
    model.fit(rows, seconds, ["a"] * 60)
    model.save(tmp_path / "model.json")
    saved = json.loads((tmp_path / "model.json").read_text())
    saved["schema"]["version"] = SCHEMA_VERSION + 1
    (tmp_path / "other.json").write_text(json.dumps(saved))
    versions = rf"features of version {SCHEMA_VERSION} .*got one for version {SCHEMA_VERSION + 1}"
    with pytest.raises(InputError, match=versions):
        XGBoostModel.load(tmp_path / "other.json")
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(InputError, match="got another JSON file"):
        XGBoostModel.load(tmp_path / "no.json")
    with pytest.raises(InputError, match=r"expected features of shape \(n, \d+\), got \(2, 3\)"):
        model.predict(np.zeros((2, 3), np.float32))


class _Broken:
    """Fails to fit, or answers nonsense."""

    def __init__(self, scores=None):
        self.scores = scores

    def fit(self, features, seconds, groups):
        if self.scores is None:
            raise ImportError("no module named xgboost")

    def predict(self, features):
        return self.scores


def test_a_failing_model_falls_back_and_says_so_once():
    rows, seconds = data(10)
    model = FallbackModel(_Broken())
    with pytest.warns(CostModelWarning, match="_Broken failed .*fit: ImportError: no module.*HeuristicModel ranks"):
        model.fit(rows, seconds, ["a"] * 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(rows, seconds, ["a"] * 10)
        np.testing.assert_array_equal(model.predict(rows), HeuristicModel().predict(rows))
    assert "ImportError" in model.reason


@pytest.mark.parametrize("scores", [np.zeros(3), np.full(10, np.nan)])
def test_nonsense_is_a_failure_too(scores):
    rows, seconds = data(10)
    model = FallbackModel(_Broken(scores))
    model.fit(rows, seconds, ["a"] * 10)
    with pytest.warns(CostModelWarning, match="not finite"):
        found = model.predict(rows)
    np.testing.assert_array_equal(found, -rows[:, CYCLES_COLUMN].astype(np.float64))


def test_models_without_training():
    rows, seconds = data(10)
    table = TableModel.from_arrays(rows, seconds)
    assert rank_correlation(table.predict(rows), seconds) == pytest.approx(1.0)
    assert table.predict(data(2, 9)[0]).tolist() == [0.0, 0.0]
    chance = RandomModel(np.random.default_rng(3)), RandomModel(np.random.default_rng(3))
    np.testing.assert_array_equal(chance[0].predict(rows), chance[1].predict(rows))
    for model in (table, *chance):
        model.fit(rows, seconds, ["a"] * 10)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [3.0, 2.0, 1.0]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [1.0, 2.0, 3.0]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2, 2, 4], [4.0, 3.0, 3.0, 1.0]) == pytest.approx(1.0)
    assert rank_correlation([1, 1, 1], [1.0, 2.0, 3.0]) is None
    assert rank_correlation([1, 2, 3], [1.0, 2.0, np.inf]) is None
