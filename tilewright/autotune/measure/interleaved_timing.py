"""Fair timing of several ways to do the same thing: interleaved blocks, raw samples kept.

Contenders take turns in blocks, so that a slow spell of the machine hits all of them. A block begins when the threads
of the one before have gone to sleep, and its first runs are not counted, because caches are cold then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.autotune.measure.noise_monitor import STORED, NoiseMonitor

_BLOCKS = 8
_WARM_SECONDS = 0.02
_NAP_SECONDS = 0.002
_QUIET_NAPS = 2
_QUIET_SHARE = 0.1
_LONGEST_WAIT = 0.5
_MIN_BLOCK_RUNS = 3


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of every counted run, in order."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def p10(self) -> float:
        return float(np.percentile(self.seconds, 10))

    @property
    def p90(self) -> float:
        return float(np.percentile(self.seconds, 90))


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    seconds: float = 4.0,
    runs: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    noise: NoiseMonitor | None = None,
) -> dict[str, Samples]:
    """Samples of every contender: ``runs`` each if given, else as many as fit into ``seconds`` for all together.

    With ``noise``, blocks of disturbed moments are taken again, for at most ``seconds`` more.
    """
    noise = noise or NoiseMonitor()
    noise.grant(seconds / STORED)
    for run in contenders.values():
        run()
    share = seconds / (_BLOCKS * len(contenders))
    per_block = None if runs is None else -(-runs // _BLOCKS)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(_BLOCKS):
        for name, run in contenders.items():
            taken[name] += noise.take(partial(_settled_block, run, clock, share, per_block))
    return {name: Samples(tuple(s if runs is None else s[:runs])) for name, s in taken.items()}


def _settled_block(
    run: Callable[[], object], clock: Callable[[], float], share: float, count: int | None
) -> list[float]:
    wait_for_idle_threads()
    end = clock() + _WARM_SECONDS
    run()
    while clock() < end:
        run()
    out: list[float] = []
    begin = clock()
    while len(out) < count if count is not None else (len(out) < _MIN_BLOCK_RUNS or clock() - begin < share):
        start = clock()
        run()
        out.append(clock() - start)
    return out


def wait_for_idle_threads(
    clock: Callable[[], float] = time.perf_counter,
    used: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Sleep until no other thread of this process computes, for half a second at most. ``used``: its processor seconds.

    Pools of threads wait for their next work on the processors: onnxruntime's for 35 ms on an idle machine, for 85
    where somebody else wants the processors as well, which is what the next contender would do.
    """
    end, quiet = clock() + _LONGEST_WAIT, 0
    while quiet < _QUIET_NAPS and clock() < end:
        start, before = clock(), used()
        sleep(_NAP_SECONDS)
        quiet = quiet + 1 if used() - before < _QUIET_SHARE * (clock() - start) else 0
