"""What ``tune`` shows while it works: a view redrawn in place on a terminal, a line now and then elsewhere.

Nothing is drawn by a thread or a timer: only when a result is there, so that drawing never competes with a measurement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from tilewright.autotune.search.history import Trial
from tilewright.autotune.search.scheduler import Progress
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.core.config import Terminal

_INTERVAL = 0.1
_PLAIN_INTERVAL = 15.0
_NARROW, _LEAST_WIDTH, _LEAST_HEIGHT = 72, 40, 7
_BAR = 20
_FALLBACK = os.terminal_size((80, 24))


class PlainLines:
    """A line when a part of the work begins, when the network got 1 % faster, and every quarter of a minute."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._told_at = clock()
        self._speedup = 1.0

    def on_stage(self, stage: str, tuners: Sequence[TaskTuner]) -> None:
        count = f" ({len(tuners)} tasks)" if tuners else ""
        print(f"{stage}{count}", file=self._out, flush=True)

    def on_trial(self, tuner: TaskTuner, trial: Trial) -> None:
        """Nothing: lines come with the turns of the tasks."""

    def on_progress(self, p: Progress) -> None:
        now = self._clock()
        if p.speedup > 1.01 * self._speedup or now - self._told_at >= _PLAIN_INTERVAL:
            self._speedup, self._told_at = max(p.speedup, self._speedup), now
            print(p, file=self._out, flush=True)

    def close(self) -> None:
        """Nothing is left to take away."""


class LiveView:
    """Several lines at the end of a terminal's text, replaced in one write each. ``budget``: seconds, None for none."""

    def __init__(
        self, out: TextIO, terminal: Terminal, budget: float | None,
        size: Callable[[], os.terminal_size] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._out = out
        self._colours = terminal.colours
        self._budget = budget
        self._size = size or (lambda: _size_of(out))
        self._clock = clock
        self._begin = clock()
        self._drawn_at = -_INTERVAL
        self._drawn: list[int] = []
        self._stage = ""
        self._task = ""
        self._tuners: tuple[TaskTuner, ...] = ()
        self._progress: Progress | None = None

    def on_stage(self, stage: str, tuners: Sequence[TaskTuner]) -> None:
        if tuners and not self._tuners:
            self._begin = self._clock()
        self._stage, self._task, self._tuners = stage, "", tuple(tuners)
        self._draw(True)

    def on_trial(self, tuner: TaskTuner, trial: Trial) -> None:
        self._task = tuner.task.name
        self._draw(False)

    def on_progress(self, p: Progress) -> None:
        self._task, self._progress = p.task, p
        self._draw(True)

    def close(self) -> None:
        """Take the view away."""
        if self._drawn:
            self._out.write(self._to_top(self._size()) + "\x1b[J")
            self._out.flush()
            self._drawn = []

    # -- drawing ---------------------------------------------------------------------------------------------------
    def _draw(self, now: bool) -> None:
        at = self._clock()
        if not now and at - self._drawn_at < _INTERVAL:
            return
        self._drawn_at = at
        size = self._size()
        lines = [x[: max(1, size.columns - 1)] for x in self.lines(size)]
        drawn = "\x1b[K\n".join(self._styled(i, x) for i, x in enumerate(lines))
        self._out.write(f"{self._to_top(size)}{drawn}\x1b[J")
        self._out.flush()
        self._drawn = [len(x) for x in lines]

    def _to_top(self, size: os.terminal_size) -> str:
        """To the first line of what was drawn; lines longer than the terminal is now wide were wrapped by it."""
        rows = sum(max(1, -(-n // max(1, size.columns))) for n in self._drawn)
        up = min(rows - 1, size.lines - 1)
        return f"\x1b[{up}A\r" if up > 0 else "\r"

    def _styled(self, place: int, line: str) -> str:
        if not self._colours:
            return line
        if place == 0 or line.startswith(">"):
            return f"\x1b[1m{line}\x1b[0m"
        return f"\x1b[2m{line}\x1b[0m" if place == 2 else line

    def lines(self, size: os.terminal_size) -> list[str]:
        """What there is to see, for a terminal of this size."""
        head = self._head()
        if size.columns < _LEAST_WIDTH or size.lines < _LEAST_HEIGHT or not self._tuners:
            return [f"{head}  {self._stage}"]
        narrow = size.columns < _NARROW
        doing = f"{self._stage}: {self._task}" if self._task else self._stage
        title = " weight   gain trials failed  task" if narrow else (
            " weight  default us     best us   gain  trials  failed  task"
        )  # fmt: skip
        ordered = sorted(self._tuners, key=lambda t: (-t.task.weight, t.task.name))
        room = size.lines - 3
        shown = ordered if len(ordered) <= room else ordered[: room - 1]
        rows = [self._row(t, narrow) for t in shown]
        rest = ordered[len(shown) :]
        if rest:
            share = 100 * sum(t.task.weight for t in rest)
            rows.append(f" {share:5.1f}%  in {len(rest)} more tasks")
        return [head, doing, f" {title.lstrip()}" if narrow else title, *rows]

    def _head(self) -> str:
        elapsed = self._clock() - self._begin
        trials = sum(t.trials for t in self._tuners)
        failed = sum(sum(t.history.failures().values()) for t in self._tuners)
        of = "" if self._budget is None else f" of {self._budget:.0f}"
        parts = [f"{elapsed:.0f}{of} s"]
        if self._budget:
            full = min(_BAR, int(_BAR * elapsed / self._budget))
            parts.append(f"[{'#' * full}{'.' * (_BAR - full)}]")
        if self._tuners:
            rate = f" ({trials / elapsed:.1f}/s)" if elapsed > 1 else ""
            parts.append(f"{trials} trials{rate}" + (f", {failed} failed" if failed else ""))
        if self._progress is not None:
            p = self._progress
            parts.append(f"{p.speedup:.2f}x, {100 * p.remaining_gain:.1f} % more expected")
        return "  ".join(parts)

    def _row(self, t: TaskTuner, narrow: bool) -> str:
        best, default = t.history.best, t.default_seconds
        gain = "" if best is None or default is None else f"{default / best.seconds:.2f}x"
        failed = sum(t.history.failures().values()) or ""
        mark = ">" if t.task.name == self._task else " "
        trials = len(t.history.trials)
        share = f"{mark}{100 * t.task.weight:5.1f}%"
        if narrow:
            return f"{share} {gain:>6} {trials:6d} {failed:>6}  {t.task.name}"
        before = "" if default is None else f"{default * 1e6:.1f}"
        after = "" if best is None else f"{best.seconds * 1e6:.1f}"
        return f"{share} {before:>11} {after:>11} {gain:>6} {trials:7d} {failed:>7}  {t.task.name}"


def view(out: TextIO, terminal: Terminal, budget: float | None) -> LiveView | PlainLines:
    """What suits ``out``."""
    return LiveView(out, terminal, budget) if out.isatty() and terminal.moves else PlainLines(out)


def _size_of(out: TextIO) -> os.terminal_size:
    """The size now, so that a view follows when the terminal is resized."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _FALLBACK
    return size if size.columns > 0 and size.lines > 0 else _FALLBACK
