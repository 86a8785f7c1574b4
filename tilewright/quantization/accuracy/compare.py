"""How far a quantized model's results are from those of the model it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.inspect.ort import is_installed
from tilewright.quantization.calibration.data import Feed
from tilewright.quantization.calibration.runner import open_runner
from tilewright.quantization.options import Runtime


@dataclass(slots=True)
class Noise:
    """Sums of squares of a signal and of what another one is off by."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: np.ndarray, got: np.ndarray) -> None:
        """One more pair of tensors."""
        e = expected.astype(np.float64)
        self.signal += float(np.square(e).sum())
        self.noise += float(np.square(got.astype(np.float64) - e).sum())

    @property
    def relative(self) -> float:
        """Root mean square of the difference over that of the signal; 0 where both are 0."""
        if self.noise == 0.0:
            return 0.0
        return float(np.sqrt(self.noise / self.signal)) if self.signal else float("inf")

    @property
    def decibels(self) -> float:
        """Signal-to-quantization-noise ratio, SQNR, in dB; infinite where nothing differs."""
        return float(-20.0 * np.log10(self.relative)) if self.relative else float("inf")


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one result in one runtime, over all samples."""

    runtime: Runtime
    output: str
    noise: Noise


def compare_models(
    original: onnx.ModelProto, quantized: onnx.ModelProto, samples: Sequence[Feed], threads: int | None = None
) -> list[Difference]:
    """Both models on all samples, in onnxruntime if it is installed and in this compiler; a row for each floating-point
    result and runtime."""
    names = [o.name for o in original.graph.output]
    runtimes: tuple[Runtime, ...] = ("onnxruntime", "tilewright") if is_installed() else ("tilewright",)
    rows: list[Difference] = []
    for runtime in runtimes:
        expected = results_of(original, samples, runtime, threads)
        got = results_of(quantized, samples, runtime, threads)
        noise = noise_of(names, expected, got)
        rows += [Difference(runtime, n, x) for n, x in noise.items()]
    return rows


def noise_of(
    names: Sequence[str], expected: Sequence[Mapping[str, np.ndarray]], got: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Noise]:
    """The noise of each result of floating point."""
    out: dict[str, Noise] = {}
    for e, g in zip(expected, got, strict=True):
        for name in names:
            if isinstance(e[name], np.ndarray) and e[name].dtype.kind == "f":
                out.setdefault(name, Noise()).add(e[name], g[name])
    return out


def results_of(model: onnx.ModelProto, samples: Sequence[Feed], runtime: Runtime, threads: int | None) -> list[Feed]:
    """What the model gives for each sample."""
    run = open_runner(model, runtime, threads)
    return [run(feed) for feed in samples]
