"""A machine that is slow for a while: what was taken then does not count, and waiting ends. Time is a number here."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.autotune.measure.noise_monitor import STORED, NoiseMonitor, probe_threads
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig, evaluate
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.probe import probe_text

CONFIG = EvaluatorConfig(repeat=4, min_repeat_ms=0, warmup=0, max_seconds=100, patience_s=1.0)


class Machine:
    """Slow while ``slow(now)``: probes and runs take twice as long; a thread is away while ``away(now)``."""

    def __init__(
        self, slow: Callable[[float], bool], away: Callable[[float], bool] = lambda now: False, now: float = 0.0
    ) -> None:
        self.slow, self.away, self.now = slow, away, now
        self.noise = NoiseMonitor(self.probe, lambda: self.now)

    def _spend(self, seconds: float) -> float:
        taken = seconds * (2.0 if self.slow(self.now) else 1.0)
        self.now += taken
        return taken

    def probe(self) -> float | None:
        taken = self._spend(1e-3)
        return None if self.away(self.now) else taken

    def run(self, count: int) -> float:
        return self._spend(0.125 * count)


def test_disturbed_samples_are_taken_again() -> None:
    m = Machine(lambda now: 0.3 < now < 2.0)
    assert evaluate(m.run, CONFIG, noise=m.noise) == (0.125,) * 4
    assert m.now > 2.0
    assert 1.0 < m.noise.waited < 2.0, "from 0.3 to 2.0, and the sample that was begun before"


def test_a_quiet_machine_costs_only_the_looks() -> None:
    m = Machine(lambda now: False)
    assert evaluate(m.run, CONFIG, noise=m.noise) == (0.125,) * 4
    assert m.now < 0.5 + 0.02
    assert m.noise.waited == 0.0


def test_a_thread_that_is_away_is_waited_for() -> None:
    m = Machine(lambda now: False, away=lambda now: 0.1 < now < 1.0)
    evaluate(m.run, CONFIG, noise=m.noise)
    assert 1.0 < m.now < 1.7


def test_patience_ends() -> None:
    m = Machine(lambda now: now > 0.1)
    samples = evaluate(m.run, CONFIG, noise=m.noise)
    assert samples == (0.25,) * 4
    assert STORED < m.now < STORED + 2.0
    before = m.now
    evaluate(m.run, CONFIG, noise=m.noise)
    assert m.now - before < 1.0 + 4 * 0.25 + 0.1, "the second candidate has its own second only"


def test_what_stays_slow_becomes_usual() -> None:
    m = Machine(lambda now: now > 0.1)
    evaluate(m.run, CONFIG, noise=m.noise)
    m.now += 1000.0
    before = m.now
    evaluate(m.run, CONFIG, noise=m.noise)
    assert m.now - before < 4 * 0.25 + 0.1


def test_the_probe_of_this_machine() -> None:
    """Threads may be away on a busy machine; a time, if there is one, is positive. One thread needs no other."""
    assert (probe_threads(1) or 0) > 0
    found = probe_threads(2)
    assert found is None or found > 0
    assert "<8 x float>" in probe_text(detect_host())
    assert "$" not in probe_text(detect_host())


def test_without_a_probe_nothing_is_disturbed() -> None:
    m = Machine(lambda now: now > 0.1)
    samples = evaluate(m.run, CONFIG)
    assert samples == (0.125, 0.25, 0.25, 0.25), "as they came"
    assert m.now == sum(samples)
