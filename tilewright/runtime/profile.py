"""The result of profiling: kernel times against what the hardware can do (Williams et al., Roofline, 2009)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured limits of the machine for a number of threads: FLOP/s in float32 and bytes/s from memory."""

    flops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel call: median seconds, its arithmetic and compulsory traffic (None where the sizes are unknown)."""

    kernel: str
    nodes: tuple[str, ...]
    seconds: float
    flops: int | None
    bytes: int | None
    parallel: bool

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
        return max(self.flops / peaks.flops_per_second, self.bytes / peaks.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Profile:
    """All kernel calls of one inference, in order. ``str()`` is the table."""

    kernels: tuple[KernelTime, ...]
    peaks: Peaks | None

    @property
    def seconds(self) -> float:
        """Sum of the kernel times."""
        return sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        total = self.seconds or 1.0
        head = f"{'kernel':<44} {'us':>9} {'%time':>6} {'GFLOP/s':>8} {'GB/s':>7} {'%peak':>6} thr  nodes"
        rows = [head, "-" * len(head)]
        for k in sorted(self.kernels, key=lambda k: -k.seconds):
            limit = None if self.peaks is None else k.limit_seconds(self.peaks)
            share = "" if limit is None or k.seconds <= 0 else f"{100 * limit / k.seconds:.0f}"
            rows.append(
                f"{k.kernel:<44} {k.seconds * 1e6:>9.1f} {100 * k.seconds / total:>6.1f} "
                f"{_number(k.gflops):>8} {_number(k.gbytes):>7} {share:>6} {'all' if k.parallel else '1':>3}  "
                f"{', '.join(k.nodes)[:60]}"
            )
        rows.append(f"{'total':<44} {self.seconds * 1e6:>9.1f}")
        if self.peaks is not None:
            rows.append(
                f"measured peaks: {self.peaks.flops_per_second / 1e9:.1f} GFLOP/s, "
                f"{self.peaks.bytes_per_second / 1e9:.1f} GB/s"
            )
        return "\n".join(rows)


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.1f}"
