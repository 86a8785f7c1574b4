"""The examples run: tuning a computation of one's own, a strategy of one's own, cost models on a log."""

import importlib.util
import math

import numpy as np
import pytest

from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import make_record
from tilewright.tests.autotune.search.synthetic import TARGET
from tilewright.tests.schedule.kernels import conv, packed_matmul
from tilewright.tests.sources import ROOT

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not part of an installed package")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up_seconds(c):
    return 1e-3 * math.exp(sum(len(str(v)) * 0.1 + (sum(map(ord, str(v))) % 5) * 0.2 for v in c.values().values()))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "tuning.jsonl"
    database = JSONDatabase(path)
    for func in (conv(9, 9, 8, 16, 3, 1, 1), packed_matmul(32, 32, 16)):
        task = Task(canonical(func), TARGET, name=func.name)
        space = Space(task.func, TARGET)
        rng = np.random.default_rng(0)
        found = {c.key: c for c in [space.default(), *(space.sample(rng) for _ in range(24))] if c is not None}
        for n, c in enumerate(found.values()):
            s = made_up_seconds(c)
            database.append(make_record(task, c, Ok(s, (s,), 0.0, 0.1), "made up", 0, float(n)))
    return path


def test_own_search_strategy(log, capsys):
    means = load("own_search_strategy").main(str(log), trials=8, seeds=2)
    assert "hill climbing" in means
    assert all(0.0 < x <= 1.0 for x in means.values())
    assert "2 tasks, 8 trials" in capsys.readouterr().out


def test_compare_cost_models(log, capsys):
    table = load("compare_cost_models").main(str(log))
    assert {"trees, ranking", "linear", "chance"} <= set(table)
    assert table["trees, ranking"][0] is not None
    assert "49 candidates" in capsys.readouterr().out or len(table) == 5


def test_tune_own_computation(tmp_path, capsys):
    result = load("tune_own_computation").main(trials=4, log=str(tmp_path / "log.jsonl"), size=64)
    assert len(result.trials) == 4
    assert result.best is not None
    assert result.failures == {}
    assert "sample_categorical" in capsys.readouterr().out
