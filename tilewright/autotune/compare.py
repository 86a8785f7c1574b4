"""Fair timing of several ways to do the same thing: interleaved blocks, raw samples kept.

Contenders take turns in blocks, so that a slow spell of the machine hits all of them. The first runs of a block are not
counted: caches are cold then, and the thread pool of the one before may still be spinning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.autotune.steadiness import STORED, Steadiness

_BLOCKS = 8
_SETTLE_SECONDS = 0.05
"""For so long the threads of the one before may wait for work on the processors: onnxruntime's do so for 40 ms."""
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
    steadiness: Steadiness | None = None,
) -> dict[str, Samples]:
    """Samples of every contender: ``runs`` each if given, else as many as fit into ``seconds`` for all together.

    With ``steadiness``, blocks of disturbed moments are taken again, for at most ``seconds`` more.
    """
    steadiness = steadiness or Steadiness()
    steadiness.grant(seconds / STORED)
    for run in contenders.values():
        run()
    share = seconds / (_BLOCKS * len(contenders))
    per_block = None if runs is None else -(-runs // _BLOCKS)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(_BLOCKS):
        for name, run in contenders.items():
            taken[name] += steadiness.take(partial(_settled_block, run, clock, share, per_block))
    return {name: Samples(tuple(s if runs is None else s[:runs])) for name, s in taken.items()}


def _settled_block(
    run: Callable[[], object], clock: Callable[[], float], share: float, count: int | None
) -> list[float]:
    end = clock() + _SETTLE_SECONDS
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
