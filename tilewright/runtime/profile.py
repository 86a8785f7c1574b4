"""The result of profiling: kernel times against what the hardware can do (Williams et al., Roofline, 2009)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.core.console import table
from tilewright.runtime.denormals import DenormalCount

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
    ``str()`` is the table."""

    kernels: tuple[KernelTime, ...]
    peaks: Peaks | None
    denormals: tuple[DenormalCount, ...] = ()

    @property
    def seconds(self) -> float:
        """Sum of the kernel times."""
        return sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        rows = [self._row(k) for k in sorted(self.kernels, key=lambda k: -k.seconds)]
        head = ("kernel", " us", " %time", " GFLOP/s", " GB/s", " %peak", " thr", "nodes")
        lines = [table(head, [*rows, ("total", f"{self.seconds * 1e6:.1f}")])]
        if self.peaks is not None:
            flops, moved = self.peaks.flops_per_second / 1e9, self.peaks.bytes_per_second / 1e9
            used = {k.product for k in self.kernels}
            more = [f"{rate / 1e9:.0f} Gop/s in {p}" for p, rate in self.peaks.products.items() if p in used]
            lines.append(f"measured peaks: {', '.join([f'{flops:.1f} GFLOP/s', *more, f'{moved:.1f} GB/s'])}")
        if self.denormals:
            lines.append(f"denormal numbers, slow on many CPUs: {'; '.join(map(str, self.denormals[:_SHOWN]))}")
        return "\n".join(lines)

    def _row(self, k: KernelTime) -> tuple[str, ...]:
        limit = None if self.peaks is None else k.limit_seconds(self.peaks)
        share = "" if limit is None or k.seconds <= 0 else f"{100 * limit / k.seconds:.0f}"
        times = f"{k.seconds * 1e6:.1f}", f"{100 * k.seconds / (self.seconds or 1.0):.1f}"
        threads = "all" if k.parallel else "1"
        return (k.kernel, *times, _number(k.gflops), _number(k.gbytes), share, threads, ", ".join(k.nodes)[:60])


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.1f}"
