"""What the time of a tuning went into, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.autotune.base.measure_result import MeasureResult
from tilewright.autotune.base.stopwatch import Stopwatch
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import LocalMeasurer, Measurable, Measurer
from tilewright.autotune.measure.worker_pool import Report

PRECISION = "comparing precisions"
UNTUNED = "building and profiling the untuned network"
IMPLEMENTATIONS = "comparing implementations"
SEARCH = "choosing candidates"
MEASURING = "measuring candidates"
NETWORK = "timing the network"
REST = "the rest"
_LEAST = 0.05
"""Seconds that are worth a word."""


class TimedMeasurer:
    """A measurer whose time is a part. What its worker processes did with it is told by :meth:`split`."""

    def __init__(self, inner: Measurer, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch
        self._before = self._spent()

    def measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None = None
    ) -> list[MeasureResult]:
        """As the protocol says."""
        with self._watch.part(MEASURING):
            return self._inner.measure(task, candidates, on_result)

    def remeasure(self, task: Task, candidates: Sequence[Measurable], rounds: int) -> list[MeasureResult]:
        """As the protocol says."""
        with self._watch.part(MEASURING):
            return self._inner.remeasure(task, candidates, rounds)

    def split(self) -> None:
        """Give the time to what it went into, as far as the measurer knows."""
        now = self._spent()
        for name, seconds in now.items():
            self._watch.move(MEASURING, name, seconds - self._before.get(name, 0.0))
        if now:  # what is left is work of this process: messages, lines of the log
            self._watch.move(MEASURING, REST, self._watch.seconds.get(MEASURING, 0.0))
        self._before = now

    def _spent(self) -> Mapping[str, float]:
        return self._inner.spent() if isinstance(self._inner, LocalMeasurer) else {}


def parts_text(spent: Mapping[str, float]) -> str:
    """``61.2 s: running candidates 30.1 s, waiting 2.0 s, the rest 1.5 s``, the longest part first."""
    long = {name: s for name, s in spent.items() if s >= _LEAST and name != REST}
    rest = sum(spent.values()) - sum(long.values())
    ordered = sorted(long.items(), key=lambda x: (-x[1], x[0]))
    shown = [*ordered, *([(REST, rest)] if rest >= _LEAST else [])]
    parts = f": {', '.join(f'{name} {s:.1f} s' for name, s in shown)}" if shown else ""
    return f"{sum(spent.values()):.1f} s{parts}"
