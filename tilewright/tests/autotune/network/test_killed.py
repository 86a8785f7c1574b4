"""A tuning process that is killed at any moment loses the candidate being measured, and nothing else.

A child tunes with a table of times and stops before chosen measurements; there it is killed, so no test depends on how
fast anything is.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tilewright.autotune.network.tune_network
from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import Measurable, TableMeasurer
from tilewright.autotune.measure.worker_pool import Report
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import make_tasks
from tilewright.autotune.records.database import JSONDatabase
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.tests.autotune.records.log_helper import mlp_model

TRIALS = 20
OPTIONS = TuneOptions(time_budget_s=None, max_trials=TRIALS, check_network=False, threads=1, strategy="random")


def by_key(candidate: Measurable) -> MeasureResult:
    """Times that look random and are the same in every process."""
    value = int(candidate.key[:6], 16) / float(1 << 24)
    return Failed(FailureKind.CRASH, "test") if value < 0.1 else Ok(1e-4 + value, (1e-4 + value,), 0.0, 0.0)


class Stopping(TableMeasurer):
    """Says which candidate it is about to measure, and after ``free`` of them waits to be told to go on."""

    def __init__(self, free: int) -> None:
        super().__init__(by_key)
        self._free = free

    def measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None = None
    ) -> list[MeasureResult]:
        out: list[MeasureResult] = []
        for place, c in enumerate(candidates):
            print(c.key, flush=True)
            if self._free <= 0:
                sys.stdin.readline()
            self._free -= 1
            (result,) = super().measure(task, [c])
            out.append(result)
            if on_result is not None:
                on_result(place, result)
        return out


def equally_heavy(lowered: LoweredModel, target: Target, env: Mapping[str, int], *_: object) -> tuple[Task, ...]:
    """The tasks without measured weights, which may differ between two runs."""
    return make_tasks(lowered, target, env, dict.fromkeys(lowered.funcs, 1.0))


def tune(log: str, free: int) -> None:
    """What the child does."""
    tilewright.autotune.network.tune_network.make_tasks = equally_heavy  # type: ignore[attr-defined]
    tilewright.tune(mlp_model(), database=log, measurer=Stopping(free), options=OPTIONS)


def run_and_kill(log: Path, after: int) -> list[str]:
    """Tune in a child, kill it when it is about to measure candidate ``after``; the candidates that it began."""
    code = f"from tilewright.tests.autotune.network.test_killed import tune; tune({str(log)!r}, {after})"
    begun: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            begun.append(line.strip())
            if len(begun) > after:
                break
        child.send_signal(signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
    return begun


@pytest.mark.parametrize("after", [0, 3, 11])
def test_kill_9_loses_the_candidate_being_measured_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(tilewright.autotune.network.tune_network, "make_tasks", equally_heavy)
    log = tmp_path / "log.jsonl"
    begun = run_and_kill(log, after)
    assert len(begun) == after + 1
    kept = [r.candidate for r in JSONDatabase(log).records()]
    assert kept == begun[:-1]

    measurer = TableMeasurer(by_key)
    tilewright.tune(mlp_model(), database=log, measurer=measurer, options=OPTIONS)
    assert not set(measurer.asked) & set(kept)
    assert begun[-1] in measurer.asked, "the candidate that was lost is measured now"
    assert [r.candidate for r in JSONDatabase(log).records()][: len(kept)] == kept


def test_killed_again_and_again(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    done: list[str] = []
    for _ in range(3):
        begun = run_and_kill(log, 4)
        assert not set(begun) & set(done)
        done += begun[:-1]
        assert [r.candidate for r in JSONDatabase(log).records()] == done
