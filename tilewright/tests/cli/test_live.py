"""The view of ``tune``: what it shows, that it fits, that it is redrawn in place, and what is printed elsewhere."""

from __future__ import annotations

import io
import itertools
import re
import sys
from pathlib import Path

import pytest
from rich.console import ConsoleDimensions

from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.search.scheduler import TaskScheduler
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.cli import main
from tilewright.commands.live import LiveView, PlainLines, view
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.autotune.search.synthetic import FUNC, TARGET, SyntheticSpace, synthetic_result
from tilewright.tests.screen import Screen, console_on


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def _tuners(count: int, on_trial: object = None, names: str = "task") -> list[TaskTuner]:
    training_set = TrainingSet(HeuristicModel())
    return [
        TaskTuner(
            Task(FUNC, TARGET, weight=1.0 / (n + 1), name=f"{names}{n}"), SyntheticSpace(),
            TableMeasurer(synthetic_result), training_set=training_set, seed=n,
            callbacks=() if on_trial is None else (on_trial,),
        )
        for n in range(count)
    ]  # fmt: skip


def _watched(screen: Screen, rows: int = 24, count: int = 4, trials: int = 40) -> LiveView:
    shown = LiveView(console_on(screen, rows), 60.0, itertools.count(0.0, 0.5).__next__)
    shown.on_stage("compiling", ())
    made = _tuners(count, shown.on_trial)
    shown.on_stage("searching", made)
    TaskScheduler(made, max_trials=trials, on_progress=shown.on_progress).run()
    return shown


def test_it_shows_every_task_and_how_far_things_are() -> None:
    screen = Screen(100)
    _watched(screen)
    head, doing, title, *rows = screen.seen
    assert "of 60 s" in head
    assert "40 trials" in head
    assert "% more expected" in head
    assert doing.startswith("searching: task")
    assert title.split() == ["weight", "default", "us", "best", "us", "gain", "trials", "failed", "task"]
    assert [r.split()[-1] for r in rows] == ["task0", "task1", "task2", "task3"]
    assert sum(r.startswith(">") for r in rows) == 1
    assert re.search(r"100\.0%\s+\d+\.\d\s+\d+\.\d\s+\d\.\d\dx", rows[0])


@pytest.mark.parametrize(("columns", "rows"), [(100, 12), (60, 10), (45, 7), (39, 24), (12, 2), (100, 3), (2, 1)])
def test_it_fits(columns: int, rows: int) -> None:
    screen = Screen(columns)
    _watched(screen, rows, count=12)
    assert len(screen.lines) <= rows
    if rows == 12:
        assert screen.seen[-1].split(maxsplit=1)[1] == "in 4 more tasks"
    if columns == 45:
        assert screen.seen[2].split() == ["weight", "gain", "trials", "failed", "task"]


def test_long_names_are_cut_and_not_wrapped() -> None:
    screen = Screen(80)
    shown = LiveView(console_on(screen), None)
    shown.on_stage("searching", _tuners(3, names="[b]name" * 30))
    assert len(screen.seen) == 6
    assert all("[b]name" in x for x in screen.seen[-3:])


def test_it_follows_a_resize() -> None:
    screen = Screen(100)
    console = console_on(screen)
    shown = LiveView(console, None)
    made = _tuners(2)
    for columns, titles in ((100, 9), (60, 5), (200, 9)):
        console.size = ConsoleDimensions(columns, 24)
        shown.on_stage("timing", made)
        (title,) = (x for x in screen.seen if "weight" in x)
        assert len(title.split()) == titles


def test_it_is_one_write_a_frame_and_leaves_nothing() -> None:
    screen = Screen(100)
    shown = _watched(screen)
    assert len(screen.seen) > 5
    before = screen.writes
    shown.on_stage("timing", shown._tuners)
    assert screen.writes == before + 1
    shown.close()
    assert screen.seen == []
    assert screen.at == 0
    shown.close()
    assert screen.seen == []


def test_what_is_printed_meanwhile_stands_above(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(100)
    monkeypatch.setattr(sys, "stdout", screen)
    shown = _watched(screen)
    print("a word")
    shown.on_stage("timing", shown._tuners)
    assert screen.seen[0] == "a word"
    shown.close()
    assert screen.seen == ["a word"]
    assert sys.stdout is screen


def test_colours_only_where_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bold is not a colour: https://no-color.org."""
    screen = Screen(100)
    shown = view(screen, None)
    shown.on_stage("searching", _tuners(2))
    shown.close()
    assert set(re.findall(r"\x1b\[([\d;]*)m", screen.getvalue())) == {"0", "1", "2"}


def test_what_suits_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(view(Screen(), None), LiveView)
    assert isinstance(view(io.StringIO(), None), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view(Screen(), None), PlainLines)


def test_plain_lines() -> None:
    out = io.StringIO()
    shown = PlainLines(out, itertools.count(0.0, 20.0).__next__)
    made = _tuners(2, shown.on_trial)
    shown.on_stage("searching", made)
    TaskScheduler(made, max_trials=20, on_progress=shown.on_progress).run()
    shown.close()
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().startswith("searching (2 tasks)\n")
    assert "expected to gain" in out.getvalue()


def test_the_command_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.commands.tune.tune_model", interrupted)
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.chdir(tmp_path)
    model = saved(perceptron(), tmp_path)
    assert main(["tune", str(model), "--log", "log"]) == 130
    assert any("interrupted; what was measured is in" in x for x in screen.seen)
