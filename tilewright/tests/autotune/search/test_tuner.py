"""One task: the default first, nothing twice, the same again, resumed from records, interrupted at any moment."""

import numpy as np
import pytest

from tilewright.autotune.base.measure_result import Failed, Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.cost_model.xgboost_model import XGBoostConfig, XGBoostModel
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.search.gain_estimate import PRIOR_SLOPE, expected_gain, power_slope
from tilewright.autotune.search.history import History, Trial
from tilewright.autotune.search.tuner import Budget, TaskTuner, TunerConfig, tune_task
from tilewright.core.errors import InputError
from tilewright.tests.autotune.search.synthetic import FUNC, TARGET, SyntheticSpace, seconds, synthetic_result
from tilewright.tests.schedule.kernels import conv

TASK = Task(FUNC, TARGET, name="synthetic")


class Clock:
    """A second a look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def tune(measurer=None, trials=40, database=None, seed=0, strategy="annealing", **more):
    measurer = TableMeasurer(synthetic_result) if measurer is None else measurer
    budget = more.pop("budget", Budget(max_trials=trials))
    training_set = more.pop("training_set", None) or TrainingSet(HeuristicModel())
    result = tune_task(
        TASK, SyntheticSpace(), measurer, strategy=strategy, database=database, budget=budget, seed=seed,
        training_set=training_set, clock=Clock(), **more,
    )  # fmt: skip
    return result, measurer


def test_the_default_comes_first_and_nothing_twice():
    result, measurer = tune()
    assert measurer.asked[0] == SyntheticSpace().default().key
    assert len(measurer.asked) == len(set(measurer.asked)) == 40
    assert result.default_seconds == seconds(SyntheticSpace().default())
    assert result.best.seconds == min(t.seconds for t in result.trials)
    assert result.speedup > 1.0
    assert not result.interrupted
    assert result.stopped == "40 trials"


def test_the_same_seed_gives_the_same_sequence():
    assert tune(seed=3)[1].asked == tune(seed=3)[1].asked
    assert tune(seed=3)[1].asked != tune(seed=4)[1].asked


class Scrambled(TableMeasurer):
    """Several workers: results become known in another order."""

    def measure(self, task, candidates, on_result=None):
        found = super().measure(task, candidates)
        for place in np.random.default_rng(len(self.asked)).permutation(len(found)):
            if on_result is not None:
                on_result(int(place), found[place])
        return found


def test_the_sequence_does_not_depend_on_the_number_of_workers():
    training_set = [TrainingSet(XGBoostModel(XGBoostConfig(rounds=10))) for _ in range(2)]
    one, several = tune(training_set=training_set[0]), tune(Scrambled(synthetic_result), training_set=training_set[1])
    assert one[1].asked == several[1].asked
    assert [t.candidate.key for t in one[0].trials] == [t.candidate.key for t in several[0].trials]
    assert one[0].best.candidate.key == several[0].best.candidate.key


def test_records_are_written_and_nothing_in_them_is_measured_again():
    database = MemoryDatabase()
    first = tune(trials=16, database=database)[1]
    assert {r.candidate for r in database.records()} == set(first.asked)
    assert all("predicted" in r.extra for r in database.records())
    second, measurer = tune(trials=16, database=database)
    assert not set(measurer.asked) & set(first.asked)
    assert second.default_seconds is not None
    assert sum(t.recorded for t in second.trials) == 16
    again = MemoryDatabase(list(database.lines())[:18])
    copy = MemoryDatabase(list(database.lines())[:18])
    assert tune(trials=16, database=again)[1].asked == tune(trials=16, database=copy)[1].asked


def test_an_interrupt_returns_what_was_found():
    class Interrupting(TableMeasurer):
        def measure(self, task, candidates, on_result=None):
            def stop(place, found):
                on_result(place, found)
                if len(self.asked) >= 20:
                    raise KeyboardInterrupt

            return super().measure(task, candidates, stop)

    database = MemoryDatabase()
    result, measurer = tune(Interrupting(synthetic_result), database=database)
    assert result.interrupted
    assert result.best is not None
    assert len(measurer.asked) == 20
    assert len(result.trials) == len(database.records()) == 20


def test_failures_are_counted_and_never_win():
    result, _ = tune(strategy="grid", trials=400)
    assert set(result.failures) <= {"wrong_result"}
    broken, _ = tune(TableMeasurer({}), trials=12)
    assert broken.failures == {"illegal": 12}
    assert broken.best is None
    assert broken.speedup == 1.0


def test_it_stops_for_each_reason():
    assert tune(budget=Budget(max_trials=None, seconds=30))[0].stopped.endswith(" seconds")
    assert tune(budget=Budget(max_trials=None, early_stopping=9))[0].stopped == "no better one in 9 trials"
    measurer = TableMeasurer(synthetic_result)
    small = tune_task(TASK, SyntheticSpace((2, 2)), measurer, strategy="random", budget=Budget(99))
    assert small.stopped == "the space is exhausted"
    assert small.remaining_gain == 0.0


def test_the_finalists_are_measured_again():
    class Lucky(TableMeasurer):
        """The first measurement of one candidate was too good."""

        def remeasure(self, task, candidates, rounds):
            return [Ok(0.5, (0.5,) * rounds, 0.0, 0.0) if c.key == lucky else synthetic_result(c) for c in candidates]

    plain, _ = tune(trials=24)
    lucky = plain.best.candidate.key
    database = MemoryDatabase()
    result, _ = tune(Lucky(synthetic_result), trials=24, database=database)
    assert result.best.candidate.key != lucky
    assert len(database.records()) > 24
    assert next(r for r in reversed(database.records()) if r.candidate == lucky).seconds == 0.5


def test_a_model_learns_while_tuning_a_real_space():
    func = conv(10, 10, 8, 16, 3, 1, 1)
    space = Space(func, TARGET)
    training_set = TrainingSet(XGBoostModel(XGBoostConfig(rounds=10)))

    def cost(c):
        return 1e-3 * (1 + sum(len(str(v)) + (hash_of(k) % 7) * 0.1 for k, v in c.values().items()))

    def hash_of(text):
        return sum(map(ord, text))

    task = Task(func, TARGET)
    result = tune_task(task, space, TableMeasurer(cost), training_set=training_set, budget=Budget(16), clock=Clock())
    assert training_set.model.is_trained
    assert result.correlations
    assert training_set.arrays()[0].shape[0] == len(result.trials)


def test_a_strategy_of_ones_own():
    class Ends:
        def __init__(self, space):
            self.left = [space.at((7, 7, 5, 3, v)) for v in range(4)] if not space.refuse else []

        def propose(self, n):
            out, self.left = self.left[:n], self.left[n:]
            return out

        def observe(self, results):
            pass

    space = SyntheticSpace(refuse=False)
    result = tune_task(
        TASK, space, TableMeasurer(synthetic_result), strategy=lambda s, score, rng, params: Ends(s), budget=Budget(30)
    )
    assert len(result.trials) == 5
    assert result.stopped == "the space is exhausted"


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match=r"strategy: expected one of annealing, .*, got 'anealing'"):
        tune(strategy="anealing")
    with pytest.raises(InputError, match="Budget: expected max_trials, seconds or early_stopping"):
        Budget(max_trials=None)
    with pytest.raises(InputError, match="Budget: batch: expected a whole number of at least 1, got 0"):
        Budget(batch=0)
    with pytest.raises(InputError, match="expected a space over the task's function, got one over conv"):
        TaskTuner(TASK, Space(conv(5, 5, 4, 8, 3, 1, 1), TARGET), TableMeasurer(synthetic_result), config=TunerConfig())


def test_expected_gain():
    assert power_slope([]) == PRIOR_SLOPE
    flat, falling = [1.0] * 64, [2.0 ** (-n / 16) for n in range(64)]
    assert expected_gain(flat, 64) < 0.03 < expected_gain([], 8) < expected_gain(falling, 64)
    assert expected_gain(flat, 0) == 0.0
    assert expected_gain(flat, 64, spread=0.0) < 0.5 * expected_gain(flat, 64) < expected_gain(flat, 64, spread=1.0)
    assert 0.0 < expected_gain([float("inf")] * 4, 8) < 1.0


def test_history_counts_cost_and_failures():
    history = History()
    space = SyntheticSpace()
    assert history.cost() == 0.5
    for n, value in enumerate([Ok(2.0, (2.0,), 0.0, 0.4), Failed("crash", ""), Ok(1.0, (1.0,), 0.0, 0.4)]):
        history.add(Trial(n, space.at((0, 0, 0, 0, n)), value))
    assert history.cost() == pytest.approx(0.5 + 3.0)
    assert history.failures() == {"crash": 1}
    assert history.bests == [2.0, 2.0, 1.0]
    assert history.since_improvement() == 0
