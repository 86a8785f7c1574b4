"""How a candidate is timed: TVM's evaluator parameters with TVM's meaning, and limits around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.autotune.measure.noise_monitor import NoiseMonitor
from tilewright.core.errors import InputError
from tilewright.core.options import require_flag, require_number, require_whole

_GROWTH = 1.618
_LEAST_SECONDS = 1e-9
_SHORT_SAMPLES = 3
"""Of the shortest length there is, so many tell a slow candidate from one that was disturbed."""


@dataclass(frozen=True, slots=True)
class EvaluatorConfig:
    """``repeat`` samples are taken; each is the mean of ``number`` runs. ``number`` grows until a sample takes at
    least ``min_repeat_ms``. ``warmup`` runs come first. The samples are taken in ``visits``, with other candidates of
    the batch in between; the fastest visit counts: what slows a machine down lasts longer than a few samples, and
    nothing makes it faster than it is. With ``enable_cpu_cache_flush`` every run starts with empty
    caches and is timed alone (``min_repeat_ms`` is then 0).

    ``max_seconds``: no further sample once this much time went into a candidate. ``slow_factor``: a candidate whose
    samples all are this many times the best of its task gets no further ones once three short samples' time went into
    it (0: never). ``patience_s``: seconds per candidate, on average, to wait for a disturbed machine to be as fast as
    usual (0: samples always count).

    ``timeout_s`` and ``build_timeout_s`` bound the run and the build of one candidate, ``reference_timeout_s`` that of
    the naive schedule. ``memory_bytes``: what a candidate may allocate in addition to its worker.
    ``opt``: LLVM's optimisation level for candidates; the best few are measured again at full effort.
    ``builders``: processes that build (0: one per core). ``overlap``: builds may go on while something is timed; for
    machines with more cores than the target has threads.
    """

    number: int = 1
    repeat: int = 9
    min_repeat_ms: float = 4.0
    warmup: int = 1
    enable_cpu_cache_flush: bool = False
    timeout_s: float = 10.0
    build_timeout_s: float = 15.0
    memory_bytes: int = 2 << 30
    max_seconds: float = 1.0
    slow_factor: float = 3.0
    patience_s: float = 0.05
    reference_timeout_s: float = 300.0
    opt: int = 2
    builders: int = 0
    overlap: bool = False
    visits: int = 3

    def __post_init__(self) -> None:
        for name, least in (("number", 1), ("repeat", 1), ("warmup", 0), ("builders", 0), ("visits", 1),
                            ("memory_bytes", 1)):  # fmt: skip
            require_whole(f"EvaluatorConfig: {name}", getattr(self, name), least)
        for name in ("min_repeat_ms", "patience_s", "slow_factor"):
            require_number(f"EvaluatorConfig: {name}", getattr(self, name))
        for name in ("timeout_s", "build_timeout_s", "reference_timeout_s", "max_seconds"):
            require_number(f"EvaluatorConfig: {name}", getattr(self, name), _LEAST_SECONDS)
        for name in ("enable_cpu_cache_flush", "overlap"):
            require_flag(f"EvaluatorConfig: {name}", getattr(self, name))
        if require_whole("EvaluatorConfig: opt", self.opt, 0) > 3:
            raise InputError(f"EvaluatorConfig: opt: expected 0 to 3, got {self.opt}")

    def of_a_visit(self) -> EvaluatorConfig:
        """What one visit does: its share of the samples, and of the seconds for them and for waiting. ``visits`` is
        their number, no more than there are samples."""
        visits = min(self.visits, self.repeat)
        return replace(
            self, repeat=-(-self.repeat // visits), max_seconds=self.max_seconds / visits,
            patience_s=self.patience_s / visits, visits=visits,
        )  # fmt: skip


class TimeEvaluator:
    """Takes samples of one thing. ``run(n)`` runs it ``n`` times and returns the seconds that took. With
    ``noise``, what was taken in a disturbed moment is taken again."""

    def __init__(self, run: Callable[[int], float], config: EvaluatorConfig, noise: NoiseMonitor | None = None) -> None:
        self._run = run
        self._number = config.number
        self._least = 0.0 if config.enable_cpu_cache_flush else config.min_repeat_ms / 1e3
        self._noise = noise or NoiseMonitor()
        if config.warmup:
            run(config.warmup)
        self._noise.grant(config.patience_s)

    def sample(self) -> float:
        """Seconds of one run: the mean over ``number`` runs, or over more until the shortest time is reached."""
        taken = self._noise.take(self._run_long_enough)
        return taken / self._number

    def _run_long_enough(self) -> float:
        taken = self._run(self._number)
        while taken < self._least:
            wanted = self._least / (taken / self._number) + 1 if taken > 0 else 0.0
            self._number = int(max(wanted, self._number * _GROWTH, self._number + 1))
            taken = self._run(self._number)
        return taken


def evaluate(
    run: Callable[[int], float], config: EvaluatorConfig, limit: float | None = None,
    noise: NoiseMonitor | None = None,
) -> tuple[float, ...]:  # fmt: skip
    """The samples of ``run``; no more of them than it takes to know that it exceeds ``limit`` seconds."""
    evaluator = TimeEvaluator(run, config, noise)
    samples: list[float] = []
    spent, least = 0.0, config.min_repeat_ms / 1e3
    while len(samples) < config.repeat and (not samples or spent < config.max_seconds):
        samples.append(evaluator.sample())
        spent += max(samples[-1] * config.number, least)
        if limit is not None and min(samples) > limit and spent >= _SHORT_SAMPLES * least:
            break
    return tuple(samples)
