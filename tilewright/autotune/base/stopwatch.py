"""What time went into: seconds by part, of parts that may lie in one another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Seconds by part. What a part takes inside another one counts for the inner one alone, so that the sum is the time
    that passed in the outermost ones. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @property
    def seconds(self) -> Mapping[str, float]:
        """So far, in the order in which the parts began; without what has passed of the part that is open."""
        return dict(self._seconds)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block is a part."""
        self._charge()
        self._seconds.setdefault(name, 0.0)
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def move(self, source: str, to: str, seconds: float) -> None:
        """``seconds`` that passed in the part ``source`` were one of ``to``."""
        for name, more in ((source, -seconds), (to, seconds)):
            self._seconds[name] = self._seconds.get(name, 0.0) + more

    def _charge(self) -> None:
        """To the innermost part, what passed since the last time."""
        now = self._clock()
        if self._open:
            self._seconds[self._open[-1]] += now - self._since
        self._since = now
