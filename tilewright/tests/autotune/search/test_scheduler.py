"""Several tasks: time goes where it saves most, each has an early turn, it repeats, stops, and can be interrupted."""

import pytest

from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.search.scheduler import EFFORTS, TaskScheduler
from tilewright.autotune.search.tuner import TaskTuner, TunerConfig
from tilewright.core.errors import InputError
from tilewright.tests.autotune.search.synthetic import FUNC, TARGET, SyntheticSpace, seconds, synthetic_result
from tilewright.tests.autotune.search.test_tuner import Clock


def flat(c):
    """A task on which nothing can be gained."""
    return Ok(1e-3, (1e-3,), 0.0, 0.05)


def tuners(*costs, weights=None, database=None, measurer=TableMeasurer, strategy="annealing"):
    training_set = TrainingSet(HeuristicModel())
    clock = Clock()
    return [
        TaskTuner(
            Task(FUNC, TARGET, weight=1.0 if weights is None else weights[i], name=f"task{i}"), SyntheticSpace(),
            measurer(cost), training_set=training_set, seed=i, clock=clock, database=database,
            config=TunerConfig(strategy),
        )
        for i, cost in enumerate(costs)
    ]  # fmt: skip


def run(made, **options):
    log = []
    scheduler = TaskScheduler(made, clock=Clock(), on_progress=log.append, **options)
    return scheduler.run(), log


def test_time_goes_to_the_task_that_gains():
    made = tuners(flat, synthetic_result, weights=(0.5, 0.5), strategy="random")
    result, log = run(made, max_trials=96, effort="thorough")
    assert made[1].trials > made[0].trials
    assert [p.task for p in log[:4:2]] == ["task0", "task1"], "each has an early turn"
    assert result.trials == 96
    assert result.speedup > 1.1
    assert log[-1].speedup >= log[0].speedup
    assert "expected to gain" in str(log[-1])


def test_weight_counts():
    made = tuners(synthetic_result, synthetic_result, weights=(0.02, 0.98))
    run(made, max_trials=64)
    assert made[1].trials > made[0].trials


def test_it_stops_when_little_is_left():
    result, _ = run(tuners(flat, flat), effort="quick")
    assert result.stopped.startswith(("little left to gain", "trials of this effort"))
    assert result.trials <= 2 * EFFORTS["quick"].trials
    thorough, _ = run(tuners(flat, flat), effort="thorough")
    assert thorough.trials > result.trials
    assert thorough.stopped.startswith("little left to gain")
    assert thorough.remaining_gain < EFFORTS["thorough"].stop_gain


def test_it_stops_at_the_time_budget():
    result, _ = run(tuners(synthetic_result, synthetic_result), time_budget_s=40)
    assert result.stopped == "the time budget is used"
    assert result.elapsed < 80


def test_the_same_run_repeats():
    def order():
        made = tuners(synthetic_result, flat, synthetic_result, weights=(0.2, 0.5, 0.3))
        _, log = run(made, max_trials=90)
        return [p.task for p in log], [t.candidate.key for x in made for t in x.history.trials]

    assert order() == order()


def test_an_interrupt_keeps_everything():
    class Interrupting(TableMeasurer):
        def measure(self, task, candidates, on_result=None):
            if len(self.asked) > 20:
                raise KeyboardInterrupt
            return super().measure(task, candidates, on_result)

    database = MemoryDatabase()
    made = tuners(synthetic_result, synthetic_result, measurer=Interrupting, database=database)
    result, _ = run(made, max_trials=500)
    assert result.interrupted
    assert result.stopped == "interrupted"
    assert sum(len(t.trials) for t in result.tasks) == result.trials
    assert all(t.best is not None for t in result.tasks)


def test_exhausted_tasks_end_the_run():
    training_set = TrainingSet(HeuristicModel())
    measurer = TableMeasurer(synthetic_result)
    tuner = TaskTuner(Task(FUNC, TARGET), SyntheticSpace((2, 2)), measurer, training_set=training_set, clock=Clock())
    result, _ = run([tuner], effort="thorough")
    assert result.stopped in ("nothing left to try", "little left to gain: 0.0 % expected")
    assert result.tasks[0].best.seconds == min(seconds(c) for c in SyntheticSpace((2, 2)).enumerate(9))


def test_nothing_to_do_ends_at_once():
    assert run([])[0].trials == 0
    assert run(tuners(synthetic_result), max_trials=0)[0].trials == 0


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match="effort: expected one of quick, normal, thorough, got 'some'"):
        TaskScheduler([], effort="some")
    with pytest.raises(InputError, match="time_budget_s: expected a finite number of at least 0, got -1"):
        TaskScheduler([], time_budget_s=-1)
    with pytest.raises(InputError, match="max_trials: expected a whole number of at least 0, got -2"):
        TaskScheduler([], max_trials=-2)
