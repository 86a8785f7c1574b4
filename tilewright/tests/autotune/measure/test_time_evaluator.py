"""The evaluator's parameters mean what TVM's mean. Time here is a number that the thing under test adds to."""

from __future__ import annotations

import pytest

from tilewright.autotune.measure.time_evaluator import EvaluatorConfig, TimeEvaluator, evaluate
from tilewright.core.errors import InputError


class Steady:
    """Takes ``seconds`` a run; remembers how many runs it was asked for at a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[int] = []

    def __call__(self, count: int) -> float:
        self.asked.append(count)
        return self.seconds * count


def test_number_and_repeat() -> None:
    run = Steady(0.5)
    config = EvaluatorConfig(number=3, repeat=4, min_repeat_ms=0, warmup=2, max_seconds=100)
    assert evaluate(run, config) == (0.5,) * 4
    assert run.asked == [2, 3, 3, 3, 3]


def test_number_grows_until_a_sample_is_long_enough() -> None:
    run = Steady(1e-3)
    samples = evaluate(run, EvaluatorConfig(number=1, repeat=3, min_repeat_ms=20, warmup=0))
    assert samples == pytest.approx((1e-3,) * 3)
    assert run.asked == [1, 21, 21, 21]


def test_a_clock_that_shows_nothing_ends() -> None:
    run = Steady(0.0)
    run.seconds = 1e-9
    timer = TimeEvaluator(run, EvaluatorConfig(min_repeat_ms=1e-3, warmup=0))
    assert timer.sample() == pytest.approx(1e-9)


def test_cold_runs_are_not_repeated() -> None:
    run = Steady(1e-6)
    evaluate(run, EvaluatorConfig(repeat=2, min_repeat_ms=50, warmup=0, enable_cpu_cache_flush=True))
    assert run.asked == [1, 1]


def test_slow_ones_get_one_sample() -> None:
    config = EvaluatorConfig(repeat=5, min_repeat_ms=0, warmup=0, max_seconds=100)
    assert len(evaluate(Steady(2.0), config, limit=1.0)) == 1
    assert len(evaluate(Steady(2.0), config, limit=3.0)) == 5


def test_short_slow_ones_get_three() -> None:
    config = EvaluatorConfig(repeat=5, min_repeat_ms=4, warmup=0)
    assert len(evaluate(Steady(1e-3), config, limit=1e-4)) == 3
    assert len(evaluate(Steady(20e-3), config, limit=1e-4)) == 1


def test_one_slow_sample_is_no_verdict() -> None:
    class Disturbed(Steady):
        def __call__(self, count: int) -> float:
            self.seconds = 1e-4 if self.asked else 1e-2
            return super().__call__(count)

    samples = evaluate(Disturbed(0.0), EvaluatorConfig(repeat=5, min_repeat_ms=4, warmup=0), limit=5e-4)
    assert samples == pytest.approx((1e-2, 1e-4, 1e-4, 1e-4, 1e-4))


def test_time_for_one_candidate_is_bounded() -> None:
    config = EvaluatorConfig(repeat=50, min_repeat_ms=0, warmup=0, max_seconds=1.0)
    assert len(evaluate(Steady(0.3), config)) == 4


def test_visits_share_what_a_candidate_may_take() -> None:
    one = EvaluatorConfig(repeat=9, visits=3, max_seconds=1.5, patience_s=0.75).of_a_visit()
    assert (one.repeat, one.visits, one.max_seconds, one.patience_s) == (3, 3, 0.5, 0.25)
    few = EvaluatorConfig(repeat=2, visits=3).of_a_visit()
    assert (few.repeat, few.visits) == (1, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 0), ("repeat", 0), ("warmup", -1), ("timeout_s", 0), ("memory_bytes", 0), ("opt", 4)],
)
def test_values_out_of_range(field: str, value: int) -> None:
    with pytest.raises(InputError, match=f"EvaluatorConfig: {field}: expected"):
        EvaluatorConfig(**{field: value})
