"""Whether the machine is as fast as it can be: how fast its threads are together, looked at between the samples.

The processors of a virtual machine move. Two that were neighbours are on different sockets, or two halves of one core,
for a second, and a kernel on two threads takes up to twice as long; or somebody else uses the other half of a core.
That lasts much longer than a sample, so that more samples do not help; what was taken in such a moment is taken again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.codegen.probe import seconds_alone, seconds_together
from tilewright.runtime.resources.thread_pool import PoolHandle

T = TypeVar("T")

_FACTOR = 1.2
"""Slower than the best by this much is disturbed."""
_HORIZON = 120
"""Seconds for which a look is remembered."""
STORED = 15.0
_LOOKS = 2
"""The shortest of so many counts: the first may have to wake the threads."""


class NoiseMonitor:
    """``probe()``: seconds that a fixed piece of work of all threads takes now; None if one of them was away. Without
    a probe nothing is ever disturbed.

    What is compared with is the best of the last two minutes: if the machine stays slow, that is how it is. Waiting
    takes from a store of patience, so that it costs a bounded share of the time. Lives as long as its process.
    """

    def __init__(
        self, probe: Callable[[], float | None] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._best_of_second: deque[tuple[int, float]] = deque()
        self._patience: float | None = None
        self.waited = 0.0
        """Seconds of waiting, and of what was done in vain."""

    def grant(self, seconds: float) -> None:
        """More seconds to wait; at most ``STORED`` times as many are kept, and as many are there at first."""
        most = STORED * seconds
        self._patience = most if self._patience is None else min(most, self._patience + seconds)

    def is_undisturbed(self, cost: float = 0.0) -> bool:
        """True if the machine is now as usual. If not, this waits until it is, which takes from the patience, and so
        does ``cost``, the seconds that will be spent again. Once patience has ended, always True."""
        begin = self._clock()
        if not self._patience or self._is_usual():
            return True
        while (taken := self._clock() - begin) < self._patience and not self._is_usual():
            pass
        self._patience = max(0.0, self._patience - taken - cost)
        self.waited += taken + cost
        return False

    def take(self, sample: Callable[[], T]) -> T:
        """``sample()``, again while it was taken in a disturbed moment."""
        self.is_undisturbed()
        while True:
            begin = self._clock()
            found = sample()
            if self.is_undisturbed(self._clock() - begin):
                return found

    def _is_usual(self) -> bool:
        if self._probe is None:
            return True
        looks = [self._probe() for _ in range(_LOOKS)]
        shortest = min(math.inf if s is None else s for s in looks)
        self._remember(shortest)
        return shortest <= _FACTOR * min(s for _, s in self._best_of_second)

    def _remember(self, seconds: float) -> None:
        now, known = int(self._clock()), self._best_of_second
        if known and known[-1][0] == now:
            seconds = min(seconds, known.pop()[1])
        known.append((now, seconds))
        while known[0][0] < now - _HORIZON:
            known.popleft()


def noise_monitor_of(threads: int) -> NoiseMonitor:
    """Of this process: of its pool of so many threads, or of the calling thread."""
    return NoiseMonitor(partial(probe_threads, threads))


def probe_threads(threads: int) -> float | None:
    """Seconds that the probe takes on so many threads now; None if one was away."""
    if threads == 1:
        return seconds_alone()
    code = thread_pool_code()
    with PoolHandle(threads, code).borrowed(True) as pool:
        return None if pool is None else seconds_together(code, pool, threads)
