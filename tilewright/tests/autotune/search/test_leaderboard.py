"""The leaderboard of search strategies and cost models: its tasks, an entry, entries side by side."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest

from tilewright.autotune.base.space import Space
from tilewright.autotune.measure.measurer import Measurable, TableMeasurer
from tilewright.core.errors import InputError
from tilewright.tests.docs.pages import blocks
from tilewright.tests.sources import ROOT

BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="benchmarks are not part of an installed package")
FEW = ("--tasks", "dense of one row", "softmax", "--trials", "6", "--seeds", "2")
OWN = """
import numpy as np

class Shortest:
    def __init__(self, space, rng):
        self.space, self.rng = space, rng
    def propose(self, n):
        drawn = [self.space.sample(self.rng) for _ in range(4 * n)]
        return sorted((c for c in drawn if c is not None), key=lambda c: len(c.trace.steps))[:n]
    def observe(self, results):
        pass

def make(space, score, rng, params):
    return Shortest(space, rng)

class Columns:
    def fit(self, features, seconds, groups):
        assert len(features) == len(seconds) == len(groups)
    def predict(self, features):
        return np.asarray(features, np.float64).sum(axis=1)

class Half:
    def predict(self, features):
        return features
"""


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("leaderboard")


def by_key(c: Measurable) -> float:
    return 1.0 + int(c.key[:6], 16) / 0xFFFFFF


def entry(board: ModuleType, path: Path, *options: str) -> Any:
    assert board.main(["-o", str(path), *options, *FEW], measurer=TableMeasurer(by_key)) == 0
    return board.read_entry(str(path))


# -- the tasks -------------------------------------------------------------------------------------------------------
def test_every_task_is_a_kernel_with_a_space(board: ModuleType) -> None:
    tasks = board.read_tasks()
    assert len(tasks.tasks) >= 16
    found = {name: tasks.task(name, 1) for name in tasks.tasks}
    assert len({t.workload for t in found.values()}) == len(found)
    for name, t in found.items():
        assert t.name == name
        assert Space(t.func, t.target).size() > 100, name
    assert {n["op"] for t in tasks.tasks.values() for n in t["nodes"]} >= {
        "Conv", "MatMul", "MatMulInteger", "ConvInteger", "Softmax", "LayerNormalization",
    }  # fmt: skip
    assert found["dense"].streamed, "weights are as cold as in a network"


def test_models_are_what_they_say(board: ModuleType) -> None:
    """They are checked by onnx, shapes and types of results included; weights are the same each time."""
    tasks = board.read_tasks()
    for name in tasks.tasks:
        model = tasks.model(name)
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString() == tasks.model(name).SerializeToString()
    with pytest.raises(InputError, match=r"expected names of tasks, got 'sofmax'; did you mean 'softmax'\?"):
        tasks.model("sofmax")


# -- an entry --------------------------------------------------------------------------------------------------------
def test_an_entry_repeats_and_goes_on(board: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = entry(board, tmp_path / "a.json", "--strategy", "random", "--cost-model", "none")
    assert [(r.task, r.seed) for r in first.runs] == [(t, s) for t in ("dense of one row", "softmax") for s in (0, 1)]
    assert all(len(r.curve) == 6 and r.curve == sorted(r.curve, reverse=True) for r in first.runs)
    assert "random + none" in capsys.readouterr().out
    again = entry(board, tmp_path / "b.json", "--strategy", "random", "--cost-model", "none")
    assert [(r.curve, r.best_seconds) for r in again.runs] == [(r.curve, r.best_seconds) for r in first.runs]
    dataclasses.replace(again, runs=again.runs[:1]).write(str(tmp_path / "b.json"))
    capsys.readouterr()
    whole = entry(board, tmp_path / "b.json", "--strategy", "random", "--cost-model", "none")
    assert capsys.readouterr().out.count(", seed ") == 3, "one run was there"
    assert [r.curve for r in whole.runs] == [r.curve for r in first.runs]
    options = ["-o", str(tmp_path / "b.json"), "--strategy", "grid", *FEW]
    assert board.main(options, measurer=TableMeasurer(by_key)) == 2
    assert "expected no file or an entry of this, found one of" in capsys.readouterr().err


def test_a_strategy_and_a_cost_model_of_ones_own(
    board: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    found = entry(board, tmp_path / "a.json", "--strategy", f"{own}:make", "--cost-model", f"{own}:Columns")
    assert (found.strategy, found.cost_model) == (f"{own}:make", f"{own}:Columns")
    assert len(found.runs) == 4
    for option, value, message in (
        ("--strategy", "anealing", "--strategy: expected one of"),
        ("--strategy", f"{own}:nothing", "expected a class or function 'nothing' in"),
        ("--strategy", "nowhere.py:make", "expected FILE.py:NAME, found no file 'nowhere.py'"),
        ("--cost-model", "forest", "--cost-model: expected one of xgboost, roofline, none, got 'forest'"),
        ("--cost-model", f"{own}:Half", "expected an object with fit and predict"),
    ):
        capsys.readouterr()
        assert board.main(["-o", str(tmp_path / "b.json"), option, value, *FEW], measurer=TableMeasurer(by_key)) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "other.json").write_text("{}")
    assert board.main(["-o", str(tmp_path / "other.json"), *FEW], measurer=TableMeasurer(by_key)) == 2
    assert (tmp_path / "other.json").read_text() == "{}"


def test_what_the_page_shows(board: ModuleType, tmp_path: Path) -> None:
    (code,) = blocks("docs/leaderboard.md", "python")
    own = tmp_path / "walk.py"
    own.write_text(code)
    found = entry(board, tmp_path / "a.json", "--strategy", f"{own}:make", "--cost-model", f"{own}:Steps")
    assert all(r.best_seconds is not None and len(r.curve) == 6 for r in found.runs)


# -- entries side by side ----------------------------------------------------------------------------------------------
def runs(board: ModuleType, name: str, best: float | None, curve: list[float | None], default: float = 4.0) -> Any:
    made = board.Entry(name, "random", "none", len(curve), "znver4", 1, "digest", "0.1")
    made.runs = [board.Run("t", 0, "w", default, best, curve, {}, 1.0)]
    return made


def test_scores(board: ModuleType) -> None:
    fast, slow = runs(board, "fast", 1.0, [4.0, 1.0]), runs(board, "slow", 2.0, [4.0, 4.0])
    assert board.scores([fast, slow])["t"] == [board.Score(1.0, 0.625), board.Score(0.5, 0.25)]
    lucky = runs(board, "lucky", 1.0, [4.0, 0.5])  # not confirmed at the end
    assert board.scores([lucky])["t"] == [board.Score(1.0, 0.625)]
    assert board.scores([fast, runs(board, "none", None, [None, None])])["t"][1] == board.Score(0.0, 0.0)
    busy = runs(board, "busy", 3.0, [12.0, 3.0], 12.0)  # all of it took three times as long
    assert board.scores([fast, busy])["t"] == [board.Score(1.0, 0.625)] * 2
    slow.runs.append(dataclasses.replace(slow.runs[0], seed=1, best_seconds=8.0))
    assert board.scores([fast, slow])["t"][1].speed == pytest.approx(0.25), "of 1/2 and 1/8"


def test_the_table(board: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / f"{n}.json") for n in "ab"]
    for path, e in zip(paths, (runs(board, "A", 1.0, [4.0, 1.0]), runs(board, "B", 2.0, [4.0, 4.0], 5.0)), strict=True):
        e.write(path)
    assert board.main(["--compare", *paths]) == 0
    out = capsys.readouterr().out
    assert out.startswith("znver4, 1 thread(s), 2 trials; seeds: A 1, B 1\n")
    rows = [re.split("  +", line) for line in out.splitlines()]
    assert ["task", "A", "B"] in rows
    assert ["t", "1.000 (0.625)", "0.625 (0.312)"] in rows, "a quarter of the default's time, and 2 of 5"
    assert ["geometric mean (mean area)", "1.000 (0.625)", "0.625 (0.312)"] in rows
    assert "t: the default schedule took 1.25 times as long in one run as in another" in out


@pytest.mark.parametrize(("key", "value"), [("cpu", "znver5"), ("threads", 2), ("digest", "other"), ("trials", 9)])
def test_what_does_not_compare(
    board: ModuleType, key: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = runs(board, "A", 1.0, [4.0, 1.0])
    with pytest.raises(InputError, match=f"--compare: expected entries of one {key}, got "):
        board.scores([a, dataclasses.replace(a, **{key: value})])
    other = dataclasses.replace(a, runs=[dataclasses.replace(a.runs[0], task="u")])
    with pytest.raises(InputError, match="expected entries with runs of the same tasks"):
        board.scores([a, other])
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"format": "another"}))
    assert board.main(["--compare", str(path)]) == 2
    assert "expected an entry of the leaderboard" in capsys.readouterr().err


def test_the_list(board: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert board.main(["--list"]) == 0
    assert "MobileNetV2, at 56x56" in capsys.readouterr().out
