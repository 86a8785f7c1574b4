"""The result of profiling: kernel times against what the hardware can do (Williams et al., Roofline, 2009)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.core.console import table
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, Cell, fragment, remark, title
from tilewright.core.html.pieces import table as html_table
from tilewright.runtime.counting import Counts
from tilewright.runtime.denormals import DenormalCount

_HEAD = ("kernel", " us", " %time", " GFLOP/s", " GB/s", " %peak", " thr", "nodes")
_ABOVE = 1.005
"""What is more than this share of a peak reads as more than 100 %."""
_AGAIN = (
    "the peaks look as if they were measured on a busy machine: repeat this when nothing else runs (each process "
    "measures them once; tilewright doctor shows them alone)"
)
_SHOWN = 4
"""Places of denormal numbers that the table has."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured limits of the machine for a number of threads: FLOP/s in float32, bytes/s from memory, and operations in
    a second of products of words, by scalar operation."""

    flops_per_second: float
    bytes_per_second: float
    products: Mapping[str, float] = field(default_factory=dict)

    def operations_per_second(self, product: str) -> float:
        """Of kernels that sum up ``product``, "" for plain arithmetic."""
        return self.products.get(product, self.flops_per_second)

    def doubts(self, work: Iterable[tuple[float, float, float, str]]) -> list[str]:
        """What to think of times that are shorter than these peaks allow; nothing if there are none. ``work``: the
        seconds, operations, bytes and product of each kernel."""
        found = list(work)
        computed = [n / self.operations_per_second(product) > _ABOVE * seconds for seconds, n, _, product in found]
        moved = [n / self.bytes_per_second > _ABOVE * seconds for seconds, _, n, _ in found]
        lines = []
        if count := sum(computed):
            lines.append(f"{_counted(count, 'computes', 'compute')} more than 100 % of the peak: {_AGAIN}")
        if count := sum(m and not c for m, c in zip(moved, computed, strict=True)):
            lines.append(
                f"{_counted(count, 'reads', 'read')} more than memory delivers (100 %): operands were in caches, or "
                "the peak was measured on a busy machine"
            )
        return lines


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel call: median seconds, its arithmetic and compulsory traffic (None where the sizes are unknown)."""

    kernel: str
    nodes: tuple[str, ...]
    seconds: float
    flops: int | None
    bytes: int | None
    parallel: bool
    product: str = ""

    @property
    def gflops(self) -> float | None:
        return None if self.flops is None or self.seconds <= 0 else self.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float | None:
        return None if self.bytes is None or self.seconds <= 0 else self.bytes / self.seconds / 1e9

    def limit_seconds(self, peaks: Peaks) -> float | None:
        """The time that the roofline allows."""
        if self.flops is None or self.bytes is None:
            return None
        return max(self.flops / peaks.operations_per_second(self.product), self.bytes / peaks.bytes_per_second)


@dataclass(frozen=True, slots=True)
class KernelSpan:
    """One kernel call of one run: when it began, in seconds of ``time.monotonic``, and how long it took."""

    kernel: str
    nodes: tuple[str, ...]
    start: float
    seconds: float
    parallel: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """All kernel calls of one inference, in order. ``denormals``: where numbers are nearly zero, the most first.
    ``counts``: what the CPU counted, if it was asked for. ``str()`` is the table."""

    kernels: tuple[KernelTime, ...]
    peaks: Peaks | None
    denormals: tuple[DenormalCount, ...] = ()
    counts: Counts | None = None

    @property
    def seconds(self) -> float:
        """Sum of the kernel times."""
        return sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        rows = [self._row(k) for k in self._by_time()]
        parts = [table(_HEAD, [*rows, ("total", f"{self.seconds * 1e6:.1f}")]), *self._remarks()]
        return "\n".join([*parts, *([] if self.counts is None else ["", str(self.counts)])])

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each kernel call, in order: ``kernel``, ``nodes``, ``seconds``, ``flops``, ``bytes``, ``parallel``,
        ``gflops`` and ``gbytes`` per second, and ``share_of_peak``, what the roofline allows as a share of the time
        that was taken; None where it is not known."""
        rows: list[dict[str, object]] = []
        for k in self.kernels:
            share = self._share_of_peak(k)
            more = {"gflops": k.gflops, "gbytes": k.gbytes, "share_of_peak": share}
            rows.append({**asdict(k), "nodes": ", ".join(k.nodes), **more})
        return rows

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def _repr_html_(self) -> str:
        head = (*_HEAD[:3], "", *_HEAD[3:])
        rows: list[tuple[Cell, ...]] = []
        for k in self._by_time():
            row = self._row(k)
            rows.append((*row[:3], Bar(k.seconds / (self.seconds or 1.0)), *row[3:]))
        total = title("profile", f"{len(self.kernels)} kernel calls, {self.seconds * 1e6:.1f} us")
        counted = [] if self.counts is None else self.counts.pieces()
        return fragment(total, html_table(head, rows), *map(remark, self._remarks()), *counted)

    def doubts(self) -> list[str]:
        """What to think of shares of a peak beyond 100 %; nothing if there are none."""
        if self.peaks is None:
            return []
        known = (
            (k.seconds, k.flops, k.bytes, k.product)
            for k in self.kernels
            if k.flops is not None and k.bytes is not None
        )
        return self.peaks.doubts(x for x in known if x[0] > 0)

    def _share_of_peak(self, k: KernelTime) -> float | None:
        limit = None if self.peaks is None else k.limit_seconds(self.peaks)
        return None if limit is None or k.seconds <= 0 else limit / k.seconds

    def _by_time(self) -> list[KernelTime]:
        return sorted(self.kernels, key=lambda k: -k.seconds)

    def _remarks(self) -> list[str]:
        """The measured peaks, what is odd about them, and denormal numbers, if there are any."""
        lines = [*self._measured_peaks(), *self.doubts()]
        if self.denormals:
            lines.append(f"denormal numbers, slow on some CPUs: {'; '.join(map(str, self.denormals[:_SHOWN]))}")
        return lines

    def _measured_peaks(self) -> list[str]:
        if self.peaks is None:
            return []
        flops, moved = self.peaks.flops_per_second / 1e9, self.peaks.bytes_per_second / 1e9
        used = {k.product for k in self.kernels}
        more = [f"{rate / 1e9:.0f} Gop/s in {p}" for p, rate in self.peaks.products.items() if p in used]
        return [f"measured peaks: {', '.join([f'{flops:.1f} GFLOP/s', *more, f'{moved:.1f} GB/s'])}"]

    def _row(self, k: KernelTime) -> tuple[str, ...]:
        reached = self._share_of_peak(k)
        share = "" if reached is None else f"{100 * reached:.0f}"
        times = f"{k.seconds * 1e6:.1f}", f"{100 * k.seconds / (self.seconds or 1.0):.1f}"
        threads = "all" if k.parallel else "1"
        return (k.kernel, *times, _number(k.gflops), _number(k.gbytes), share, threads, ", ".join(k.nodes)[:60])


def _counted(count: int, one: str, many: str) -> str:
    return f"1 kernel {one}" if count == 1 else f"{count} kernels {many}"


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.1f}"
