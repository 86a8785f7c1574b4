"""The layers that are quantized under a budget of error: as few as possible of those that gain time stay in float32.

Each layer has a gain, the difference of the times of its kernels in the float32 model and in the quantized one, and an
error, that of the results with it alone quantized. Errors of rounding add up like independent ones, in squares, so
layers are left out by their squared error for the time they gain, those first that gain none. How many: by the error of
the models that are really built so, on the samples that ranges come from and on others that were held back.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import onnx

from tilewright.autotune.measure.interleaved_timing import interleave
from tilewright.autotune.measure.noise_monitor import noise_monitor_of
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.bisection import longest_within, taken_within
from tilewright.core.errors import InputError
from tilewright.quantization.accuracy.compare import noise_of, results_of
from tilewright.quantization.accuracy.sensitivity import Sensitivity
from tilewright.quantization.calibration.data import Feed
from tilewright.quantization.layers import Layer

FLOAT32, INTEGERS, CHOSEN = "float32", "all on integers", "chosen"
_FILLED = 2
"""So often layers are looked for that fit into what is left of the budget."""
_ROUNDS = 5
_RUNS = 3
_SECONDS = 2.0
_HELD_BACK = 4
"""Of so many samples one is held back."""

Seconds = tuple[float, float]
"""In float32 and on integers."""


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """``seconds``: of the layer's kernel. ``alone``: the error with it alone quantized. ``why``: it stays in float32;
    empty if it is quantized."""

    layer: Layer
    seconds: Seconds
    alone: float
    why: str

    @property
    def gain(self) -> float:
        """Seconds that integers save."""
        return self.seconds[0] - self.seconds[1]


@dataclass(frozen=True, slots=True)
class Budgeted:
    """``rows``: the layers in the model's order. ``error``: on the samples that layers were chosen by; ``held_back``:
    on those that were held back, None without any. ``seconds``: of the model in float32, with all layers on integers,
    and as it was chosen."""

    rows: tuple[LayerChoice, ...]
    error: float
    held_back: float | None
    seconds: Mapping[str, float]

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of the layers that stay in float32."""
        return tuple(r.layer.name for r in self.rows if r.why)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What times are measured with. ``layers``: of each layer in the model of float32 and in that of integers.
    ``whole``: of models by name."""

    layers: Callable[[onnx.ModelProto, onnx.ModelProto, Sequence[Layer], Feed, int | None], Mapping[str, Seconds]]
    whole: Callable[[Mapping[str, onnx.ModelProto], Feed, int | None], Mapping[str, float]]


def held_back(samples: Sequence[Feed]) -> tuple[list[Feed], list[Feed]]:
    """The samples to choose by, and those to verify with: every fourth, or the last one."""
    if len(samples) < 2:
        return list(samples), []
    last = [k for k in range(len(samples)) if k % _HELD_BACK == _HELD_BACK - 1] or [len(samples) - 1]
    return [s for k, s in enumerate(samples) if k not in last], [samples[k] for k in last]


def layers_within(
    budget: float, original: onnx.ModelProto, make: Callable[[Collection[str]], onnx.ModelProto],
    sensitivity: Sequence[Sensitivity], samples: Sequence[Feed], others: Sequence[Feed], threads: int | None,
    clocks: Clocks,
) -> Budgeted:  # fmt: skip
    """Which layers to quantize so that results are off by at most ``budget`` on ``samples`` and on ``others``, in this
    compiler. ``make``: the quantized model without the layers of these names.

    Raises InputError if that is not even one layer.
    """
    alone = {r.layer.name: r.noise.relative for r in sensitivity}
    layers = [r.layer for r in sensitivity]
    whole = make(())
    times = clocks.layers(original, whole, layers, samples[0], threads)
    gains = {n: before - after for n, (before, after) in times.items()}
    expected = [results_of(original, feeds, "tilewright", threads) for feeds in (samples, others)]

    @cache
    def errors(kept: frozenset[str]) -> tuple[float, float]:
        made = make(alone.keys() - kept)
        found = [
            _worst(original, e, results_of(made, feeds, "tilewright", threads))
            for feeds, e in zip((samples, others), expected, strict=True)
        ]
        return found[0], found[1]

    by_worth = sorted(alone, key=lambda n: alone[n] ** 2 / gains[n] if gains[n] > 0 else float("inf"))
    by_error = sorted(alone, key=lambda n: alone[n])
    kept: list[str] = []
    for order in (by_worth, by_error):
        found = taken_within(order, alone, budget, lambda some: errors(frozenset(some))[0], _FILLED)
        kept = found[: longest_within(len(found), partial(_is_within, errors, budget, found))]
        if kept:
            break
    if not kept:
        best = min(alone, key=lambda n: alone[n])
        raise InputError(
            f"budget: expected at least the error of one layer on integers, got {budget:g}; {best!r} alone is off by "
            f"{alone[best]:.2e}: nothing is left to quantize, the model stays float32"
        )
    contenders = {FLOAT32: original, INTEGERS: whole, CHOSEN: make(alone.keys() - set(kept))}
    gaining = [n for n in kept if gains[n] > 0]
    fewer = "without slower layers"
    if gaining and len(gaining) < len(kept) and max(errors(frozenset(gaining))) <= budget:
        contenders[fewer] = make(alone.keys() - set(gaining))
    seconds = dict(clocks.whole(contenders, samples[0], threads))
    if seconds.get(fewer, float("inf")) < seconds[CHOSEN]:
        kept, seconds[CHOSEN] = gaining, seconds[fewer]
    seconds.pop(fewer, None)
    error, other = errors(frozenset(kept))
    rows = tuple(
        LayerChoice(x, times[x.name], alone[x.name], "" if x.name in kept else _why(x.name, gains, alone, budget))
        for x in layers
    )
    return Budgeted(rows, error, other if others else None, seconds)


def _is_within(
    errors: Callable[[frozenset[str]], tuple[float, float]], budget: float, names: Sequence[str], n: int
) -> bool:
    return max(errors(frozenset(names[:n]))) <= budget


def _why(name: str, gains: Mapping[str, float], alone: Mapping[str, float], budget: float) -> str:
    if alone[name] > budget:
        return "alone beyond the budget"
    return "more error for its time than others" if gains[name] > 0 else "not faster on integers"


def _worst(model: onnx.ModelProto, expected: Sequence[Feed], got: Sequence[Feed]) -> float:
    """The error of the result that is off most."""
    noise = noise_of([o.name for o in model.graph.output], expected, got)
    return max((n.relative for n in noise.values()), default=0.0)


# -- times -----------------------------------------------------------------------------------------------------------
def layer_seconds(
    original: onnx.ModelProto, quantized: onnx.ModelProto, layers: Sequence[Layer], feed: Feed, threads: int | None
) -> dict[str, Seconds]:
    """The least seconds of each layer's kernel in both models, run in turns. What is found in no kernel of its own has
    a share of the difference that the others leave."""
    models = [compile(m, threads=threads, progress=False) for m in (original, quantized)]
    samples: list[dict[str, list[float]]] = [{}, {}]
    totals: list[list[float]] = [[], []]
    names = {alias: x.name for x in layers for alias in (x.name, f"{x.y}.node")}
    for _ in range(_ROUNDS):
        for model, found, total in zip(models, samples, totals, strict=True):
            kernels = model.profile(feed, _RUNS).kernels
            total.append(sum(k.seconds for k in kernels))
            for k in kernels:
                here = {names[n] for n in k.nodes if n in names}
                for n in here:
                    found.setdefault(n, []).append(k.seconds / len(here))
    own, other = ({n: min(s) for n, s in found.items()} for found in samples)
    out = {x.name: (own[x.name], other[x.name]) for x in layers if x.name in own and x.name in other}
    rest = [x.name for x in layers if x.name not in out]
    left = [max(0.0, statistics.median(t) - sum(s[k] for s in out.values())) for k, t in enumerate(totals)]
    return out | {n: (left[0] / len(rest), left[1] / len(rest)) for n in rest}


def model_seconds(models: Mapping[str, onnx.ModelProto], feed: Feed, threads: int | None) -> dict[str, float]:
    """The median seconds of an inference of each, in turns."""
    built = {name: compile(m, threads=threads, progress=False) for name, m in models.items()}
    monitor = noise_monitor_of(max(m.threads for m in built.values()))
    found = interleave({n: partial(m.run, feed) for n, m in built.items()}, _SECONDS, noise=monitor)
    return {n: s.median for n, s in found.items()}


MEASURED = Clocks(layer_seconds, model_seconds)
