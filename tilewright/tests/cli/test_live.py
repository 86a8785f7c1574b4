"""The view of ``tune``: what it shows, that it fits, that it is redrawn in place, and what is printed elsewhere."""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
from pathlib import Path

import pytest

from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.search.scheduler import TaskScheduler
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.cli import main
from tilewright.commands.live import LiveView, PlainLines, view
from tilewright.core.config import Terminal, terminal
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.autotune.search.synthetic import FUNC, TARGET, SyntheticSpace, synthetic_result

PLAIN = Terminal(moves=True, colours=False)


class Screen(io.StringIO):
    """A terminal of ``columns`` by ``rows`` that knows the few sequences a view uses."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.size = os.terminal_size((columns, rows))
        self.lines = [""]
        self.at = self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+", text):
            if part == "\n":
                self.at += 1
                self.lines += [""] * (self.at + 1 - len(self.lines))
            elif part.endswith("A") and part[0] == "\x1b":
                self.at -= int(part[2:-1])
                assert self.at >= 0, "drawn above the first line"
            elif part == "\x1b[J":
                self.lines[self.at + 1 :] = []
                if self.column == 0:
                    self.lines[self.at] = ""
            elif part[0] not in "\x1b\r":
                assert len(part) < self.size.columns, "wider than the terminal"
                self.lines[self.at] = part
            self.column = 0 if part in ("\n", "\r") else len(part) if part[0] != "\x1b" else self.column
        return len(text)


def _tuners(count: int, on_trial: object = None) -> list[TaskTuner]:
    training_set = TrainingSet(HeuristicModel())
    return [
        TaskTuner(
            Task(FUNC, TARGET, weight=1.0 / (n + 1), name=f"task{n}"), SyntheticSpace(),
            TableMeasurer(synthetic_result), training_set=training_set, seed=n,
            callbacks=() if on_trial is None else (on_trial,),
        )
        for n in range(count)
    ]  # fmt: skip


def _watched(screen: Screen, count: int = 4, trials: int = 40) -> LiveView:
    shown = LiveView(screen, PLAIN, 60.0, lambda: screen.size, itertools.count(0.0, 0.5).__next__)
    shown.on_stage("compiling", ())
    made = _tuners(count, shown.on_trial)
    shown.on_stage("searching", made)
    TaskScheduler(made, max_trials=trials, on_progress=shown.on_progress).run()
    return shown


def test_it_shows_every_task_and_how_far_things_are() -> None:
    screen = Screen(100, 24)
    _watched(screen)
    head, doing, title, *rows = [x for x in screen.lines if x]
    assert "of 60 s" in head
    assert "40 trials" in head
    assert "% more expected" in head
    assert doing.startswith("searching: task")
    assert title.split() == ["weight", "default", "us", "best", "us", "gain", "trials", "failed", "task"]
    assert [r.split()[-1] for r in rows] == ["task0", "task1", "task2", "task3"]
    assert sum(r.startswith(">") for r in rows) == 1
    assert re.search(r"100\.0%\s+\d+\.\d\s+\d+\.\d\s+\d\.\d\dx", rows[0])


@pytest.mark.parametrize(("columns", "rows"), [(100, 12), (60, 10), (45, 7), (39, 24), (12, 2), (100, 3), (1, 1)])
def test_it_fits(columns: int, rows: int) -> None:
    screen = Screen(max(columns, 2), rows)
    _watched(screen, count=12)
    assert len(screen.lines) <= rows
    if rows == 12:
        assert screen.lines[-1].split(maxsplit=1)[1] == "in 4 more tasks"


def test_it_follows_a_resize() -> None:
    screen = Screen(100, 24)
    shown = _watched(screen)
    screen.size = os.terminal_size((200, 24))
    shown.on_stage("timing", shown._tuners)
    assert sum("weight" in x for x in screen.lines) == 1
    screen.at = 40  # narrower: lines of before take more rows, so the view goes up further
    screen.lines += [""] * 40
    screen.size = os.terminal_size((50, 40))
    shown.on_stage("timing", shown._tuners)
    assert screen.at < 40


def test_it_is_one_write_a_frame_and_leaves_nothing() -> None:
    screen = Screen(100, 24)
    shown = _watched(screen)
    assert len(screen.lines) > 5
    shown.close()
    assert screen.lines == [""]
    shown.close()
    assert screen.lines == [""]


def test_colours_only_where_wanted() -> None:
    for colours in (True, False):
        out = io.StringIO()
        shown = LiveView(out, Terminal(True, colours), None, lambda: os.terminal_size((100, 24)))
        shown.on_stage("searching", _tuners(2))
        assert ("\x1b[1m" in out.getvalue()) is colours


def test_what_suits_a_stream() -> None:
    assert terminal({"TERM": "xterm"}) == Terminal(True, True)
    assert terminal({"TERM": "xterm", "NO_COLOR": "1"}) == Terminal(True, False)
    for term in ("dumb", ""):
        assert terminal({"TERM": term}) == terminal({}) == Terminal(False, False)
    screen = Screen(80, 24)
    assert isinstance(view(screen, Terminal(True, True), None), LiveView)
    assert isinstance(view(screen, Terminal(False, False), None), PlainLines)
    assert isinstance(view(io.StringIO(), Terminal(True, True), None), PlainLines)


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
    screen = Screen(80, 24)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.chdir(tmp_path)
    model = saved(perceptron(), tmp_path)
    assert main(["tune", str(model), "--log", "log"]) == 130
    assert any("interrupted; what was measured is in" in x for x in screen.lines)
