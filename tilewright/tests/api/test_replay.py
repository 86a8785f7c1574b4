"""A trace step by step: states, places among them, changes, predictions, times; undo; what decisions are worth."""

from __future__ import annotations

import pytest

import tilewright
from tilewright import Replay, ablate
from tilewright.api.replay import DECLARED
from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate, Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.cli import main
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError, MeasurementError, ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.autotune.records.log_helper import dense
from tilewright.tests.html_checker import checked
from tilewright.tests.schedule.helper import matmul


def scheduled() -> tilewright.Schedule:
    s = tilewright.Schedule(matmul(8, 16, 16))
    s.split("C_j", (None, 8))
    s.reorder("C_j_0", "C_i")
    s.unroll("C_j_1")
    return s


def test_states_are_the_prefixes_of_the_trace() -> None:
    s = scheduled()
    replay = s.replay()
    assert len(replay) == len(s.trace) + 1
    assert [state.text for state in replay][:2] == [DECLARED, 'split("C_j", factors=(None, 8))']
    for n, state in enumerate(replay):
        assert state.number == n
        assert state.trace == Trace(s.trace.steps[:n])
        assert str(state.func) == str(state.trace.apply(s.original))
        assert (state.step is None) is (n == 0)
        assert state.before is replay[max(n - 1, 0)].func
    assert str(replay[-1].func) == str(s.func)
    assert replay[0].changes() == []


def test_changes_are_the_lines_of_a_step() -> None:
    replay = scheduled().replay()
    out = [line[2:] for line in replay[1].changes() if line.startswith("- ")]
    came = [line[2:] for line in replay[1].changes() if line.startswith("+ ")]
    assert out
    assert set(out) <= set(str(replay[0]).splitlines())
    assert set(came) <= set(str(replay[1]).splitlines())
    assert any("C_j_1" in line for line in came)


def test_places() -> None:
    replay = scheduled().replay()
    assert replay.current.number == 0
    assert replay.step().number == 1
    assert replay.step(2).number == 3
    assert replay.undo().number == 2
    assert replay.go(0) is replay[0]
    for wrong in (lambda: replay.undo(), lambda: replay.go(9), lambda: replay.go(1.5)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="replay: expected the number of a state, 0 to 3, got"):
            wrong()
    with pytest.raises(InputError, match="step: expected a number of steps, got -1"):
        replay.step(-1)
    assert replay.current.number == 0


def test_a_trace_that_does_not_replay_says_at_which_step() -> None:
    trace = Trace.from_text('split("C_j", factors=(None, 8))\nvectorize("nothing")\n')
    with pytest.raises(ScheduleError, match=r"step 2 of 2: .*nothing"):
        Replay(matmul(8, 16, 16), trace)


def test_undo_takes_steps_back() -> None:
    s = scheduled()
    whole, last = s.trace, s.replay()[2]
    s.undo()
    assert s.trace == last.trace
    assert str(s.func) == str(last.func)
    s.undo(2)
    assert s.trace == Trace()
    assert s.func is s.original
    assert s.undo(0) is None
    for wrong in (1, -1, 0.5):
        with pytest.raises(InputError, match="undo: expected a number of steps, 0 to 0, got"):
            s.undo(wrong)  # type: ignore[arg-type]
    assert whole.apply(s.original)


def _by_steps(candidate: Candidate) -> float | MeasureResult:
    if len(candidate.trace) == 1:
        return Failed(FailureKind.CRASH, "no")
    return 1e-6 * (10 - len(candidate.trace))


def test_predictions_and_times() -> None:
    replay = scheduled().replay()
    assert [r["predicted"] for r in replay.to_dicts()] == [None] * 4
    scores = replay.predict()
    assert len(scores) == 4
    found = replay.measure(TableMeasurer(_by_steps))
    assert [isinstance(r, Ok) for r in found] == [True, False, True, True]
    rows = replay.to_dicts()
    assert [r["predicted"] for r in rows] == list(scores)
    assert [r["seconds"] for r in rows] == pytest.approx([1e-5, None, 8e-6, 7e-6])
    assert [r["failure"] for r in rows] == [None, "crash", None, None]
    text = checked(replay._repr_html_())
    for part in ("replay of matmul", "step 0 of 3", "crash", "10.0", "as declared"):
        assert part in text
    assert "what changed" in checked(replay.step()._repr_html_())


def test_measured_on_this_machine() -> None:
    s = tilewright.Schedule(matmul(var("n"), 16, 16))
    s.vectorize(s.split("C_j", (None, 8))[1])
    found = s.replay(dims={"n": 8}).measure()
    assert all(isinstance(r, Ok) and r.seconds > 0 for r in found)


def test_sizes_are_needed_to_predict() -> None:
    s = tilewright.Schedule(matmul(var("n"), 16, 16))
    with pytest.raises(InputError, match="expected a size for every dim, got none for n"):
        s.replay().predict()
    assert len(s.replay(dims={"n": 4}).predict()) == 1


def test_text_is_every_step_with_its_changes() -> None:
    replay = scheduled().replay()
    text = str(replay)
    assert text.startswith(str(replay.func).rstrip("\n"))
    assert [line for line in text.splitlines() if line.startswith("# ")] == [f"# {s.number}. {s.text}" for s in replay][
        1:
    ]


def program(s: Schedule, target: tilewright.Target) -> None:
    """Decisions that depend on each other: without a cut there is no width."""
    rows = s.sample_categorical("rows", (1, 2, 4), 1)
    cut = s.sample_categorical("cut", ("no", "yes"), "no")
    if cut == "yes":
        s.split(s.loops("C")[1], (None, s.sample_categorical("width", (2, 4, 8), 4)))
    if rows != 1:
        s.split(s.loops("C")[0], (None, rows))


def _by_choice(candidate: Candidate) -> float | MeasureResult:
    chosen = candidate.values()
    if chosen["rows"] == 1 and chosen["cut"] == "yes":
        return Failed(FailureKind.WRONG_RESULT, "no")
    return 8e-6 / (1 + (chosen["cut"] == "yes") * 3)


def test_ablation() -> None:
    task = Task(matmul(8, 16, 16), detect_host())
    space = Space(task.func, task.target, program)  # type: ignore[arg-type]
    best = space.with_decisions({"rows": 4, "cut": "yes", "width": 8})
    assert best is not None
    found = ablate(task, best, space, TableMeasurer(_by_choice))
    assert (found.seconds, found.default_seconds) == (2e-6, 8e-6)
    assert [(r.label, r.chosen, r.default, r.ratio, r.failure) for r in found.rows] == [
        ("cut", "yes", "no", 4.0, None), ("width", 8, None, 1.0, None), ("rows", 4, 1, None, "wrong_result"),
    ]  # fmt: skip
    assert str(found).splitlines() == [
        "matmul: 2.0 us, by default 8.0 us", "  cut: no instead of yes: 4.00 times the time",
        "  width: None instead of 8: 1.00 times the time", "  rows: 1 instead of 4: wrong_result",
    ]  # fmt: skip
    assert "ablation of matmul2.0 us, by default 8.0 us" in checked(found._repr_html_()).replace(" 2.0", "2.0")
    assert found.to_dicts()[0]["ratio"] == 4.0


def test_nothing_to_ablate_in_the_default_and_no_ablation_of_a_failure() -> None:
    task = Task(dense(), detect_host())
    default = Space(task.func, task.target).default()
    assert ablate(task, default, measurer=TableMeasurer(lambda c: 1e-6)).rows == ()
    with pytest.raises(MeasurementError, match=r"ablate.*: the candidate: crash: no"):
        ablate(task, default, measurer=TableMeasurer(lambda c: Failed(FailureKind.CRASH, "no")))


def test_the_command_prints_the_steps(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(perceptron(), tmp_path)  # type: ignore[arg-type]
    assert main(["inspect", str(path), "--stage", "steps", "--kernel", "k0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# k0")
    assert "\n# 1. " in said
    assert "\n+ " in said
