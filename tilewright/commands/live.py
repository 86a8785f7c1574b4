"""What ``tune`` shows while it works: a view redrawn in place on a terminal, a line now and then elsewhere.

Nothing is drawn by a thread or a timer: only when a result is there, so that drawing never competes with a measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tilewright.autotune.search.history import Trial
from tilewright.autotune.search.scheduler import Progress
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.core.console import console

_INTERVAL = 0.1
_PLAIN_INTERVAL = 15.0
_WIDE, _LEAST_WIDTH, _LEAST_HEIGHT = 72, 40, 7
_BAR = 20


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

    def __init__(self, drawn: Console, budget: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = drawn
        self._budget = budget
        self._clock = clock
        self._begin = clock()
        self._drawn_at = -_INTERVAL
        self._stage = ""
        self._task = ""
        self._tuners: tuple[TaskTuner, ...] = ()
        self._progress: Progress | None = None
        self._live = Live(
            get_renderable=self.shown, console=drawn, auto_refresh=False, transient=True, redirect_stderr=False
        )

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
        self._live.stop()

    # -- drawing ---------------------------------------------------------------------------------------------------
    def _draw(self, now: bool) -> None:
        at = self._clock()
        if not now and at - self._drawn_at < _INTERVAL:
            return
        self._drawn_at = at
        self._live.start()
        self._live.refresh()

    def shown(self) -> Group:
        """What there is to see, for a terminal of this size."""
        width, height = self._console.size
        if width < _LEAST_WIDTH or height < _LEAST_HEIGHT or not self._tuners:
            return Group(_line(f"{self._head()}  {self._stage}", "bold"))
        doing = f"{self._stage}: {self._task}" if self._task else self._stage
        return Group(_line(self._head(), "bold"), _line(doing), self._table(width >= _WIDE, height - 3))

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

    def _table(self, wide: bool, room: int) -> Table:
        """The heaviest tasks, as many as there is room for; ``wide``: with their times."""
        ordered = sorted(self._tuners, key=lambda t: (-t.task.weight, t.task.name))
        shown = ordered if len(ordered) <= room else ordered[: room - 1]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title in ("weight", *(("default us", "best us") if wide else ()), "gain", "trials", "failed"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("task")
        for t in shown:
            best, default = t.history.best, t.default_seconds
            gain = "" if best is None or default is None else f"{default / best.seconds:.2f}x"
            times = [default, None if best is None else best.seconds] if wide else []
            cells = ["" if s is None else f"{s * 1e6:.1f}" for s in times]
            now = t.task.name == self._task
            cells = [f"{'>' if now else ' '}{100 * t.task.weight:5.1f}%", *cells, gain, str(len(t.history.trials))]
            failed = sum(t.history.failures().values()) or ""
            table.add_row(*cells, str(failed), _line(t.task.name), style="bold" if now else "")
        rest = ordered[len(shown) :]
        if rest:
            share = f"{100 * sum(t.task.weight for t in rest):5.1f}%"
            table.add_row(share, *[""] * (len(table.columns) - 2), _line(f"in {len(rest)} more tasks"))
        return table


def view(out: TextIO, budget: float | None) -> LiveView | PlainLines:
    """What suits ``out``."""
    drawn = console(out)
    return LiveView(drawn, budget) if drawn.is_terminal and not drawn.is_dumb_terminal else PlainLines(out)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="crop")
