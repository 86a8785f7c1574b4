"""interleave: who runs when, and what is counted, with a clock of our own."""

from __future__ import annotations

import pytest

from tilewright.autotune.measure.interleaved_timing import Samples, interleave, wait_for_idle_threads


class _Clock:
    """Time passes only when a contender runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def contender(self, name: str, seconds: float) -> object:
        def run() -> None:
            self.calls.append(name)
            self.now += seconds

        return run


def test_counts_and_turns() -> None:
    clock = _Clock()
    taken = interleave({"a": clock.contender("a", 0.02), "b": clock.contender("b", 0.04)}, runs=10, clock=clock)
    assert [len(s.seconds) for s in taken.values()] == [10, 10]
    assert abs(taken["a"].median - 0.02) < 1e-9
    assert abs(taken["b"].p90 - 0.04) < 1e-9
    turns = sum(x != y for x, y in zip(clock.calls, clock.calls[1:], strict=False))
    assert turns >= 8


def test_time_is_shared() -> None:
    clock = _Clock()
    taken = interleave({"a": clock.contender("a", 0.01), "b": clock.contender("b", 0.1)}, seconds=8.0, clock=clock)
    assert len(taken["a"].seconds) > 5 * len(taken["b"].seconds)


@pytest.mark.parametrize(("busy", "waited"), [(0.0, 0.004), (0.08, 0.084), (9.0, 0.5)])
def test_threads_that_wait_on_a_processor_are_waited_for(busy: float, waited: float) -> None:
    clock = _Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    wait_for_idle_threads(clock, lambda: min(clock.now, busy), sleep)
    assert clock.now == pytest.approx(waited, abs=0.002)


def test_percentiles() -> None:
    s = Samples(tuple(float(n) for n in range(11)))
    assert (s.median, s.p10, s.p90) == (5.0, 1.0, 9.0)
