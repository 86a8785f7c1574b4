"""How much of a compiled model runs on tuned schedules: one row per kernel, with the reason and the share of time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tilewright.core.arith.bounds import middle
from tilewright.core.arith.expr import IntExpr
from tilewright.core.console import table
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, Cell, fragment, remark, title
from tilewright.core.html.pieces import table as html_table
from tilewright.core.plan import KernelStep, Plan, all_steps
from tilewright.machine.costs import GENERIC

_HEAD = ("kernel", " %time", " calls", "status", "reason")
_UNKNOWN_SIZE = 32
"""What a symbolic dimension without a range counts for in an estimate."""


class Status(StrEnum):
    """What the tuning database had for a kernel."""

    HIT = "hit"
    NEAR_MISS = "near miss"
    MISS = "miss"


@dataclass(frozen=True, slots=True)
class KernelTuning:
    """What a build used for a kernel, and why. ``seconds``: what the record says a call takes, if it is a hit."""

    status: Status
    reason: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """``calls``: how often one inference calls the kernel. ``share``: of the run time of all kernels."""

    kernel: str
    calls: int
    status: Status
    reason: str
    share: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """Every kernel of a model, the heaviest first. ``source``: where the shares are from. ``str()`` is the table."""

    rows: tuple[CoverageRow, ...]
    source: str

    @property
    def tuned(self) -> float:
        """The share of run time in kernels with a hit (1 for a model without kernels)."""
        return self.share(Status.HIT) if self.rows else 1.0

    def share(self, status: Status) -> float:
        """The share of run time in kernels of this status: exactly 1 if all have it."""
        whole = sum(r.share for r in self.rows)
        return sum(r.share for r in self.rows if r.status is status) / whole if whole else 0.0

    def count(self, status: Status) -> int:
        """The number of kernels of this status."""
        return sum(r.status is status for r in self.rows)

    def __str__(self) -> str:
        return f"{table(_HEAD, [_cells(r) for r in self.rows])}\n{self.summary()}"

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each kernel: its name, ``calls``, ``status``, ``reason`` and ``share`` of the run time."""
        return [{**asdict(r), "status": str(r.status)} for r in self.rows]

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def _repr_html_(self) -> str:
        return fragment(*self.pieces())

    def pieces(self) -> list[str]:
        """What a page shows of it: a row for each kernel."""
        rows: list[tuple[Cell, ...]] = []
        for r in self.rows:
            kernel, share, *rest = _cells(r)
            rows.append((kernel, share, Bar(r.share, r.status is Status.MISS), *rest))
        made = html_table((*_HEAD[:2], "", *_HEAD[2:]), rows)
        return [title("coverage", f"{100 * self.tuned:.1f} % tuned"), made, remark(self.summary())]

    def summary(self) -> str:
        """The line below the table: how many kernels have which status, and their shares of the run time."""
        parts = (f"{_counted(s, self.count(s))} ({100 * self.share(s):.1f} % of run time)" for s in Status)
        return f"{len(self.rows)} kernels: {', '.join(parts)}; run time {self.source}"


def _cells(r: CoverageRow) -> tuple[str, ...]:
    return (r.kernel, f"{100 * r.share:.1f}", str(r.calls), str(r.status), r.reason)


def _counted(status: Status, count: int) -> str:
    plural = {Status.HIT: "hits", Status.NEAR_MISS: "near misses", Status.MISS: "misses"}
    return f"{count} {status if count == 1 else plural[status]}"


def estimated_coverage(plan: Plan, tuning: Mapping[str, KernelTuning]) -> Coverage:
    """Shares from what the records say a call takes; where there is no record, from arithmetic and traffic."""
    calls = _calls(plan)
    sizes = {r.what: middle(r.low.const, r.high.const) for r in plan.limits}
    work = {name: sum(_work(s, sizes) for s in steps) for name, steps in calls.items()}
    known = {
        name: t.seconds * len(calls[name]) for name, t in tuning.items() if t.seconds is not None and name in calls
    }
    rates = [known[n] / work[n] for n in known if work[n] > 0]
    rate = statistics.median(rates) if rates else 1.0
    source = "estimated from records and arithmetic" if known else "estimated from arithmetic"
    seconds = {n: known.get(n, work[n] * rate) for n in calls}
    return _coverage(tuning, seconds, {n: len(s) for n, s in calls.items()}, source)


def measured_coverage(plan: Plan, tuning: Mapping[str, KernelTuning], seconds: Mapping[str, float]) -> Coverage:
    """Shares from a profile: the seconds of all calls of a kernel, by its name."""
    calls = {n: len(s) for n, s in _calls(plan).items()}
    return _coverage(tuning, {n: seconds.get(n, 0.0) for n in calls}, calls, "measured")


def _coverage(
    tuning: Mapping[str, KernelTuning], seconds: Mapping[str, float], calls: Mapping[str, int], source: str
) -> Coverage:
    total = sum(seconds.values())
    rows = [
        CoverageRow(n, calls[n], tuning[n].status, tuning[n].reason, s / total if total > 0 else 1.0 / len(seconds))
        for n, s in seconds.items()
    ]
    return Coverage(tuple(sorted(rows, key=lambda r: -r.share)), source)


def _calls(plan: Plan) -> dict[str, list[KernelStep]]:
    out: dict[str, list[KernelStep]] = {}
    for s in all_steps(plan):
        if isinstance(s, KernelStep):
            out.setdefault(s.kernel, []).append(s)
    return out


def _work(step: KernelStep, sizes: Mapping[str, int]) -> float:
    return _size(step.flops, sizes) + GENERIC.operations_per_byte * _size(step.bytes, sizes)


def _size(e: IntExpr | None, sizes: Mapping[str, int]) -> float:
    if e is None:
        return 0.0
    return max(0.0, float(e.evaluate({**dict.fromkeys(e.free_vars(), _UNKNOWN_SIZE), **sizes})))
